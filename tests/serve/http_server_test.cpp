// The server over raw sockets: what clients see of requests, replies and refusals.
#include <doctest/doctest.h>

#include <string>

#include "tests/serve/wire.h"
#include "tools/cli/handles.h"

namespace {

using namespace wire;

// Returns the status of a reply's head, and 0 of none.
int status_in(const std::string &head) {
    return head.rfind("HTTP/1.1 ", 0) == 0 ? std::stoi(head.substr(9, 3)) : 0;
}

} // namespace

TEST_CASE("Server: a connection is kept, and requests sent at once are answered in order") {
    Running running(echo);
    Client client = running.client();
    client.send(get("/a?b"));
    const auto [head, body] = client.reply();
    CHECK(status_in(head) == 200);
    CHECK(has(head, "Content-Type: text/plain\r\n"));
    CHECK(has(head, "\r\nDate: "));
    CHECK(!has(head, "Connection:"));
    CHECK(body == "GET /a?b ");

    std::string all;
    for (int i = 0; i < 500; ++i) {
        all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n";
        all += i % 2 == 0 ? "Content-Length: 3\r\n\r\nabc"
                          : "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
    }
    CHECK(client.send(all));
    for (int i = 0; i < 500; ++i) {
        REQUIRE(client.reply().second == "POST /" + std::to_string(i) + "? abc");
    }
    CHECK(running.server.counts().requests == 501);
    CHECK(running.server.counts().connections == 1);
}

TEST_CASE("Server: a connection is closed where the client or its version says so") {
    Running running(echo);
    for (const std::string &request :
         {get("/", "Connection: close\r\n"), std::string("GET / HTTP/1.0\r\n\r\n")}) {
        Client client = running.client();
        client.send(request);
        const auto [head, body] = client.reply();
        CHECK(body == "GET /? ");
        CHECK(has(head, "Connection: close\r\n"));
        CHECK(client.rest().empty());
        CHECK(!client.was_reset());
    }
    Client client = running.client();
    for (int i = 0; i < 3; ++i) {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        CHECK(has(client.reply().first, "Connection: keep-alive\r\n"));
    }
}

