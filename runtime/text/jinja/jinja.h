// A small interpreter for the subset of Jinja that published chat templates use, with the settings
// that transformers gives them (trim_blocks, lstrip_blocks, loop controls). Runs text that came
// with a model, so everything it may cost is limited. Knows nothing of chats or models.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/value.h"

namespace stasis::jinja {

// The template called raise_exception: it refuses what it was given.
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
    // Throws Error(unsupported) naming the line of what cannot be read.
    explicit Template(std::string_view source);
    ~Template();

    // `now` is what strftime_now tells. Throws Refusal, or Error(unsupported) for what the
    // interpreter cannot do and for a budget that is used up.
    std::string render(const Dict &variables, std::time_t now, Budget &budget) const;

  private:
    std::vector<std::unique_ptr<Node>> body_;
};

} // namespace stasis::jinja
