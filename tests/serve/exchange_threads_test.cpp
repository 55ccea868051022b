// Replies that other threads give: clients see them as they come, and who gives them sees clients
// that leave or read too slowly.
#include <doctest/doctest.h>

#include "tests/serve/wire.h"
#include "tools/serve/http/connection.h"

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

TEST_CASE("Exchange: what clients do not read has a limit together, and small replies go on") {
    constexpr size_t kSize = size_t{20} << 20;
    Limits limits;
    limits.replies_bytes = kSize + (size_t{10} << 20);
    limits.backlog_bytes = size_t{64} << 20; // it is the other limit that is met
    Waiting waiting;
    Running running(waiting.handler(), limits);
    std::vector<Client> clients;
    std::vector<std::shared_ptr<Exchange>> exchanges;
    const auto ask = [&] {
        clients.push_back(running.client(4096));
        clients.back().send(get("/"));
        exchanges.push_back(waiting.next());
        return exchanges.back();
    };
    const std::string body(kSize, 'x');
    ask()->reply(200, {}, body); // the system's buffers take less than 10 MiB of it
    ask()->reply(200, {}, body);
    CHECK(has(clients.back().until("\r\n\r\n"), "HTTP/1.1 503 "));
    CHECK(has(clients.back().until("bytes"), "have not read exceed 31457280 bytes"));
    ask()->reply(200, {}, std::string(kSmallBody, 'y'));
    CHECK(clients.back().reply().second.size() == kSmallBody);
    ask()->reply_changed(200, {}, body); // what was done is not asked for again
    CHECK(clients.back().reply().second == body);
    CHECK(running.server.counts().reply_bytes <= limits.replies_bytes);
    // Of streams those go on that are read.
    const auto read = ask(), unread = ask();
    Client &reader = clients[clients.size() - 2];
    read->begin(200, {});
    unread->begin(200, {});
    const std::string piece(100000, 'z');
    REQUIRE(wait_until([&] {
        unread->write(piece);
        CHECK(running.server.counts().reply_bytes <= limits.replies_bytes + 2 * piece.size());
        return unread->gone();
    }));
    for (int i = 0; i < 10; ++i) {
        read->write("abc");
        CHECK(has(reader.until("abc\r\n"), "abc"));
    }
    read->end();
    // Where one has read, there is place again.
    CHECK(clients.front().reply().second == body);
    REQUIRE(wait_until([&] { return running.server.counts().reply_bytes == 0; }));
    ask()->reply(200, {}, body);
    CHECK(clients.back().reply().second == body);
}

namespace {

// A reply in pieces that are asked for: the byte at each place says where it is.
struct Asked {
    std::shared_ptr<Exchange> exchange;
    uint64_t length;
    size_t piece;
    uint64_t at = 0; // on the server's thread alone
    std::atomic<uint64_t> given{0};
    std::atomic<size_t> most{0}; // bytes that have waited at once

    static char byte_at(uint64_t place) { return static_cast<char>(place * 2654435761U >> 13U); }
    void next() {
        std::string bytes(std::min<uint64_t>(piece, length - at), '\0');
        uint64_t place = at;
        for (char &byte : bytes) {
            byte = byte_at(place++);
        }
        give_piece(*exchange, at, length, std::move(bytes));
        most = std::max(most.load(), exchange->backlog());
        given = at;
    }
    static std::weak_ptr<Asked> begin(const std::shared_ptr<Exchange> &exchange, uint64_t length,
                                      size_t piece) {
        const auto asked = std::make_shared<Asked>(exchange, length, piece);
        exchange->begin_asked(200, {{"Content-Type", "x"}}, length, [asked] { asked->next(); });
        return asked;
    }
    Asked(std::shared_ptr<Exchange> to, uint64_t bytes, size_t of)
        : exchange(std::move(to)), length(bytes), piece(of) {}
};

} // namespace

TEST_CASE("Exchange: a reply that is asked for piece by piece comes whole, and the next after it") {
    constexpr uint64_t kLength = 3000001;
    for (const size_t piece : {size_t{1000}, size_t{65536}, size_t{5000000}}) {
        Waiting waiting;
        Running running(waiting.handler());
        Client client = running.client();
        client.send(get("/"));
        std::weak_ptr<Asked> asked = Asked::begin(waiting.next(), kLength, piece);
        const auto [head, body] = client.reply();
        CHECK(has(head, "Content-Length: 3000001\r\n"));
        CHECK(!has(head, "Transfer-Encoding"));
        REQUIRE(body.size() == kLength);
        bool right = true;
        for (size_t i = 0; i < body.size(); ++i) {
            right = right && body[i] == Asked::byte_at(i);
        }
        CHECK(right);
        CHECK(wait_until([&] { return asked.expired(); })); // nothing is left behind
        client.send(get("/next"));
        waiting.next()->reply(200, {}, "x");
        CHECK(client.reply().second == "x");
        CHECK(wait_until([&] { return running.server.counts().reply_bytes == 0; }));
    }
}

