// See connection.h.
#include "tools/serve/http/connection.h"

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace serve::http {
namespace {

// Read of later requests while one is answered. A client that has sent so much more that its system
// could not hand over its end is noticed when it is sent something.
constexpr size_t kAheadMax = size_t{64} << 10;
constexpr std::chrono::seconds kLinger{2};
constexpr std::chrono::seconds kLook{1}; // between two looks whether an unread client has left

// What the handler holds: when the last copy goes, the reply is what it is.
class Held final : public Exchange {
  public:
    Held(Request request, BodyShare share, std::shared_ptr<Reply> reply)
        : request_(std::move(request)), share_(std::move(share)), reply_(std::move(reply)) {}
    ~Held() override {
        try {
            reply_->drop();
        } catch (...) { // no memory for an error page: the client times out, or leaves
        }
    }
    const Request &request() const override { return request_; }
    void reply(int status, Headers headers, std::string body) override {
        reply_->whole(status, headers, body);
    }
    void reply_changed(int status, Headers headers, std::string body) override {
        reply_->whole(status, headers, body, true);
    }
    void begin(int status, Headers headers) override { reply_->begin(status, headers); }
    void write(std::string piece) override { reply_->write(piece); }
    void end() override { reply_->end(); }
    void begin_asked(int status, Headers headers, uint64_t length,
                     std::function<void()> more) override {
        reply_->begin_asked(status, headers, length, std::move(more));
    }
    void cut() override { reply_->drop(); }
    size_t backlog() const override { return reply_->backlog(); }
    bool gone() const override { return reply_->gone(); }
    void on_gone(std::function<void()> callback) override { reply_->on_gone(std::move(callback)); }

  private:
    const Request request_;
    const BodyShare share_;
    const std::shared_ptr<Reply> reply_;
};

std::string text_of(const std::exception_ptr &thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception &error) {
        return error.what();
    } catch (...) {
        return "an exception of an unknown type";
    }
}

} // namespace

Connection::Connection(Loop &loop, int socket, std::string peer)
    : loop_(loop), socket_(socket), peer_(std::move(peer)), parser_(loop.limits),
      share_(loop.body_bytes) {
    try {
        event_base *base = loop.base.get();
        readable_ = made<Event>(event_new(base, socket, EV_READ | EV_PERSIST, on_socket, this));
        writable_ = made<Event>(event_new(base, socket, EV_WRITE | EV_PERSIST, on_socket, this));
        timer_ = made<Event>(evtimer_new(base, on_time, this));
        out_ = made<Buffer>(evbuffer_new());
        watch(EV_READ);
        arm();
    } catch (...) {
        readable_ = nullptr, writable_ = nullptr, timer_ = nullptr;
        ::close(socket);
        throw;
    }
    ++loop_.open;
}

Connection::~Connection() {
    if (open_) {
        readable_ = nullptr, writable_ = nullptr,
        timer_ = nullptr; // before the descriptor is another's
        ::close(socket_);
        --loop_.open;
    }
}

void Connection::on_socket(int, short what, void *self) {
    auto *connection = static_cast<Connection *>(self);
    connection->loop_.run([&] {
        try {
            if ((what & EV_WRITE) != 0) {
                connection->flush();
            } else {
                connection->read_some();
            }
        } catch (const std::bad_alloc &) { // others may have enough
            connection->cut();
        }
    });
}

void Connection::on_time(int, short, void *self) {
    auto *connection = static_cast<Connection *>(self);
    connection->loop_.run([&] { connection->timed_out(); });
}

void Connection::read_some() {
    const ssize_t count = recv(socket_, loop_.buffer.data(), loop_.buffer.size(), 0);
    if (count < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            lose();
        }
        return;
    }
    if (count == 0) {
        input_ended();
        return;
    }
    const std::string_view bytes(loop_.buffer.data(), static_cast<size_t>(count));
    if (phase_ == Phase::lingering || refused_) {
        return;
    }
    if (phase_ == Phase::reading) {
        feed(bytes);
        return;
    }
    if (ahead_at_ >= kAheadMax) {
        ahead_.erase(0, std::exchange(ahead_at_, 0));
    }
    ahead_.append(bytes);
    if (ahead_.size() - ahead_at_ >= kAheadMax) { // `timed_out` looks whether it leaves
        event_del(readable_.get());
        reading_ = false;
        arm();
    }
}

// A client that has closed its side may still wait for a reply that is under way to it, but nothing
// is computed for it: most have left.
void Connection::input_ended() {
    if (phase_ != Phase::replying) {
        close();
    } else if (reply_->made()) {
        input_ended_ = true;
        event_del(readable_.get());
    } else {
        lose();
    }
}

void Connection::feed(std::string_view bytes) {
    const size_t taken = parser_.take(bytes);
    ahead_.append(bytes.substr(taken));
    react();
}

