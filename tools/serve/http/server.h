// An HTTP/1.1 server on one thread, over libevent: reads requests whole, within limits, and sends
// replies whole or in pieces, which any thread may give. Must not know what requests ask for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace serve::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
    std::string method; // "GET", ...
    std::string path;   // decoded, without the query; begins with '/', never holds a NUL
    std::string query;  // as it came, without the '?'
    Headers headers;    // names in lower case, in the order in which they came
    std::string body;
    std::string peer; // address of the client, for logs

    // Returns the value of the first header of this name (in lower case), or "".
    std::string_view header(std::string_view name) const;
};

// What a request met, for logs and metrics: known when its reply has been sent, or cannot be.
struct Served {
    std::string method, path, peer; // "" where the request was refused before they were read
    int status = 0;                 // 0: no reply was begun
    uint64_t bytes = 0;             // given to the client, with the reply's head
    double seconds = 0;             // since the request's first byte
    bool whole = false;             // false: the client left first, or the reply was cut
    std::string error; // why it was refused, what the handler threw, or why a client was given up
};

// One request and its reply. All functions are thread-safe and return at once; what they are given
// is sent by the server's thread. A client that has left is no error: what is sent goes nowhere.
// Calls out of order (two replies, a piece before `begin` or after `end`) throw std::logic_error, a
// status that is not from 200 to 599 std::invalid_argument.
class Exchange {
  public:
    virtual ~Exchange() = default;

    virtual const Request &request() const = 0;

    // Sends a whole reply: once, and nothing after it. Length, date and connection are the server's
    // to say; a line's end in a header becomes a blank.
    virtual void reply(int status, Headers headers, std::string body) = 0;
    // The same of a request that has changed something: it is sent however much waits, for a client
    // that is told to come again would change it twice.
    virtual void reply_changed(int status, Headers headers, std::string body) = 0;

    // Begins a reply in pieces; `write` adds to it, `end` ends it. If `end` is never called before
    // the last reference goes, the connection is cut, so that the client sees that it is not whole.
    virtual void begin(int status, Headers headers) = 0;
    virtual void write(std::string piece) = 0;
    virtual void end() = 0;

    // Begins a reply of `length` bytes in pieces that are asked for, so that no more than one lies
    // in memory: whenever the client has taken all that it was given and bytes are missing, `more`
    // is called once, on the server's thread; it must neither wait nor throw, and sees to it that
    // `give_piece` is called soon, on any thread. It lives until the reply has ended or the client
    // has gone, and may hold this object; where the bytes cannot be had, `cut` ends both. Of a
    // reply of no bytes its head is all.
    virtual void begin_asked(int status, Headers headers, uint64_t length,
                             std::function<void()> more) = 0;
    // Cuts a reply in pieces: the client sees that it is not whole.
    virtual void cut() = 0;

    // Returns how many bytes wait for the client to read them. A client that is sent another piece
    // with more than Limits::backlog_bytes waiting counts as gone; a whole reply may have any size,
    // as far as Limits::replies_bytes suffice for all.
    virtual size_t backlog() const = 0;
    // Whether the client has closed the connection, or was given up. One that closes only its own
    // direction before the reply has ended counts as gone: the two look the same.
    virtual bool gone() const = 0;
    // Calls `callback` once, on the server's thread, when the client has gone; at once on the
    // calling thread if it has already. Never for a reply that has ended by then. It must not
    // throw, and not hold this object, which would then live as long as the connection.
    virtual void on_gone(std::function<void()> callback) = 0;
};

// Gives the next piece of a reply of `length` bytes that was begun by `begin_asked`, and behind its
// last byte the end. `at`, which is moved, says how many were given. The client may take the piece,
// and the one behind it be asked for on another thread, before this returns.
void give_piece(Exchange &exchange, uint64_t &at, uint64_t length, std::string piece);

// Of a body these bytes are always taken: however many large ones come, small requests go on.
inline constexpr size_t kSmallBody = size_t{64} << 10;

struct Limits {
    size_t body_bytes = size_t{64} << 20;
    // Of the bodies of all requests together, each from its first byte to its reply's end; their
    // first kSmallBody bytes do not count. A request that would exceed it is answered with 503.
    size_t bodies_bytes = size_t{1} << 30;
    size_t header_bytes = size_t{64} << 10;
    // Of all replies together, in memory, that clients have not taken: a whole one of more than
    // kSmallBody that would exceed it becomes a 503, unless its request has changed something, and
    // who lets as much of a stream wait is gone.
    size_t replies_bytes = size_t{1} << 30;
    size_t connections = 4096;              // more are answered with 503 and closed
    size_t backlog_bytes = size_t{4} << 20; // of one reply, that its client does not read
    uint32_t read_seconds = 30;             // for a request to come whole, once it has begun
    uint32_t write_seconds = 60;            // in which the client takes its share: see Pace
    uint32_t idle_seconds = 600;            // of a connection between two requests
};

// So many connections over the limit are told so; those beyond are closed without a word.
inline constexpr size_t kTurnedAway = 64;

struct Counts {
    uint64_t connections = 0; // open now
    uint64_t requests = 0;    // read whole, since the start
    uint64_t refused = 0;     // over a limit, malformed, or too many connections
    uint64_t gone = 0;        // whose client left before the end of the reply
    uint64_t body_bytes = 0;  // that count for Limits::bodies_bytes now
    uint64_t reply_bytes = 0; // of replies, in memory, that clients have not taken
};

// A reply to a request whose body is not read; the connection is closed after it.
struct Denial {
    int status = 0;
    std::string reason; // for logs
    Headers headers;
    std::string body;
};

class Server {
  public:
    // Called on the server's thread with each request; must not wait. Without a reply before the
    // last reference goes, the client gets 500. What it throws is a 500 as well.
    using Handler = std::function<void(const std::shared_ptr<Exchange> &)>;
    // Called on the server's thread after each reply, those included with which the server itself
    // refuses a request. Must neither wait nor throw.
    using Watcher = std::function<void(const Served &)>;
    // Called on the server's thread with the head of a request whose body is still to come: what it
    // returns ends the request. One that comes at once goes to the handler without it. Must neither
    // wait nor throw.
    using Gate = std::function<std::optional<Denial>(const Request &)>;

    // Listens: `listen` is HOST:PORT or [HOST]:PORT; port 0 takes a free one. Throws Failure if it
    // cannot, with the address and the reason.
    Server(const std::string &listen, const Limits &limits, Handler handler, Watcher watcher = {},
           Gate gate = {});
    ~Server();
    Server(const Server &) = delete;
    Server &operator=(const Server &) = delete;

    uint16_t port() const;
    std::string address() const; // "127.0.0.1:8080", "[::1]:8080"

    // Serves on the calling thread until `stop`; once. Throws what a posted call has thrown.
    void run();
    // Closes the listening socket and idle connections; requests that run or have begun to come go
    // on, and each connection closes after its reply. Any thread; counts().connections is 0 when
    // all are done.
    void stop_accepting();
    // Returns from `run` at once; open connections are cut. Any thread, and from signal handlers.
    void stop();
    // Calls `callback` on the server's thread soon, unless `run` returns before: any thread.
    void post(std::function<void()> callback);
    Counts counts() const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace serve::http
