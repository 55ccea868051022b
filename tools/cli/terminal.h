// What the command says and where: results on stdout, progress and messages on stderr, Ctrl-C as a
// cancel handle. Knows nothing of models and sessions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tools/cli/handles.h"
#include "tools/cli/visible.h"

namespace command {

using Json = nlohmann::ordered_json;

// Writes to stdout at once, so that a reply is seen as it grows; throws if stdout takes no more. A
// terminal gets visible(text, Lines::keep), all else the bytes.
void print(std::string_view text);
// One JSON object on a line of stdout. Bytes that are not UTF-8 become U+FFFD; what visible()
// spells out is escaped.
void print_json(const Json &json);
// A line on stderr, made visible.
void say(const std::string &message);

bool input_is_terminal();

std::string hex(const stasis_digest &digest);

// Element of the Big 8 + 4 by number, 1 .. 12.
const char *element_name(uint32_t element);

class Stopwatch {
  public:
    double seconds() const;

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A progress bar on stderr for calls that take long; drawn only on a terminal, and gone at the end.
class Progress {
  public:
    explicit Progress(const std::string &label);
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    // A stasis_progress_fn; `user` is the Progress.
    static int32_t report(void *user, uint64_t done, uint64_t total) noexcept;

  private:
    std::string label_;
    Stopwatch watch_;
    bool terminal_;
    double drawn_seconds_ = 0;
};

// While it lives, the first Ctrl-C requests cancellation and a second one ends the process.
class Interrupt {
  public:
    Interrupt();
    ~Interrupt();
    Interrupt(const Interrupt &) = delete;
    Interrupt &operator=(const Interrupt &) = delete;

    stasis_cancel *handle() const { return cancel_.get(); }
    // For work that is not the library's.
    static const std::atomic<bool> &requested();

  private:
    Cancel cancel_;
    struct sigaction before_;
};

} // namespace command