// Reads on in what has come already.
void Connection::feed_ahead() {
    ahead_at_ += parser_.take(std::string_view(ahead_).substr(ahead_at_));
    if (ahead_at_ == ahead_.size()) {
        ahead_ = {};
        ahead_at_ = 0;
    }
    if (!reading_ && ahead_.size() - ahead_at_ < kAheadMax) {
        reading_ = true;
        watch(EV_READ);
    }
    react();
}

void Connection::react() {
    if (parser_.begun() && !request_begun_) {
        request_begun_ = true;
        begun_at_ = Clock::now();
    }
    if (parser_.refused()) {
        refuse(parser_.status(), parser_.reason());
    } else if (!admit()) {
        return;
    } else if (parser_.whole()) {
        dispatch();
    } else if (parser_.wants_continue()) {
        static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        if (evbuffer_add(out_.get(), kContinue.data(), kContinue.size()) != 0) {
            throw std::bad_alloc();
        }
        flush();
    } else {
        arm();
    }
}

// Refuses what its head does not deserve, and a body for which there is no place. Returns whether
// the request goes on.
bool Connection::admit() {
    if (parser_.head_read() && !parser_.whole() && !std::exchange(head_seen_, true) && loop_.gate) {
        if (const std::optional<Denial> denial = loop_.gate(parser_.request())) {
            refuse(*denial);
            return false;
        }
    }
    const size_t size = parser_.request().body.size();
    if (size > kSmallBody && share_.set(size - kSmallBody) > loop_.limits.bodies_bytes) {
        const std::string reason = "the bodies of all requests together exceed " +
                                   std::to_string(loop_.limits.bodies_bytes) + " bytes";
        refuse({503, reason, {{"Retry-After", "1"}}, error_text(503, reason)});
        return false;
    }
    return true;
}

void Connection::refuse(int status, const std::string &reason) {
    refuse({status, reason, {}, error_text(status, reason)});
}

void Connection::refuse(const Denial &denial) {
    ++loop_.refused;
    Request &request = parser_.request();
    method_ = request.method;
    path_ = request.path;
    error_ = denial.reason;
    request.body = {};
    share_.set(0);
    refused_ = true;
    if (!request_begun_) {
        begun_at_ = Clock::now();
    }
    ahead_ = {};
    ahead_at_ = 0;
    phase_ = Phase::replying;
    const bool head_only = request.method == "HEAD";
    reply_ =
        std::make_shared<Reply>(loop_.mailbox, Reply::Form{parser_.http_1_0(), head_only, false},
                                loop_.limits, loop_.reply_bytes);
    reply_->connection = this;
    Headers headers = denial.headers;
    headers.emplace_back("Content-Type", "application/json");
    reply_->whole(denial.status, headers, denial.body);
    arm();
}

void Connection::dispatch() {
    ++loop_.requests;
    Request request = std::move(parser_.request());
    request.peer = peer_;
    method_ = request.method;
    path_ = request.path;
    phase_ = Phase::replying;
    const Reply::Form form{parser_.http_1_0(), method_ == "HEAD",
                           parser_.keep_alive() && !loop_.stopping};
    reply_ = std::make_shared<Reply>(loop_.mailbox, form, loop_.limits, loop_.reply_bytes);
    reply_->connection = this;
    arm();
    if (path_ == "*") { // OPTIONS of the server as a whole asks whether it is there
        reply_->whole(204, {}, "");
        return;
    }
    const auto held = std::make_shared<Held>(std::move(request), std::move(share_), reply_);
    try {
        loop_.handler(held);
    } catch (...) {
        error_ = text_of(std::current_exception());
        reply_->drop();
    }
}

void Connection::pump() {
    const Reply::Taken taken = reply_->take();
    if (taken.overrun) {
        error_ = "the client reads too slowly";
        lose();
        return;
    }
    if (evbuffer_add(out_.get(), taken.bytes.data(), taken.bytes.size()) != 0) {
        throw std::bad_alloc();
    }
    ended_ = taken.ended;
    cut_ = taken.cut;
    flush();
}

void Connection::flush() {
    pace_.waits(evbuffer_get_length(out_.get()), Clock::now());
    while (evbuffer_get_length(out_.get()) > 0) {
        evbuffer_iovec parts[16];
        const int count = evbuffer_peek(out_.get(), -1, nullptr, parts, 16);
        msghdr message{};
        message.msg_iov = reinterpret_cast<iovec *>(parts);
        message.msg_iovlen = static_cast<size_t>(count < 16 ? count : 16);
        const ssize_t sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (event_pending(writable_.get(), EV_WRITE, nullptr) == 0) {
                watch(EV_WRITE);
            }
            arm();
            return;
        }
        if (sent < 0 && errno != EINTR) {
            lose();
            return;
        }
        if (sent > 0) {
            pace_.takes(static_cast<size_t>(sent), Clock::now());
            evbuffer_drain(out_.get(), static_cast<size_t>(sent));
            if (reply_) {
                sent_ += static_cast<uint64_t>(sent);
                reply_->sent(static_cast<size_t>(sent));
            }
        }
    }
    event_del(writable_.get());
    pace_.waits(0, Clock::now());
    if (phase_ == Phase::replying && ended_) {
        replied();
    } else {
        arm();
    }
}

