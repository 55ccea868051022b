// A reply between the threads that give it and the server's thread, which sends it: its bytes in
// the form of HTTP, how many wait, and whether the client is still there.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tools/serve/http/mailbox.h"
#include "tools/serve/http/server.h"

namespace serve::http {

class Connection;

class Reply : public std::enable_shared_from_this<Reply> {
  public:
    struct Form {
        bool http_1_0 = false;   // the client's version: no pieces with lengths
        bool head_only = false;  // to HEAD: no body
        bool keep_alive = false; // the connection stays open after it
    };
    // `all_waiting` counts the bytes that wait of all replies.
    Reply(std::shared_ptr<Mailbox> mailbox, Form form, const Limits &limits,
          std::shared_ptr<std::atomic<uint64_t>> all_waiting)
        : mailbox_(std::move(mailbox)), form_(form), backlog_max_(limits.backlog_bytes),
          all_max_(limits.replies_bytes), all_waiting_(std::move(all_waiting)) {}
    ~Reply() { set_waiting(0); }
    Reply(const Reply &) = delete;
    Reply &operator=(const Reply &) = delete;

    // Any thread: as Exchange has them.
    void whole(int status, const Headers &headers, std::string_view body, bool changed = false);
    void begin(int status, const Headers &headers);
    void begin_asked(int status, const Headers &headers, uint64_t length,
                     std::function<void()> more);
    void write(std::string_view piece);
    void end();
    size_t backlog() const;
    bool gone() const;
    void on_gone(std::function<void()> callback);
    // Nobody will add to it: what was not begun becomes a 500, what was not ended is cut.
    void drop();

    // The server's thread.
    struct Taken {
        std::string bytes;
        bool ended = false;   // nothing will follow
        bool cut = false;     // and it is not whole
        bool overrun = false; // the client reads too slowly
    };
    Taken take();
    void sent(size_t bytes); // asks for the next piece, if all of it was sent and there are more
    // The client has left: calls those who asked for it, unless the reply has ended.
    void leave();
    void close_after(); // the connection closes after it, which its head says if it can
    bool made() const;  // nothing is computed for it any more
    int status() const;
    bool keep_alive() const;
    bool cut_needs_reset() const; // whether its end is seen only where the connection ends
    Connection *connection = nullptr;

  private:
    enum class Stage { fresh, begun, ended };
    void append_head(int status, const Headers &headers, bool with_length, uint64_t length);
    void append_whole(int status, const Headers &headers, std::string_view body);
    void append(std::string_view bytes);
    void set_waiting(size_t bytes);
    void tell();

    const std::shared_ptr<Mailbox> mailbox_;
    mutable std::mutex mutex_; // of all below
    Form form_;
    const size_t backlog_max_, all_max_;
    const std::shared_ptr<std::atomic<uint64_t>> all_waiting_;
    Stage stage_ = Stage::fresh;
    std::string out_;
    size_t waiting_ = 0; // of `out_`, and taken but not sent
    int status_ = 0;
    bool told_ = false, chunked_ = false, cut_ = false, overrun_ = false, gone_ = false,
         left_ = false;
    std::vector<std::function<void()>> callbacks_;
    std::function<void()> more_; // of a reply in pieces that are asked for
    bool asked_ = false;         // and the next one has not come
    uint64_t ungiven_ = 0;       // its bytes that are still to be given
};

// Returns the words that stand beside a status, "Error" if it has none here.
const char *status_words(int status);

// Returns a body in JSON that says why a request failed, in the form that clients of all APIs read.
std::string error_text(int status, std::string_view reason);

} // namespace serve::http
