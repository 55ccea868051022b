// What other threads leave for the server's thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace serve::http {

class Reply;

class Mailbox {
  public:
    Mailbox(); // throws std::system_error without a descriptor
    ~Mailbox();
    Mailbox(const Mailbox &) = delete;
    Mailbox &operator=(const Mailbox &) = delete;

    struct Mail {
        std::vector<std::function<void()>> calls;
        std::vector<std::shared_ptr<Reply>> replies; // that have something to send
    };

    void post(std::function<void()> call);
    void post(std::shared_ptr<Reply> reply);
    // Makes `descriptor` readable; may be called in a signal handler.
    void wake() const noexcept;

    int descriptor() const { return descriptor_; }
    // Returns what has come, and makes the descriptor unreadable.
    Mail take();
    // Throws away what has come and what will: nobody reads it any more.
    void close();

  private:
    int descriptor_;
    std::mutex mutex_;
    Mail mail_;
    bool closed_ = false;
};

} // namespace serve::http