TEST_CASE("Exchange: of a hundred clients that do not read, a piece of each is in memory at most") {
    constexpr uint64_t kLength = uint64_t{1} << 40; // more than there is of memory
    constexpr size_t kPiece = 50000, kClients = 100;
    Waiting waiting;
    Running running(waiting.handler());
    std::vector<Client> clients;
    std::vector<std::weak_ptr<Asked>> asked;
    for (size_t i = 0; i < kClients; ++i) {
        clients.push_back(running.client(4096));
        clients.back().send(get("/"));
        asked.push_back(Asked::begin(waiting.next(), kLength, kPiece));
    }
    // The system's buffers are full, and the rest of a piece waits here: nobody is asked for more.
    for (const std::weak_ptr<Asked> &one : asked) {
        const std::shared_ptr<Asked> here = one.lock();
        REQUIRE(here);
        REQUIRE(wait_until([&] {
            return here->given > 0 && here->exchange->backlog() > 0 &&
                   here->exchange->backlog() <= kPiece;
        }));
    }
    CHECK(running.server.counts().reply_bytes <= kClients * kPiece);
    CHECK(wait_until([&] { return running.server.counts().reply_bytes >= kClients; }));
    for (const std::weak_ptr<Asked> &one : asked) {
        CHECK(one.lock()->most <= kPiece);
    }
    // One reads: it alone goes on. The others leave: nothing of theirs stays.
    const uint64_t before = asked[0].lock()->given;
    REQUIRE(clients[0].exactly(before + kPiece).size() == before + kPiece);
    CHECK(wait_until([&] { return asked[0].lock()->given > before; }));
    clients.clear();
    for (const std::weak_ptr<Asked> &one : asked) {
        CHECK(wait_until([&] { return one.expired(); }));
    }
    CHECK(wait_until([&] { return running.server.counts().reply_bytes == 0; }));
    CHECK(running.server.counts().gone == kClients);
}

TEST_CASE("Exchange: a transfer to a client that stands still ends, and one that fails is cut") {
    Limits limits;
    limits.write_seconds = 1;
    Waiting waiting;
    Running running(waiting.handler(), limits);
    Client deaf = running.client(4096);
    deaf.send(get("/"));
    std::weak_ptr<Asked> asked = Asked::begin(waiting.next(), uint64_t{1} << 40, 50000);
    CHECK(wait_until([&] { return asked.expired(); }));
    CHECK(running.server.counts().gone == 1);
    CHECK(running.served().at(0).error == "the client takes too little");

    Client client = running.client();
    client.send(get("/"));
    std::shared_ptr<Exchange> exchange = waiting.next();
    exchange->begin_asked(200, {}, 10, [exchange] {
        exchange->write("abc");
        exchange->cut();
    });
    exchange = nullptr;
    CHECK(has(client.rest(), "Content-Length: 10\r\n"));
    REQUIRE(wait_until([&] { return running.served().size() == 2; }));
    CHECK(!running.served()[1].whole);
}

TEST_CASE("Exchange: a client that has said all gets what it asked for piece by piece") {
    Running running(
        [](const std::shared_ptr<Exchange> &exchange) { Asked::begin(exchange, 5000000, 50000); });
    Client client = running.client(4096);
    client.send("GET /x HTTP/1.0\r\n\r\n");
    client.end_input();
    client.until("\r\n\r\n");
    CHECK(client.rest().size() == 5000000);
}

