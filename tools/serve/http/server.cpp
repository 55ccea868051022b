// See server.h. The thread that runs a server waits in libevent's loop for its sockets and for what
// other threads post.
#include "tools/serve/http/server.h"

#include <cerrno>
#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/cli/handles.h"
#include "tools/serve/http/connection.h"

namespace serve::http {
namespace {

constexpr size_t kAcceptedAtOnce = 64; // before others have their turn
constexpr timeval kWithoutDescriptors{0, 200000};

struct Socket {
    explicit Socket(int number) : descriptor(number) {}
    ~Socket() { close(); }
    Socket(const Socket &) = delete;
    Socket &operator=(const Socket &) = delete;
    void close() {
        if (descriptor >= 0) {
            ::close(std::exchange(descriptor, -1));
        }
    }
    int descriptor;
};

using Addresses = std::unique_ptr<addrinfo, Freed<freeaddrinfo>>;

// Returns "127.0.0.1:8080" or "[::1]:8080".
std::string text_of_address(const sockaddr_storage &address, socklen_t size) {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo(reinterpret_cast<const sockaddr *>(&address), size, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "?";
    }
    const bool brackets = address.ss_family == AF_INET6;
    return (brackets ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

// Returns what HOST:PORT stands for. Throws Failure.
Addresses resolved(const std::string &listen) {
    const size_t colon = listen.rfind(':');
    std::string host = listen.substr(0, colon);
    const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) {
        host = host.substr(1, host.size() - 2);
    }
    const bool digits = !port.empty() && port.size() <= 5 &&
                        port.find_first_not_of("0123456789") == std::string::npos;
    if (host.empty() || !digits || std::stoul(port) > 65535 ||
        (!brackets && host.find(':') != std::string::npos)) {
        throw command::Failure("cannot listen on '" + listen +
                               "': it is not HOST:PORT or [HOST]:PORT with a port to 65535");
    }
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = brackets ? AF_INET6 : AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    if (code != 0) {
        throw command::Failure("cannot listen on " + listen + ": " + gai_strerror(code));
    }
    return Addresses(found);
}

// Returns a socket that listens. Throws Failure.
int listening(const std::string &listen) {
    const Addresses addresses = resolved(listen);
    int error = 0;
    for (const addrinfo *at = addresses.get(); at != nullptr; at = at->ai_next) {
        Socket made(socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const int one = 1;
        if (made.descriptor >= 0 &&
            setsockopt(made.descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
            bind(made.descriptor, at->ai_addr, at->ai_addrlen) == 0 &&
            ::listen(made.descriptor, 1024) == 0) {
            return std::exchange(made.descriptor, -1);
        }
        error = errno;
    }
    throw command::Failure("cannot listen on " + listen + ": " + std::strerror(error));
}

// Sets what every connection has: small pieces leave at once, and a client whose machine is gone is
// noticed within two minutes. That an option is not there is no reason not to serve.
void set_options(int socket) {
    const int one = 1, idle = 60, between = 15, probes = 4;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

} // namespace

struct Server::State {
    State(const std::string &listen, const Limits &limits, Handler handler, Watcher watcher,
          Gate gate);
    ~State();

    void accept_some();
    void accepted(int socket, const sockaddr_storage &address, socklen_t size);
    void read_mail();
    void stop_accepting();
    void cut_all();

    Loop loop; // before the events, which its base outlives
    Socket listener;
    uint16_t port = 0;
    std::string address;
    Event acceptable, mail, retry;
    std::atomic<bool> stopped{false};
    static_assert(std::atomic<bool>::is_always_lock_free); // for signal handlers
};

Server::State::State(const std::string &listen, const Limits &limits, Handler handler,
                     Watcher watcher, Gate gate)
    : listener(listening(listen)) {
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (getsockname(listener.descriptor, reinterpret_cast<sockaddr *>(&own), &size) != 0) {
        throw command::Failure("cannot listen on " + listen + ": " + std::strerror(errno));
    }
    address = text_of_address(own, size);
    port = static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
    loop.base = made<Base>(event_base_new());
    loop.limits = limits;
    loop.handler = std::move(handler);
    loop.watcher = std::move(watcher);
    loop.gate = std::move(gate);
    loop.mailbox = std::make_shared<Mailbox>();
    loop.buffer.resize(size_t{64} << 10);
    const auto on_accept = [](int, short, void *self) {
        auto *state = static_cast<State *>(self);
        state->loop.run([&] { state->accept_some(); });
    };
    const auto on_mail = [](int, short, void *self) {
        auto *state = static_cast<State *>(self);
        state->loop.run([&] { state->read_mail(); });
    };
    const auto on_retry = [](int, short, void *self) {
        event_add(static_cast<State *>(self)->acceptable.get(), nullptr);
    };
    event_base *base = loop.base.get();
    acceptable =
        made<Event>(event_new(base, listener.descriptor, EV_READ | EV_PERSIST, on_accept, this));
    mail = made<Event>(
        event_new(base, loop.mailbox->descriptor(), EV_READ | EV_PERSIST, on_mail, this));
    retry = made<Event>(evtimer_new(base, on_retry, this));
    if (event_add(acceptable.get(), nullptr) != 0 || event_add(mail.get(), nullptr) != 0) {
        throw std::bad_alloc();
    }
}

Server::State::~State() {
    cut_all();
    loop.mailbox->close();
}

void Server::State::accept_some() {
    for (size_t i = 0; i < kAcceptedAtOnce; ++i) {
        sockaddr_storage peer{};
        socklen_t size = sizeof peer;
        const int socket = accept4(listener.descriptor, reinterpret_cast<sockaddr *>(&peer), &size,
                                   SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket >= 0) {
            accepted(socket, peer, size);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            event_del(acceptable.get()); // or it would be ready again at once
            evtimer_add(retry.get(), &kWithoutDescriptors);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

void Server::State::accepted(int socket, const sockaddr_storage &peer, socklen_t size) {
    const size_t open = loop.connections.size();
    if (open >= loop.limits.connections + kTurnedAway) {
        ::close(socket);
        ++loop.refused;
        return;
    }
    set_options(socket);
    auto connection = std::make_unique<Connection>(loop, socket, text_of_address(peer, size));
    Connection *key = connection.get();
    loop.connections.emplace(key, std::move(connection));
    if (open >= loop.limits.connections) {
        key->refuse(503, "too many connections");
    }
}

void Server::State::read_mail() {
    const Mailbox::Mail mail_now = loop.mailbox->take();
    if (stopped) { // looked at after `take`, which may have taken the wake of a stop
        event_base_loopbreak(loop.base.get());
        return;
    }
    for (const std::shared_ptr<Reply> &reply : mail_now.replies) {
        if (Connection *connection = reply->connection; connection != nullptr) {
            try {
                connection->pump();
            } catch (const std::bad_alloc &) { // others may have enough
                connection->cut();
            }
        }
    }
    for (const std::function<void()> &call : mail_now.calls) {
        call();
    }
}

void Server::State::stop_accepting() {
    if (loop.stopping) {
        return;
    }
    loop.stopping = true;
    acceptable = nullptr;
    retry = nullptr;
    listener.close();
    std::vector<Connection *> all; // a connection that closes leaves the map
    for (const auto &[key, connection] : loop.connections) {
        all.push_back(key);
    }
    for (Connection *connection : all) {
        connection->finish();
    }
}

void Server::State::cut_all() {
    stop_accepting();
    while (!loop.connections.empty()) {
        loop.connections.begin()->first->cut();
    }
    loop.closed.clear();
}

Server::Server(const std::string &listen, const Limits &limits, Handler handler, Watcher watcher,
               Gate gate)
    : state_(std::make_shared<State>(listen, limits, std::move(handler), std::move(watcher),
                                     std::move(gate))) {}

Server::~Server() = default;

uint16_t Server::port() const {
    return state_->port;
}

std::string Server::address() const {
    return state_->address;
}

void Server::run() {
    State &state = *state_;
    if (!state.stopped) {
        event_base_loop(state.loop.base.get(), 0);
    }
    state.loop.run([&] { state.cut_all(); });
    state.loop.mailbox->close();
    if (state.loop.failure) {
        std::rethrow_exception(std::exchange(state.loop.failure, nullptr));
    }
}

void Server::stop_accepting() {
    State *state = state_.get(); // whose mail nobody reads once it is gone
    state->loop.mailbox->post([state] { state->stop_accepting(); });
}

void Server::stop() {
    state_->stopped = true;
    state_->loop.mailbox->wake();
}

void Server::post(std::function<void()> callback) {
    state_->loop.mailbox->post(std::move(callback));
}

Counts Server::counts() const {
    const Loop &loop = state_->loop;
    return {loop.open, loop.requests, loop.refused, loop.gone, *loop.body_bytes, *loop.reply_bytes};
}

} // namespace serve::http
