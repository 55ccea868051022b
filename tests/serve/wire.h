// A server on a thread of its own, and clients that speak to it over raw sockets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tools/serve/http/server.h"

namespace wire {

using namespace serve::http;

// Only a broken program waits that long.
inline constexpr int kPatienceMilliseconds = 60000;

// Waits until `done` returns true, which depends on another thread. Returns whether it did.
template <typename Done> bool wait_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

class Client {
  public:
    // `receive_bytes`: the size of the socket's buffer for what it has not read, or 0.
    explicit Client(uint16_t port, int receive_bytes = 0)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (receive_bytes > 0) {
            setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
        }
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (socket_ < 0 ||
            connect(socket_, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
            throw std::runtime_error("a client cannot connect");
        }
    }
    ~Client() { close(); }
    Client(Client &&other) noexcept
        : socket_(std::exchange(other.socket_, -1)), received_(std::move(other.received_)) {}
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    // Returns whether all of it could be sent.
    bool send(std::string_view bytes) {
        while (!bytes.empty()) {
            pollfd state{socket_, POLLOUT, 0};
            if (poll(&state, 1, kPatienceMilliseconds) <= 0) {
                return false;
            }
            const ssize_t sent =
                ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN) {
                return false;
            }
            bytes.remove_prefix(sent < 0 ? 0 : static_cast<size_t>(sent));
        }
        return true;
    }

    // Reads up to the end of this text, and returns what came since the last call; "" if the
    // connection ends before.
    std::string until(std::string_view text) {
        size_t at;
        while ((at = received_.find(text)) == std::string::npos) {
            if (!more()) {
                return "";
            }
        }
        return take(at + text.size());
    }

    std::string exactly(size_t bytes) {
        while (received_.size() < bytes) {
            if (!more()) {
                return "";
            }
        }
        return take(bytes);
    }

    // Reads until the server closes, and returns the rest.
    std::string rest() {
        while (more()) {
        }
        return take(received_.size());
    }
    // With rest(): whether the connection was reset, instead of closed.
    bool was_reset() const { return reset_; }

    // Reads a reply with a Content-Length: its head, then its body.
    std::pair<std::string, std::string> reply() {
        std::string head = until("\r\n\r\n");
        const size_t at = head.find("Content-Length: ");
        const size_t size = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
        return {head, exactly(size)};
    }

    // The client's side is closed, and it still reads.
    void end_input() { shutdown(socket_, SHUT_WR); }
    void close() {
        if (socket_ >= 0) {
            ::close(std::exchange(socket_, -1));
        }
    }
    // The connection is reset: as of a process that is killed with bytes unread.
    void reset() {
        const linger none{1, 0};
        setsockopt(socket_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
        close();
    }

  private:
    bool more() {
        char buffer[65536];
        pollfd state{socket_, POLLIN, 0};
        const ssize_t count = poll(&state, 1, kPatienceMilliseconds) > 0
                                  ? recv(socket_, buffer, sizeof buffer, 0)
                                  : throw std::runtime_error("a client waits for a minute");
        reset_ = count < 0;
        received_.append(buffer, count > 0 ? static_cast<size_t>(count) : 0);
        return count > 0;
    }
    std::string take(size_t bytes) {
        std::string taken = received_.substr(0, bytes);
        received_.erase(0, bytes);
        return taken;
    }

    int socket_;
    bool reset_ = false;
    std::string received_;
};

// A server that runs until this object goes. What its handler does is the test's.
class Running {
  public:
    explicit Running(Server::Handler handler, Limits limits = {}, Server::Gate gate = {})
        : server(
              "127.0.0.1:0", limits, std::move(handler),
              [this](const Served &one) {
                  const std::lock_guard lock(mutex_);
                  served_.push_back(one);
              },
              std::move(gate)),
          thread_([this] { server.run(); }) {}
    ~Running() { stop(); }
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

    void stop() {
        server.stop();
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    Client client(int receive_bytes = 0) const { return Client(server.port(), receive_bytes); }
    std::vector<Served> served() const {
        const std::lock_guard lock(mutex_);
        return served_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<Served> served_;

  public:
    Server server;

  private:
    std::thread thread_;
};

// Exchanges that a handler leaves for the test's thread to answer.
class Waiting {
  public:
    Server::Handler handler() {
        return [this](const std::shared_ptr<Exchange> &exchange) {
            const std::lock_guard lock(mutex_);
            exchanges_.push_back(exchange);
            came_.notify_all();
        };
    }
    // Returns the next one; throws if none comes.
    std::shared_ptr<Exchange> next() {
        std::unique_lock lock(mutex_);
        if (!came_.wait_for(lock, std::chrono::minutes(1), [&] { return !exchanges_.empty(); })) {
            throw std::runtime_error("no request comes");
        }
        std::shared_ptr<Exchange> first = std::move(exchanges_.front());
        exchanges_.erase(exchanges_.begin());
        return first;
    }
    size_t count() const {
        const std::lock_guard lock(mutex_);
        return exchanges_.size();
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable came_;
    std::vector<std::shared_ptr<Exchange>> exchanges_;
};

// Answers with what it was asked: "METHOD PATH?QUERY BODY".
inline void echo(const std::shared_ptr<Exchange> &exchange) {
    const Request &request = exchange->request();
    exchange->reply(200, {{"Content-Type", "text/plain"}},
                    request.method + " " + request.path + "?" + request.query + " " + request.body);
}

inline std::string get(std::string_view path, std::string_view more = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n" + std::string(more) + "\r\n";
}

// Returns a piece of fewer than 16 bytes as it is sent.
inline std::string chunk_of(const std::string &text) {
    return std::string(1, "0123456789abcdef"[text.size()]) + "\r\n" + text + "\r\n";
}

inline bool has(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

} // namespace wire
