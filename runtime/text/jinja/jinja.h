// A small interpreter for the subset of Jinja that published chat templates use, with the settings
// of transformers (trim_blocks, lstrip_blocks, loop controls). The source comes with a model, so
// time and memory are limited. Knows nothing of chats or models.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

// Thrown when the template calls raise_exception: it refuses its input.
class Refusal : public std::exception {
  public:
    explicit Refusal(std::string message) : message_(std::move(message)) {}
    const char *what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

struct Node; // syntax.h

class Template {
  public:
    // Throws Error(unsupported) naming the line that cannot be read.
    explicit Template(std::string_view source);
    ~Template();

    // `date` is the time for strftime_now, in UTC; without one that function is undefined. Throws
    // Refusal, or Error(unsupported) for features that the interpreter lacks and for a used-up
    // budget.
    std::string render(const Dict &variables, std::optional<std::time_t> date,
                       Budget &budget) const;

  private:
    std::vector<std::unique_ptr<Node>> body_;
};

} // namespace stasis::jinja
