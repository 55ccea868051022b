// Output of the command: results on stdout, progress and messages on stderr, and Ctrl-C as a cancel
// handle. Must not know models or sessions.
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

// Writes to stdout and flushes, so that a reply is seen while it is generated. A terminal gets
// visible(text, Lines::keep), any other output the bytes. Throws Failure if stdout accepts no more.
void print(std::string_view text);
// Writes one JSON object on a line of stdout. Bytes that are not UTF-8 become U+FFFD; characters
// that visible() spells out are escaped.
void print_json(const Json &json);
// Writes a line to stderr, made visible.
void say(const std::string &message);

bool input_is_terminal();

std::string hex(const stasis_digest &digest);

// Returns the name of an element of the Big 8 + 4, 1 .. 12.
const char *element_name(uint32_t element);

class Stopwatch {
  public:
    double seconds() const;

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A progress bar on stderr for long calls. It is drawn only on a terminal, and erased at the end.
class Progress {
  public:
    // A total of `at_once` and more is drawn from its first report on, and with its numbers, which
    // are then tokens; else what takes less than 0.3 s is not drawn.
    explicit Progress(const std::string &label, uint64_t at_once = UINT64_MAX);
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    // A stasis_progress_fn; `user` is the Progress.
    static int32_t report(void *user, uint64_t done, uint64_t total) noexcept;

  private:
    void draw(uint64_t done, uint64_t total) const;

    std::string label_;
    uint64_t at_once_;
    Stopwatch watch_;
    bool terminal_, drawn_ = false;
    double drawn_seconds_ = 0;
};

// While it lives, the first Ctrl-C requests cancellation. A second one ends the process, if
// `again_ends`.
class Interrupt {
  public:
    explicit Interrupt(bool again_ends = true);
    ~Interrupt();
    Interrupt(const Interrupt &) = delete;
    Interrupt &operator=(const Interrupt &) = delete;

    stasis_cancel *handle() const { return cancel_.get(); }
    // Returns the flag that Ctrl-C sets, for work outside the library.
    static const std::atomic<bool> &requested();

  private:
    Cancel cancel_;
    struct sigaction before_;
};

// While it lives, Ctrl-C does nothing, if `ignored`; an Interrupt in the meantime takes it.
class InterruptsIgnored {
  public:
    explicit InterruptsIgnored(bool ignored);
    ~InterruptsIgnored();
    InterruptsIgnored(const InterruptsIgnored &) = delete;
    InterruptsIgnored &operator=(const InterruptsIgnored &) = delete;

  private:
    bool ignored_;
    struct sigaction before_;
};

} // namespace command
