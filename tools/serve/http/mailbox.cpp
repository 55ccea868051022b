// See mailbox.h.
#include "tools/serve/http/mailbox.h"

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

namespace serve::http {

Mailbox::Mailbox() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) {
        throw std::system_error(errno, std::generic_category(), "eventfd");
    }
}

Mailbox::~Mailbox() {
    ::close(descriptor_);
}

void Mailbox::post(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
        mail_.calls.push_back(std::move(call));
        wake();
    }
}

void Mailbox::post(std::shared_ptr<Reply> reply) {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
        mail_.replies.push_back(std::move(reply));
        wake();
    }
}

void Mailbox::wake() const noexcept {
    const int before = errno; // of what a signal interrupted
    const uint64_t one = 1;
    // Fails only if the counter is full, and then the descriptor is readable.
    [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);
    errno = before;
}

Mailbox::Mail Mailbox::take() {
    const std::lock_guard lock(mutex_);
    uint64_t count;
    [[maybe_unused]] const ssize_t got = read(descriptor_, &count, sizeof count);
    return std::exchange(mail_, {});
}

void Mailbox::close() {
    Mail mail; // destroyed without the lock: what it holds may post again
    const std::lock_guard lock(mutex_);
    closed_ = true;
    std::swap(mail, mail_);
}

} // namespace serve::http