void Connection::replied() {
    const bool keep_alive = reply_->keep_alive() && !cut_;
    if (cut_ && reply_->cut_needs_reset()) {
        const ::linger none{1, 0};
        setsockopt(socket_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
    report(!cut_);
    reply_->connection = nullptr;
    reply_ = nullptr;
    if (input_ended_ || cut_) {
        close();
    } else if (!keep_alive) {
        linger();
    } else {
        phase_ = Phase::reading;
        since_ = Clock::now();
        parser_ = Parser(loop_.limits);
        share_.set(0);
        request_begun_ = head_seen_ = ended_ = cut_ = false;
        feed_ahead();
    }
}

void Connection::linger() {
    shutdown(socket_, SHUT_WR);
    phase_ = Phase::lingering;
    since_ = Clock::now();
    if (!reading_) {
        reading_ = true;
        watch(EV_READ);
    }
    arm();
}

void Connection::finish() {
    if (phase_ == Phase::replying) {
        reply_->close_after();
    } else if (phase_ == Phase::reading && !request_begun_) {
        close();
    }
}

void Connection::cut() {
    lose();
}

void Connection::lose() {
    if (open_ && reply_) {
        const std::shared_ptr<Reply> reply = reply_;
        ++loop_.gone;
        report(false);
        close();
        reply->leave();
    } else {
        close();
    }
}

// Tells the watcher how the reply went.
void Connection::report(bool whole) {
    const uint64_t bytes = std::exchange(sent_, 0);
    const std::chrono::duration<double> lasted = Clock::now() - begun_at_;
    if (loop_.watcher) {
        loop_.watcher({std::move(method_), std::move(path_), peer_, reply_->status(), bytes,
                       lasted.count(), whole, std::move(error_)});
    }
    method_.clear();
    path_.clear();
    error_.clear();
}

void Connection::close() {
    if (!open_) {
        return;
    }
    open_ = false;
    readable_ = nullptr, writable_ = nullptr, timer_ = nullptr;
    ::close(socket_);
    --loop_.open;
    if (reply_) {
        reply_->connection = nullptr;
        reply_ = nullptr;
    }
    const auto self = loop_.connections.find(this);
    if (self != loop_.connections.end()) {
        loop_.closed.push_back(std::move(self->second));
        loop_.connections.erase(self);
    }
}

void Connection::watch(short what) {
    if (event_add(what == EV_READ ? readable_.get() : writable_.get(), nullptr) != 0) {
        throw std::bad_alloc();
    }
}

// Sets the timer for what the connection waits for now.
void Connection::arm() {
    Clock::time_point end;
    const auto after = [](Clock::time_point from, uint32_t seconds) {
        return from + std::chrono::seconds(seconds);
    };
    if (phase_ == Phase::lingering) {
        end = refused_ ? after(since_, loop_.limits.read_seconds) : since_ + kLinger;
    } else if (evbuffer_get_length(out_.get()) > 0) {
        end = after(pace_.since(), loop_.limits.write_seconds);
    } else if (phase_ == Phase::reading) {
        end = request_begun_ ? after(begun_at_, loop_.limits.read_seconds)
                             : after(since_, loop_.limits.idle_seconds);
    } else if (!reading_) {
        end = Clock::now() + kLook;
    } else { // it takes what it takes to compute a reply
        evtimer_del(timer_.get());
        return;
    }
    const auto left =
        std::max(std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now()),
                 std::chrono::microseconds(0));
    const timeval time{left.count() / 1000000, left.count() % 1000000};
    if (evtimer_add(timer_.get(), &time) != 0) {
        throw std::bad_alloc();
    }
}

void Connection::timed_out() {
    if (phase_ == Phase::lingering) {
        close();
    } else if (evbuffer_get_length(out_.get()) > 0) {
        error_ = "the client takes too little";
        lose();
    } else if (phase_ == Phase::reading && request_begun_) {
        refuse(408, "the request did not come within " + std::to_string(loop_.limits.read_seconds) +
                        " seconds");
    } else if (phase_ == Phase::reading) {
        close();
    } else if (!reading_) {
        pollfd state{socket_, POLLRDHUP, 0};
        if (poll(&state, 1, 0) > 0 && !reply_->made()) {
            lose();
        } else {
            arm();
        }
    }
}

} // namespace serve::http
