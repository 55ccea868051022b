// One client's connection: its requests one after another, and their replies. All of it happens on
// the server's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <event2/buffer.h>
#include <event2/event.h>

#include "tools/serve/http/mailbox.h"
#include "tools/serve/http/parser.h"
#include "tools/serve/http/reply.h"
#include "tools/serve/http/server.h"

namespace serve::http {

template <auto Release> struct Freed {
    template <typename Object> void operator()(Object *object) const { Release(object); }
};
using Base = std::unique_ptr<event_base, Freed<event_base_free>>;
using Event = std::unique_ptr<event, Freed<event_free>>;
using Buffer = std::unique_ptr<evbuffer, Freed<evbuffer_free>>;

// Throws std::bad_alloc if libevent could not make it, for that is its only reason.
template <typename Owner, typename Object> Owner made(Object *object) {
    return object != nullptr ? Owner(object) : throw std::bad_alloc();
}

class Connection;

// One body's part of what all bodies take, which it gives back when it goes: on any thread.
class BodyShare {
  public:
    explicit BodyShare(std::shared_ptr<std::atomic<uint64_t>> all) : all_(std::move(all)) {}
    BodyShare(BodyShare &&other) noexcept
        : all_(other.all_), own_(std::exchange(other.own_, uint64_t{0})) {}
    BodyShare &operator=(BodyShare &&) = delete;
    ~BodyShare() { set(0); }

    // The body has so many bytes now. Returns how many all bodies have.
    uint64_t set(uint64_t bytes) {
        const uint64_t before = std::exchange(own_, bytes);
        return all_->fetch_add(bytes - before) + bytes - before;
    }

  private:
    std::shared_ptr<std::atomic<uint64_t>> all_;
    uint64_t own_ = 0;
};

// What the connections of a server share.
struct Loop {
    Base base;
    Limits limits;
    Server::Handler handler;
    Server::Watcher watcher;
    Server::Gate gate;
    std::shared_ptr<Mailbox> mailbox;
    // Outlive the loop where a handler holds a request or its reply.
    std::shared_ptr<std::atomic<uint64_t>> body_bytes = std::make_shared<std::atomic<uint64_t>>(0);
    std::shared_ptr<std::atomic<uint64_t>> reply_bytes = std::make_shared<std::atomic<uint64_t>>(0);
    std::vector<char> buffer; // for what is read at a time
    bool stopping = false;    // no connection outlives its present reply
    std::unordered_map<Connection *, std::unique_ptr<Connection>> connections;
    std::vector<std::unique_ptr<Connection>> closed; // destroyed when none of them is running
    std::exception_ptr failure;                      // what a callback threw: `run` throws it
    std::atomic<uint64_t> open{0}, requests{0}, refused{0}, gone{0};

    // Runs one event's work. What it throws ends `run`, for libevent cannot hand it on.
    template <typename Work> void run(Work work) {
        try {
            work();
        } catch (...) {
            failure = std::current_exception();
            event_base_loopbreak(base.get());
        }
        closed.clear();
    }
};

// Whether a client takes what waits for it: within each Limits::write_seconds a twentieth of the
// most that has waited since there was nothing, so that nobody holds memory by a byte now and then.
class Pace {
  public:
    using Time = std::chrono::steady_clock::time_point;
    // So many bytes wait now.
    void waits(size_t bytes, Time now) {
        if (most_ == 0) {
            since_ = now;
            taken_ = 0;
        }
        most_ = bytes == 0 ? 0 : std::max(most_, bytes);
    }
    void takes(size_t bytes, Time now) {
        taken_ += bytes;
        if (taken_ * kShares >= most_) {
            since_ = now;
            taken_ = 0;
        }
    }
    Time since() const { return since_; } // the last share was taken, or there was nothing

  private:
    static constexpr uint64_t kShares = 20;
    size_t most_ = 0, taken_ = 0; // the latter since then
    Time since_;
};

class Connection {
  public:
    // Takes over the socket, also if it throws.
    Connection(Loop &loop, int socket, std::string peer);
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // Sends an error in place of what it would read, and closes.
    void refuse(int status, const std::string &reason);
    void refuse(const Denial &denial);
    // Sends what its reply has.
    void pump();
    // Closes it if it is idle, or else after its reply.
    void finish();
    // Closes it now.
    void cut();

  private:
    using Clock = std::chrono::steady_clock;
    // Lingering: what comes is thrown away, so that the client can read the end of what it was
    // sent: a socket that is closed with bytes unread makes its system forget them.
    enum class Phase { reading, replying, lingering };

    static void on_socket(int, short what, void *self);
    static void on_time(int, short, void *self);
    void read_some();
    void input_ended();
    void feed(std::string_view bytes);
    void feed_ahead();
    void react();
    bool admit();
    void dispatch();
    void flush();
    void replied();
    void linger();
    void lose();
    void report(bool whole);
    void close();
    void watch(short what);
    void arm();
    void timed_out();

    Loop &loop_;
    int socket_;
    std::string peer_;
    Event readable_, writable_, timer_;
    Buffer out_;
    Parser parser_;
    BodyShare share_;     // of the request that is read
    std::string ahead_;   // has come, and is of later requests
    size_t ahead_at_ = 0; // of it the first byte that was not read yet
    Phase phase_ = Phase::reading;
    std::shared_ptr<Reply> reply_; // with Phase::replying
    std::string method_, path_, error_;
    uint64_t sent_ = 0;                                 // of the reply
    Clock::time_point since_ = Clock::now(), begun_at_; // of the phase; of the request
    Pace pace_;                                         // of `out_`
    bool request_begun_ = false, head_seen_ = false, reading_ = true, input_ended_ = false,
         refused_ = false, ended_ = false, cut_ = false, open_ = true;
};

} // namespace serve::http
