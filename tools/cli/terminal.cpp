// Output, progress bar and Ctrl-C of the command; see terminal.h. Must not know models or sessions.
#include "tools/cli/terminal.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
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

Progress::Progress(const std::string &label)
    : label_(visible(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
    if (drawn_seconds_ > 0) {
        std::fputs("\r\033[K", stderr);
    }
}

int32_t Progress::report(void *user, uint64_t done, uint64_t total) noexcept {
    // Calls shorter than the first limit draw nothing, so that quick commands do not flicker.
    constexpr double kFirstSeconds = 0.3, kAgainSeconds = 0.05;
    constexpr int kWidth = 30;
    auto &self = *static_cast<Progress *>(user);
    const double now = self.watch_.seconds();
    if (!self.terminal_ || total == 0 || now < kFirstSeconds ||
        now < self.drawn_seconds_ + kAgainSeconds) {
        return 0;
    }
    self.drawn_seconds_ = now;
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const int filled = static_cast<int>(part * kWidth);
    std::fprintf(stderr, "\r%s [%.*s%.*s] %3d %%", self.label_.c_str(), filled,
                 "##############################", kWidth - filled,
                 "..............................", static_cast<int>(part * 100));
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

Interrupt::Interrupt() {
    stasis_cancel *cancel = nullptr;
    stasis_error error{};
    check(stasis_cancel_create(&cancel, &error), error, "cancel handle");
    cancel_.reset(cancel);
    interrupted = cancel;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &action, &before_);
}

const std::atomic<bool> &Interrupt::requested() {
    return interrupt_requested;
}

Interrupt::~Interrupt() {
    sigaction(SIGINT, &before_, nullptr);
    interrupted = nullptr;
}

} // namespace command