TEST_CASE("Server: HEAD has the head of GET, OPTIONS * is answered, others reach the handler") {
    Running running(echo);
    Client client = running.client();
    client.send("HEAD /abc HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(has(client.until("\r\n\r\n"), "Content-Length: 11\r\n"));
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(status_in(client.until("\r\n\r\n")) == 204);
    client.send("OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(client.reply().second == "OPTIONS /x? ");
    client.send("BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(client.reply().second == "BREW /? ");
}

TEST_CASE("Server: a reply in pieces, by the client's version and method") {
    Running running([](const std::shared_ptr<Exchange> &exchange) {
        exchange->begin(200, {{"Content-Type", "text/event-stream"}});
        exchange->write("abc");
        exchange->write("");
        exchange->write("0123456789abcdef");
        exchange->end();
    });
    Client client = running.client();
    client.send(get("/"));
    CHECK(has(client.until("\r\n\r\n"), "Transfer-Encoding: chunked\r\n"));
    CHECK(client.until("0\r\n\r\n") == "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + get("/", "Connection: close\r\n"));
    client.until("\r\n\r\n");
    CHECK(status_in(client.until("\r\n\r\n")) == 200); // no body between
    CHECK(client.rest() == "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");

    Client old = running.client();
    old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const std::string head = old.until("\r\n\r\n");
    CHECK(has(head, "Connection: close\r\n"));
    CHECK(!has(head, "Transfer-Encoding"));
    CHECK(old.rest() == "abc0123456789abcdef");
    CHECK(!old.was_reset());
}

TEST_CASE("Server: a reply that is not whole is seen not to be") {
    Running running([](const std::shared_ptr<Exchange> &exchange) {
        exchange->begin(200, {});
        exchange->write("abc"); // and no end
    });
    Client client = running.client();
    client.send(get("/"));
    client.until("\r\n\r\n");
    CHECK(client.rest() == "3\r\nabc\r\n");
    Client old = running.client();
    old.send("GET / HTTP/1.0\r\n\r\n");
    old.rest();
    CHECK(old.was_reset());
    REQUIRE(wait_until([&] { return running.served().size() == 2; }));
    CHECK(!running.served()[0].whole);
}

TEST_CASE("Server: a handler that throws or answers nothing is a 500, and the server goes on") {
    Running running([](const std::shared_ptr<Exchange> &exchange) {
        if (exchange->request().path == "/throw") {
            throw std::runtime_error("no such luck");
        }
        if (exchange->request().path == "/late") {
            exchange->begin(200, {});
            throw 1;
        }
    });
    Client client = running.client();
    client.send(get("/throw"));
    CHECK(status_in(client.reply().first) == 500);
    client.send(get("/nothing"));
    CHECK(status_in(client.reply().first) == 500);
    client.send(get("/late"));
    client.until("\r\n\r\n");
    CHECK(client.rest().empty());
    REQUIRE(wait_until([&] { return running.served().size() == 3; }));
    CHECK(running.served()[0].error == "no such luck");
    CHECK(running.served()[0].status == 500);
}

TEST_CASE("Server: replies out of order are errors of the program") {
    Running running([](const std::shared_ptr<Exchange> &exchange) {
        CHECK_THROWS_AS(exchange->write("a"), std::logic_error);
        CHECK_THROWS_AS(exchange->end(), std::logic_error);
        CHECK_THROWS_AS(exchange->reply(100, {}, ""), std::invalid_argument);
        exchange->reply(200, {{"A", "b\r\nC: d"}, {"content-length", "7"}}, "x");
        CHECK_THROWS_AS(exchange->reply(200, {}, "y"), std::logic_error);
        CHECK_THROWS_AS(exchange->begin(200, {}), std::logic_error);
        CHECK_THROWS_AS(exchange->write("a"), std::logic_error);
    });
    Client client = running.client();
    client.send(get("/", "Connection: close\r\n"));
    const std::string all = client.rest();
    CHECK(has(all, "A: b  C: d\r\n")); // no header of its own
    CHECK(has(all, "Content-Length: 1\r\n"));
    CHECK(!has(all, "Length: 7"));
    CHECK(all.substr(all.size() - 5) == "\r\n\r\nx");
}

TEST_CASE("Server: what is refused gets a status and an end, also in the middle of a body") {
    Limits limits;
    limits.body_bytes = 1000;
    Running running(echo, limits);
    const auto refusal = [&](const std::string &bytes) {
        Client client = running.client();
        client.send(bytes);
        const std::string all = client.rest();
        CHECK(!client.was_reset());
        CHECK(has(all, "Connection: close\r\n"));
        CHECK(has(all, "\"message\""));
        return status_in(all);
    };
    CHECK(refusal("GET / HTTP/1.1\nHost: a\n\n") == 400);
    CHECK(refusal("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"
                  "\r\n\r\n0\r\n\r\n" +
                  get("/admin")) == 400);
    CHECK(refusal("GET /" + std::string(70000, 'x')) == 414);
    // A client that sends all of its body before it reads still reads why.
    CHECK(refusal("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" +
                  std::string(3000000, 'x')) == 413);
    CHECK(refusal("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" +
                  std::string(1000, 'x') + "\r\n1\r\n") == 413);
    CHECK(running.server.counts().refused == 5);
    CHECK(running.server.counts().requests == 0);
    const auto served = running.served();
    REQUIRE(served.size() == 5);
    CHECK(served[3].status == 413);
    CHECK(served[3].path == "/");
    CHECK(served[3].error == "the body is longer than 1000 bytes");
}

TEST_CASE("Server: a client that asks first is told to go on, or why not") {
    Limits limits;
    limits.body_bytes = 1000;
    Running running(echo, limits);
    Client client = running.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    CHECK(client.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    CHECK(client.reply().second == "POST /? abc");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n"
                "Expect: 100-continue\r\n\r\n");
    CHECK(status_in(client.rest()) == 413);
}

TEST_CASE("Server: a gate refuses by the head, before a body comes") {
    const auto gate = [](const Request &head) -> std::optional<Denial> {
        if (head.header("x-api-key") == "k") {
            return std::nullopt;
        }
        return Denial{401, "no key", {{"X-Why", "no key"}}, "nobody"};
    };
    Running running(echo, {}, gate);
    for (const char *more : {"Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n",
                             "Expect: 100-continue\r\nContent-Length: 2\r\n"}) {
        Client stranger = running.client();
        stranger.send("POST / HTTP/1.1\r\nHost: a\r\n" + std::string(more) + "\r\n");
        const auto [head, body] = stranger.reply();
        CHECK(status_in(head) == 401);
        CHECK(has(head, "X-Why: no key\r\n"));
        CHECK(has(head, "Connection: close\r\n"));
        CHECK(body == "nobody");
    }
    CHECK(running.server.counts().requests == 0);
    REQUIRE(wait_until([&] { return running.served().size() == 3; }));
    CHECK(running.served()[0].error == "no key");
    Client known = running.client();
    for (int i = 0; i < 2; ++i) { // each request of a connection is looked at
        known.send("POST / HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nContent-Length: 4\r\n\r\nab");
        known.send("cd");
        CHECK(known.reply().second == "POST /? abcd");
    }
    known.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
    CHECK(status_in(known.reply().first) == 401);
}

TEST_CASE("Server: the bodies of all requests together have a limit, and small ones go on") {
    constexpr size_t kSent = 150000, kWhole = 200000;
    Limits limits;
    limits.bodies_bytes = kWhole - kSmallBody;
    Waiting waiting;
    Running running(waiting.handler(), limits);
    const auto counted = [&] { return running.server.counts().body_bytes; };
    const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
    const std::string sized = "Content-Length: " + std::to_string(kWhole) + "\r\n\r\n";
    Client first = running.client();
    first.send(head + sized + std::string(kSent, 'a'));
    REQUIRE(wait_until([&] { return counted() == kSent - kSmallBody; }));
    const auto refused = [&](const std::string &body) {
        Client other = running.client();
        other.send(head + body);
        const auto [reply, text] = other.reply();
        return status_in(reply) == 503 && has(reply, "Retry-After: 1\r\n") && has(text, "bodies");
    };
    const std::string chunk = "\r\n\r\n24000\r\n" + std::string(0x24000, 'b');
    CHECK(refused(sized + std::string(kSent, 'b')));
    CHECK(refused("Transfer-Encoding: chunked" + chunk));
    CHECK(counted() == kSent - kSmallBody); // what was refused is not held
    Client small = running.client();
    small.send(head + "Content-Length: 60000\r\n\r\n" + std::string(60000, 'c'));
    echo(waiting.next());
    CHECK(small.reply().second.size() == 60000 + std::string("POST /? ").size());

    first.send(std::string(kWhole - kSent, 'a'));
    std::shared_ptr<Exchange> held = waiting.next();
    CHECK(counted() == limits.bodies_bytes);
    CHECK(refused(sized + std::string(kSent, 'b'))); // also while it is worked on
    echo(held);
    CHECK(first.reply().second.size() > kWhole);
    held = nullptr;
    CHECK(counted() == 0);
    first.send(head + sized + std::string(kWhole, 'd'));
    echo(waiting.next());
    CHECK(first.reply().second.size() > kWhole);
    Client leaving = running.client();
    leaving.send(head + sized + std::string(kSent, 'e'));
    REQUIRE(wait_until([&] { return counted() == kSent - kSmallBody; }));
    leaving.reset();
    CHECK(wait_until([&] { return counted() == 0; }));
}

TEST_CASE("Server: addresses that cannot be listened on are refused by name") {
    const auto refusal = [](const std::string &address) {
        try {
            Server server(address, {}, echo);
        } catch (const command::Failure &failure) {
            return std::string(failure.what());
        }
        return std::string();
    };
    for (const char *address : {"", "8080", ":8080", "localhost", "localhost:", "localhost:x",
                                "localhost:65536", "::1:80", "[::1]", "127.0.0.1:-1", "[]:1"}) {
        CAPTURE(address);
        CHECK(has(refusal(address), "cannot listen on"));
    }
    Server one("127.0.0.1:0", {}, echo);
    CHECK(one.address() == "127.0.0.1:" + std::to_string(one.port()));
    CHECK(refusal(one.address()) ==
          "cannot listen on " + one.address() + ": Address already in use");
    CHECK(has(refusal("no.such.host.invalid:1"), "cannot listen on no.such.host.invalid:1: "));
}
