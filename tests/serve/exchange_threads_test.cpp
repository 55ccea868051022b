// Replies that other threads give: clients see them as they come, and who gives them sees clients
// that leave or read too slowly.
#include <doctest/doctest.h>

#include "tests/serve/wire.h"

namespace {

using namespace wire;

} // namespace

TEST_CASE("Exchange: pieces of another thread arrive when they are given") {
    Waiting waiting;
    Running running(waiting.handler());
    Client client = running.client();
    client.send(get("/"));
    const auto exchange = waiting.next();
    CHECK(has(exchange->request().peer, "127.0.0.1:"));
    exchange->begin(200, {});
    client.until("\r\n\r\n");
    for (int i = 0; i < 100; ++i) {
        const std::string piece = "piece " + std::to_string(i);
        exchange->write(piece);
        CHECK(client.until(piece + "\r\n") == chunk_of(piece));
    }
    CHECK(wait_until([&] { return exchange->backlog() == 0; }));
    exchange->end();
    CHECK(client.until("0\r\n\r\n") == "0\r\n\r\n");
    client.send(get("/next"));
    waiting.next()->reply(200, {}, "x");
    CHECK(client.reply().second == "x");
    const auto served = running.served();
    REQUIRE(served.size() >= 1);
    CHECK(served[0].whole);
    CHECK(served[0].status == 200);
    CHECK(served[0].bytes > 1000);
}

TEST_CASE("Exchange: a client that leaves is noticed in each phase of its reply") {
    for (const bool by_reset : {false, true}) {
        for (int phase = 0; phase < 3; ++phase) { // before the head, after it, in the middle
            Waiting waiting;
            Running running(waiting.handler());
            Client client = running.client();
            client.send(get("/"));
            const auto exchange = waiting.next();
            std::atomic<int> told{0};
            exchange->on_gone([&] { ++told; });
            CHECK(!exchange->gone());
            if (phase > 0) {
                exchange->begin(200, {});
                client.until("\r\n\r\n");
            }
            if (phase > 1) {
                exchange->write("abc");
                client.until("abc\r\n");
            }
            by_reset ? client.reset() : client.close();
            REQUIRE(wait_until([&] { return told == 1; })); // while nothing is sent
            CHECK(exchange->gone());
            exchange->on_gone([&] { told += 10; }); // at once
            CHECK(told == 11);
            if (phase == 0) {
                exchange->begin(200, {});
            }
            exchange->write("goes nowhere");
            exchange->end();
            CHECK(exchange->backlog() == 0);
            exchange->on_gone([&] { told += 100; }); // never, of a reply that has ended
            CHECK(told == 11);
            CHECK(running.server.counts().gone == 1);
            REQUIRE(wait_until([&] { return running.server.counts().connections == 0; }));
            REQUIRE(running.served().size() == 1);
            CHECK(!running.served()[0].whole);
        }
    }
}

TEST_CASE("Exchange: a client that leaves behind a heap of requests is noticed") {
    Waiting waiting;
    Running running(waiting.handler());
    Client client = running.client();
    std::string all;
    // More than the server reads ahead, and no more than its system takes: behind that the client's
    // end would not come.
    for (int i = 0; i < 3000; ++i) {
        all += get("/");
    }
    client.send(all);
    const auto exchange = waiting.next();
    std::atomic<bool> told{false};
    exchange->on_gone([&] { told = true; });
    client.close();
    CHECK(wait_until([&] { return told.load(); }));
    CHECK(waiting.count() == 0);
}

TEST_CASE("Exchange: a client that has said all gets a whole reply, if it is there by then") {
    Running running(echo);
    Client client = running.client();
    client.send("GET /x HTTP/1.0\r\n\r\n");
    client.end_input();
    CHECK(has(client.rest(), "GET /x? "));
}

TEST_CASE("Exchange: what a thread gives after the client left, and after the server, is lost") {
    Waiting waiting;
    std::shared_ptr<Exchange> late, never;
    bool told = false;
    {
        Running running(waiting.handler());
        Client client = running.client(), other = running.client();
        client.send(get("/late"));
        late = waiting.next();
        other.send(get("/never"));
        never = waiting.next();
        late->begin(200, {});
        late->on_gone([&] { told = true; });
    }
    CHECK(told);
    CHECK(late->gone());
    late->write("x");
    late->end();
    never = nullptr;
}

TEST_CASE("Exchange: a client that reads nothing while pieces come is given up") {
    Limits limits;
    limits.backlog_bytes = 1 << 20;
    Waiting waiting;
    Running running(waiting.handler(), limits);
    Client client = running.client(4096);
    client.send(get("/"));
    const auto exchange = waiting.next();
    exchange->begin(200, {});
    const std::string piece(100000, 'x');
    std::atomic<bool> told{false};
    exchange->on_gone([&] { told = true; });
    // The kernel's buffers take some megabytes before anything waits here.
    REQUIRE(wait_until([&] {
        exchange->write(piece);
        CHECK(exchange->backlog() <= limits.backlog_bytes + 3 * piece.size());
        return exchange->gone();
    }));
    CHECK(wait_until([&] { return told.load(); }));
    CHECK(wait_until([&] { return running.server.counts().gone == 1; }));
    exchange->end();
    CHECK(running.served().at(0).error == "the client reads too slowly");
}

TEST_CASE("Exchange: a whole reply may be larger than the backlog, and is read at any pace") {
    Limits limits;
    limits.backlog_bytes = 1000;
    const std::string body(20 << 20, 'y');
    Running running(
        [&](const std::shared_ptr<Exchange> &exchange) { exchange->reply(200, {}, body); }, limits);
    Client client = running.client(4096);
    client.send(get("/"));
    CHECK(client.reply().second == body);
}
