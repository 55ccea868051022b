// Output, progress bar and Ctrl-C of the command; see terminal.h. Must not know models or sessions.
#include "tools/cli/terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace command {

void print(std::string_view text) {
    std::string shown;
    if (isatty(STDOUT_FILENO) != 0) {
        text = shown = visible(text, Lines::keep);
    }
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
        std::fflush(stdout) != 0) {
        throw Failure(std::string("standard output: ") + std::strerror(errno));
    }
}

void print_json(const Json &json) {
    print(visible(json.dump(-1, ' ', false, Json::error_handler_t::replace)) + "\n");
}

void say(const std::string &message) {
    std::fprintf(stderr, "%s\n", visible(message).c_str());
}

bool input_is_terminal() {
    return isatty(STDIN_FILENO) != 0;
}

std::string hex(const stasis_digest &digest) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (const uint8_t byte : digest.bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

const char *element_name(uint32_t element) {
    static constexpr const char *kNames[] = {
        "kv_cache",       "token_embeddings", "positional_state",  "input_token_buffer",
        "attention_mask", "model_config",     "layer_norm",        "attention_weights",
        "logits",         "tokenizer",        "kv_format_version", "prompt_injection_meta"};
    return element >= 1 && element <= 12 ? kNames[element - 1] : "unknown";
}

double Stopwatch::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

namespace {
// Returns whether standard error is a terminal whose lines can be drawn over.
bool can_draw() {
    const char *terminal = std::getenv("TERM");
    return isatty(STDERR_FILENO) != 0 && terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
}
} // namespace

Progress::Progress(const std::string &label, uint64_t at_once)
    : label_(visible(label)), at_once_(at_once), terminal_(can_draw()) {}

Progress::~Progress() {
    if (drawn_) {
        std::fputs("\r\033[K", stderr);
    }
}

void Progress::draw(uint64_t done, uint64_t total) const {
    constexpr int kWidth = 30;
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const int filled = static_cast<int>(part * kWidth);
    std::string numbers;
    if (total >= at_once_) {
        numbers = ", " + std::to_string(done) + " of " + std::to_string(total) + " tokens";
    }
    std::fprintf(stderr, "\r%s [%.*s%.*s] %3d %%%s", label_.c_str(), filled,
                 "##############################", kWidth - filled,
                 "..............................", static_cast<int>(part * 100), numbers.c_str());
}

int32_t Progress::report(void *user, uint64_t done, uint64_t total) noexcept {
    // Calls shorter than the first limit draw nothing, so that quick commands do not flicker.
    constexpr double kFirstSeconds = 0.3, kAgainSeconds = 0.05;
    auto &self = *static_cast<Progress *>(user);
    const double now = self.watch_.seconds();
    const bool due = self.drawn_ ? now >= self.drawn_seconds_ + kAgainSeconds
                                 : now >= kFirstSeconds || total >= self.at_once_;
    if (!self.terminal_ || total == 0 || !due) {
        return 0;
    }
    self.drawn_ = true;
    self.drawn_seconds_ = now;
    try {
        self.draw(done, total);
    } catch (...) { // no memory for the numbers: no bar
        return 0;
    }
    return 0;
}

namespace {
// The signal handler may access nothing but these two: a request sets a flag that the running call
// checks.
std::atomic<stasis_cancel *> interrupted{nullptr};
std::atomic<bool> interrupt_requested{false};
void on_interrupt(int) {
    interrupt_requested = true;
    stasis_cancel_request(interrupted.load());
}
} // namespace

Interrupt::Interrupt(bool again_ends) {
    stasis_cancel *cancel = nullptr;
    stasis_error error{};
    check(stasis_cancel_create(&cancel, &error), error, "cancel handle");
    cancel_.reset(cancel);
    interrupted = cancel;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESTART | (again_ends ? SA_RESETHAND : 0U));
    sigaction(SIGINT, &action, &before_);
}

const std::atomic<bool> &Interrupt::requested() {
    return interrupt_requested;
}

Interrupt::~Interrupt() {
    sigaction(SIGINT, &before_, nullptr);
    interrupted = nullptr;
}

InterruptsIgnored::InterruptsIgnored(bool ignored) : ignored_(ignored), before_{} {
    struct sigaction action {};
    action.sa_handler = SIG_IGN;
    if (ignored_) {
        sigaction(SIGINT, &action, &before_);
    }
}

InterruptsIgnored::~InterruptsIgnored() {
    if (ignored_) {
        sigaction(SIGINT, &before_, nullptr);
    }
}

} // namespace command