TEST_CASE("Exchange: a transfer ends with the server, with a client that left, and at its length") {
    std::weak_ptr<Asked> late;
    Waiting waiting;
    {
        Running running(waiting.handler());
        Client client = running.client(4096), gone = running.client(), head = running.client();
        client.send(get("/"));
        late = Asked::begin(waiting.next(), uint64_t{1} << 40, 50000);
        CHECK(!late.expired());
        gone.send(get("/"));
        const auto exchange = waiting.next();
        gone.close();
        REQUIRE(wait_until([&] { return exchange->gone(); }));
        CHECK(Asked::begin(exchange, 10, 5).expired());

        head.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        CHECK(Asked::begin(waiting.next(), 10, 5).expired());
        CHECK(has(head.until("\r\n\r\n"), "Content-Length: 10\r\n"));
        head.send(get("/"));
        const auto last = waiting.next();
        last->begin_asked(200, {}, 3, [] {});
        CHECK_THROWS_AS(last->write("abcd"), std::logic_error);
        last->write("ab");
        CHECK_THROWS_AS(last->end(), std::logic_error);
        last->write("c");
        last->end();
        CHECK(head.reply().second == "abc");
    }
    CHECK(late.expired());
}

namespace {

// While a piece is given, its client takes it, and another thread is asked for the next one.
struct Hasty final : Exchange {
    const Request &request() const override { return none; }
    void reply(int, Headers, std::string) override {}
    void reply_changed(int, Headers, std::string) override {}
    void begin(int, Headers) override {}
    void write(std::string piece) override {
        calls += piece;
        if (at < kLength) {
            std::thread([this] { give_piece(*this, at, kLength, "cd"); }).join();
        }
    }
    void end() override { calls += " end"; }
    void begin_asked(int, Headers, uint64_t, std::function<void()>) override {}
    void cut() override {}
    size_t backlog() const override { return 0; }
    bool gone() const override { return false; }
    void on_gone(std::function<void()>) override {}

    static constexpr uint64_t kLength = 4;
    Request none;
    uint64_t at = 0;
    std::string calls;
};

} // namespace

TEST_CASE("Exchange: who gives a piece leaves the end to who gives the last one") {
    Hasty exchange;
    give_piece(exchange, exchange.at, Hasty::kLength, "ab");
    CHECK(exchange.calls == "abcd end");
}

TEST_CASE("Exchange: behind the last piece nothing is asked for, and of no bytes nothing is") {
    Waiting waiting;
    Running running(waiting.handler());
    Client client = running.client();
    const auto settled = [&] { // the server's thread has done what it had to do
        std::atomic<bool> done{false};
        running.server.post([&] { done = true; });
        return wait_until([&] { return done.load(); });
    };
    client.send(get("/"));
    std::shared_ptr<Exchange> exchange = waiting.next();
    std::atomic<int> asked{0};
    exchange->begin_asked(200, {}, 5, [&] { ++asked; });
    client.until("\r\n\r\n");
    REQUIRE(settled());
    CHECK(asked == 1);
    exchange->write("abc");
    CHECK(client.exactly(3) == "abc");
    REQUIRE(settled());
    CHECK(asked == 2);
    exchange->write("de");
    CHECK(client.exactly(2) == "de");
    REQUIRE(settled());
    CHECK(asked == 2);
    exchange->end();
    client.send(get("/"));
    exchange = waiting.next();
    exchange->begin_asked(200, {}, 0, [&] { ++asked; });
    CHECK(has(client.reply().first, "Content-Length: 0\r\n"));
    REQUIRE(settled());
    CHECK(asked == 2);
}

TEST_CASE("Pace: a share of what waits is taken in time, and a byte now and then is none") {
    Pace pace;
    const auto at = [](int seconds) { return Pace::Time(std::chrono::seconds(seconds)); };
    pace.waits(2000, at(1));
    CHECK(pace.since() == at(1));
    for (int i = 2; i < 101; ++i) {
        pace.takes(1, at(i));
        pace.waits(2001 - static_cast<size_t>(i), at(i));
        CHECK(pace.since() == at(1));
    }
    pace.takes(1, at(101)); // the hundredth
    CHECK(pace.since() == at(101));
    pace.takes(99, at(102)); // each share is of the most that has waited, not of what is left
    CHECK(pace.since() == at(101));
    pace.takes(1, at(103));
    CHECK(pace.since() == at(103));
    pace.waits(4000, at(104)); // a stream goes on: what comes is no progress
    CHECK(pace.since() == at(103));
    pace.takes(199, at(105));
    CHECK(pace.since() == at(103));
    pace.takes(1, at(106));
    CHECK(pace.since() == at(106));
    pace.waits(0, at(107)); // all is taken: it begins anew
    pace.waits(10, at(200));
    CHECK(pace.since() == at(200));
    pace.takes(1, at(201));
    CHECK(pace.since() == at(201));
}
