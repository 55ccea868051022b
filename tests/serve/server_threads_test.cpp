// The server and threads beside it: limits of time and number, many clients, and the server's end
// in the middle of replies.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <set>

#include "tests/sanitizers.h"
#include "tests/serve/wire.h"

namespace {

using namespace wire;

#if defined(STASIS_ADDRESS_SANITIZER) || defined(STASIS_THREAD_SANITIZER)
constexpr bool kSanitized = true; // memory is another then
#else
constexpr bool kSanitized = false;
#endif

} // namespace

TEST_CASE("Server: time limits of slow clients, each with its end") {
    Limits limits;
    limits.read_seconds = 1;
    limits.write_seconds = 1;
    Waiting waiting;
    Running running(waiting.handler(), limits);
    Client head = running.client(), body = running.client(), chunks = running.client(),
           drip = running.client(), deaf = running.client(4096), idle = running.client();
    head.send("GET / HTTP/1.1\r\nHo");
    body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123");
    chunks.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na");
    deaf.send(get("/"));
    const auto exchange = waiting.next();
    exchange->reply(200, {}, std::string(64 << 20, 'x'));
    CHECK(has(head.rest(), "HTTP/1.1 408 "));
    CHECK(has(body.rest(), "HTTP/1.1 408 "));
    CHECK(has(chunks.rest(), "HTTP/1.1 408 "));
    // A byte now and then is no progress of a request.
    REQUIRE(drip.send("GET / HTTP/1.1\r\nA: "));
    REQUIRE(wait_until([&] {
        drip.send("x");
        return running.server.counts().refused == 4;
    }));
    CHECK(has(drip.until("\r\n\r\n"), "HTTP/1.1 408 "));
    REQUIRE(wait_until([&] { return exchange->gone(); }));
    CHECK(running.server.counts().gone == 1);
    idle.send(get("/still")); // whose time is another
    waiting.next()->reply(200, {}, "x");
    CHECK(idle.reply().second == "x");
}

TEST_CASE("Server: idle connections are closed, before and between requests, without a word") {
    Limits limits;
    limits.idle_seconds = 1;
    Waiting waiting;
    Running running(waiting.handler(), limits);
    Client silent = running.client(), served = running.client(), busy = running.client();
    busy.send(get("/busy"));
    const auto exchange = waiting.next();
    served.send(get("/"));
    waiting.next()->reply(200, {}, "x");
    CHECK(served.reply().second == "x");
    CHECK(served.rest().empty());
    CHECK(silent.rest().empty());
    exchange->reply(200, {}, "y"); // computing has no limit here
    CHECK(busy.reply().second == "y");
}

TEST_CASE("Server: connections beyond the limit are turned away, and room is used again") {
    Limits limits;
    limits.connections = 3;
    Running running(echo, limits);
    std::vector<Client> clients;
    for (int i = 0; i < 3; ++i) {
        clients.push_back(running.client());
        clients.back().send(get("/"));
        CHECK(clients.back().reply().second == "GET /? ");
    }
    Client over = running.client();
    over.send(get("/"));
    CHECK(has(over.rest(), "HTTP/1.1 503 "));
    over.close();
    clients.pop_back();
    REQUIRE(wait_until([&] { return running.server.counts().connections == 2; }));
    Client after = running.client();
    after.send(get("/"));
    CHECK(after.reply().second == "GET /? ");
    CHECK(running.server.counts().refused == 1);
}

TEST_CASE("Server: a thousand idle connections take a few MiB, and others are served meanwhile") {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    const size_t count = std::min<size_t>(1000, (files.rlim_cur - 100) / 2);
    REQUIRE(count >= 100);
    Running running(echo);
    const auto resident = [] { // bytes of this process
        FILE *file = std::fopen("/proc/self/statm", "r");
        size_t all = 0, pages = 0;
        CHECK(std::fscanf(file, "%zu %zu", &all, &pages) == 2);
        std::fclose(file);
        return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    };
    const size_t before = resident();
    std::vector<Client> clients;
    for (size_t i = 0; i < count; ++i) {
        clients.push_back(running.client());
        clients.back().send(get("/"));
        REQUIRE(clients.back().reply().second == "GET /? ");
    }
    CHECK(running.server.counts().connections == count);
    if (!kSanitized) {
        CHECK(resident() - before < size_t{8} << 20);
    }
    for (Client &client : clients) {
        client.send(get("/again"));
        REQUIRE(client.reply().second == "GET /again? ");
    }
    clients.clear();
    CHECK(wait_until([&] { return running.server.counts().connections == 0; }));
}

