// A small interpreter for the subset of Jinja that published chat templates use, with the settings
// of transformers (trim_blocks, lstrip_blocks, loop controls). The source comes with a model, so
// time and memory are limited. Knows nothing of chats or models.
#pragma once

#include <ctime>
#include <functional>
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

// Takes the rendering of the first `count` messages: the first `shared` bytes of `whole`, the
// rendering so far of all messages, then `rest`; or it was refused.
struct Beginning {
    size_t count = 0;
    std::string_view shared;
    std::string rest;
    bool refused = false;
};
using TakeBeginning = std::function<void(const Beginning &)>;

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

    // Renders `messages`, and reports renderings of their beginnings, each as `render` gives it
    // with a list "messages" of so many. They share what is the same for all: where a template
    // looks at its messages one after the other, the time of all is that of two renderings. Where
    // it looks ahead, to the end or at their number, those that this concerns are not reported, or
    // take the time of their own. Throws what `take` throws, and as `render` does for all of them.
    void render_beginnings(const Dict &variables, List messages, std::optional<std::time_t> date,
                           Budget &budget, const TakeBeginning &take) const;

  private:
    std::vector<std::unique_ptr<Node>> body_;
    bool asks_for_lengths_; // of a loop
};

} // namespace stasis::jinja