TEST_CASE("Server: two hundred streams at once, written by four threads") {
    constexpr int kStreams = 200, kThreads = 4, kPieces = 50;
    Waiting waiting;
    Running running(waiting.handler());
    std::vector<Client> clients;
    std::vector<std::shared_ptr<Exchange>> exchanges;
    for (int i = 0; i < kStreams; ++i) {
        clients.push_back(running.client());
        clients.back().send(get("/" + std::to_string(i)));
        exchanges.push_back(waiting.next());
    }
    std::vector<std::thread> writers;
    for (int t = 0; t < kThreads; ++t) {
        writers.emplace_back([&, t] { // each writes to every stream, in turn with the others
            for (int piece = 0; piece < kPieces; ++piece) {
                for (int i = t; i < kStreams; i += kThreads) {
                    if (piece == 0) {
                        exchanges[i]->begin(200, {});
                    }
                    exchanges[i]->write(exchanges[i]->request().path + ":" + std::to_string(piece) +
                                        ";");
                    if (piece == kPieces - 1) {
                        exchanges[i]->end();
                        exchanges[i] = nullptr;
                    }
                }
            }
        });
    }
    for (int i = 0; i < kStreams; ++i) {
        std::string expected;
        for (int piece = 0; piece < kPieces; ++piece) {
            const std::string text = "/" + std::to_string(i) + ":" + std::to_string(piece) + ";";
            expected += chunk_of(text);
        }
        clients[i].until("\r\n\r\n");
        REQUIRE(clients[i].until("\r\n0\r\n\r\n") == expected + "0\r\n\r\n");
    }
    for (std::thread &writer : writers) {
        writer.join();
    }
    CHECK(running.server.counts().gone == 0);
}

TEST_CASE("Server: clients that leave while threads write to them") {
    constexpr int kStreams = 50;
    Waiting waiting;
    Running running(waiting.handler());
    std::vector<Client> clients;
    std::vector<std::thread> writers;
    std::atomic<int> told{0};
    for (int i = 0; i < kStreams; ++i) {
        clients.push_back(running.client());
        clients.back().send(get("/"));
        writers.emplace_back([&told, exchange = waiting.next()] {
            exchange->on_gone([&told] { ++told; });
            exchange->begin(200, {});
            while (!exchange->gone()) {
                exchange->write("x");
                std::this_thread::yield();
            }
        });
    }
    for (int i = 0; i < kStreams; ++i) {
        i % 2 == 0 ? clients[i].close() : clients[i].reset();
    }
    for (std::thread &writer : writers) {
        writer.join();
    }
    CHECK(told == kStreams);
    CHECK(wait_until([&] { return running.server.counts().gone == kStreams; }));
}

TEST_CASE("Server: stop_accepting lets replies end, and closes what is idle") {
    Waiting waiting;
    Running running(waiting.handler());
    Client idle = running.client(), streamed = running.client(), later = running.client(),
           sending = running.client();
    sending.send("POST /sent HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    streamed.send(get("/streamed"));
    const auto first = waiting.next();
    first->begin(200, {});
    first->write("abc");
    streamed.until("abc\r\n");
    later.send(get("/later") + get("/too late"));
    const auto second = waiting.next();
    running.server.stop_accepting();
    running.server.stop_accepting(); // nothing more
    CHECK(idle.rest().empty());
    CHECK_THROWS(running.client());
    first->write("def");
    first->end();
    CHECK(streamed.rest() == "3\r\ndef\r\n0\r\n\r\n");
    second->reply(200, {}, "x");
    const auto [head, body] = later.reply();
    CHECK(has(head, "Connection: close\r\n"));
    CHECK(body == "x");
    CHECK(later.rest().empty()); // the next one is not begun
    sending.send("cd");
    const auto third = waiting.next();
    CHECK(third->request().body == "abcd");
    third->reply(200, {}, "y");
    CHECK(has(sending.reply().first, "Connection: close\r\n"));
    for (Client *client : {&idle, &streamed, &later, &sending}) {
        client->close();
    }
    CHECK(wait_until([&] { return running.server.counts().connections == 0; }));
}

TEST_CASE("Server: stop cuts replies, tells who writes them, and returns") {
    Waiting waiting;
    Running running(waiting.handler());
    Client client = running.client(), half = running.client();
    half.send("GET / HT");
    client.send(get("/"));
    const auto exchange = waiting.next();
    exchange->begin(200, {});
    exchange->write("abc");
    client.until("abc\r\n");
    bool told = false;
    exchange->on_gone([&] { told = true; });
    running.stop();
    CHECK(told);
    CHECK(exchange->gone());
    client.rest();
    half.rest();
    exchange->write("x");
    exchange->end();
    CHECK(running.server.counts().connections == 0);
}

TEST_CASE("Server: stop before run, and from a signal handler") {
    Server early("127.0.0.1:0", {}, echo);
    early.stop();
    early.run(); // returns

    static Server *stopped = nullptr;
    Server server("127.0.0.1:0", {}, echo);
    stopped = &server;
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) { stopped->stop(); };
    sigaction(SIGUSR1, &action, &before);
    server.post([] { std::raise(SIGUSR1); });
    server.run();
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("Server: calls that threads post are made, each once and in order of each thread") {
    constexpr int kThreads = 4, kCalls = 1000;
    Running running(echo);
    std::vector<int> heard; // on the server's thread alone
    std::atomic<int> count{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kCalls; ++i) {
                running.server.post([&, id = t * kCalls + i] {
                    heard.push_back(id);
                    ++count;
                });
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    REQUIRE(wait_until([&] { return count == kThreads * kCalls; }));
    running.stop();
    CHECK(std::set<int>(heard.begin(), heard.end()).size() == size_t{kThreads} * kCalls);
    std::vector<int> last(kThreads, -1);
    for (const int id : heard) {
        CHECK(last[id / kCalls] < id);
        last[id / kCalls] = id;
    }
}

TEST_CASE("Server: what a posted call throws comes out of run") {
    Server server("127.0.0.1:0", {}, echo);
    server.post([] { throw std::runtime_error("out of a call"); });
    CHECK_THROWS_WITH(server.run(), "out of a call");
}
