// The reader of requests: what it finds in them, what it refuses, and that neither depends on how
// the bytes are cut.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/serve/http/parser.h"

namespace {

using serve::http::Limits;
using serve::http::Parser;

struct Read {
    std::vector<std::string> requests; // "METHOD PATH?QUERY BODY", with '-' where it closes after
    int status = 0;
};

Read read_all(std::string_view bytes, size_t step, const Limits &limits) {
    Read result;
    Parser parser(limits);
    while (!bytes.empty() && !parser.refused()) {
        bytes.remove_prefix(parser.take(bytes.substr(0, step)));
        if (parser.whole()) {
            const auto &request = parser.request();
            result.requests.push_back(request.method + " " + request.path + "?" + request.query +
                                      " " + request.body + (parser.keep_alive() ? "" : "-"));
            parser = Parser(limits);
        }
    }
    result.status = parser.status();
    if (parser.refused()) {
        CHECK(!parser.reason().empty());
    } else if (result.requests.empty()) {
        result.status = -1; // more must come
    }
    return result;
}

// Reads whole and byte by byte, and compares.
Read read_requests(std::string_view bytes, const Limits &limits = {}) {
    const Read whole = read_all(bytes, bytes.size(), limits);
    for (const size_t step : {1, 2, 7}) {
        const Read cut = read_all(bytes, step, limits);
        CHECK(cut.requests == whole.requests);
        CHECK(cut.status == whole.status);
    }
    return whole;
}

int status_of(std::string_view bytes, const Limits &limits = {}) {
    CAPTURE(bytes);
    return read_requests(bytes, limits).status;
}

std::string post(const std::string &headers, const std::string &body) {
    return "POST /x HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

} // namespace

TEST_CASE("Parser: requests one after another, with each kind of body") {
    const std::string text = "GET /a?b=c%20&d HTTP/1.1\r\nHost: x\r\n\r\n" +
                             post("content-LENGTH:  3 \t\r\n", "abc") +
                             post("Transfer-Encoding: Chunked\r\n",
                                  "3;name=\"v\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nT: v\r\n\r\n") +
                             "\r\n" + // which some clients send after a body
                             "OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"
                             "GET http://x/y?z HTTP/1.1\r\nHost: x\r\nConnection: a, Close\r\n\r\n";
    const Read read = read_requests(text);
    CHECK(read.status == 0);
    CHECK(read.requests == std::vector<std::string>{"GET /a?b=c%20&d ", "POST /x? abc",
                                                    "POST /x? abc0123456789", "OPTIONS *? ",
                                                    "GET /y?z -"});
}

TEST_CASE("Parser: versions and how long a connection lives") {
    const auto request = [](const char *text) { return read_requests(text).requests.at(0); };
    CHECK(request("GET / HTTP/1.0\r\n\r\n") == "GET /? -");
    CHECK(request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n") == "GET /? ");
    CHECK(request("GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n") ==
          "GET /? -");
    CHECK(request("GET / HTTP/1.1\r\nHost: a\r\n\r\n") == "GET /? ");
    CHECK(status_of("GET / HTTP/1.2\r\n") == 505);
    CHECK(status_of("GET / HTTP/2.0\r\n") == 505);
    CHECK(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") == 505);
}

TEST_CASE("Parser: paths are decoded, headers are trimmed and lower case") {
    const Limits limits;
    Parser parser(limits);
    parser.take("GET /a%2Fb%C3%A9%0a HTTP/1.1\r\nHost: a\r\nX-A: \t b c \t\r\nX-a:\r\n\r\n");
    REQUIRE(parser.whole());
    CHECK(parser.request().path == "/a/b\xc3\xa9\n");
    CHECK(parser.request().headers ==
          serve::http::Headers{{"host", "a"}, {"x-a", "b c"}, {"x-a", ""}});
    CHECK(parser.request().header("x-a") == "b c");
    CHECK(parser.request().header("x-b").empty());
}

TEST_CASE("Parser: what two readers could read differently is refused") {
    using namespace std::string_literals;
    // Lengths.
    CHECK(status_of(post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "abc")) == 400);
    CHECK(status_of(post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "abc")) == 400);
    CHECK(status_of(post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")) == 400);
    CHECK(status_of(post("Content-Length: 3\r\nContent-Length: 4\r\n", "abc")) == 400);
    for (const char *length : {"3, 3", "+3", "-3", "0x3", "3.0", "3 3", "", "3;", "\xb3"}) {
        CHECK(status_of(post("Content-Length: "s + length + "\r\n", "abc")) == 400);
    }
    // Codings.
    CHECK(status_of(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "")) ==
          400);
    for (const char *coding : {"gzip, chunked", "identity", "chunked, chunked", "xchunked", "",
                               "chunked,", "chunked;q=1", "\"chunked\""}) {
        CHECK(status_of(post("Transfer-Encoding: "s + coding + "\r\n", "")) == 501);
    }
    CHECK(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n") == 400);
    // Chunks.
    for (const char *chunk :
         {"3\nabc\r\n", "3 \r\nabc\r\n", "0x3\r\nabc\r\n", "-3\r\nabc\r\n", "\r\n", ";a\r\n",
          "3\r\nabcd\r\n", "3\r\nabc\n", "3\r\nabc0\r\n\r\n", "3\r\nabc\rX\n", "g\r\n",
          "0\r\nbad\r\n", "0\r\n a: b\r\n", "3;\x01\r\nabc\r\n"}) {
        CHECK(status_of(post("Transfer-Encoding: chunked\r\n", chunk)) == 400);
    }
    // Lines.
    CHECK(status_of("GET / HTTP/1.1\nHost: a\n\n") == 400);
    CHECK(status_of("GET / HTTP/1.1\r\nHost: a\n\r\n") == 400);
    CHECK(status_of("GET / HTTP/1.1\r\nHost: a\r\n\n") == 400);
    CHECK(status_of("\nGET / HTTP/1.1\r\n") == 400);
    for (const std::string &header :
         {"A: b\r\n c\r\n"s, "A: b\r\n\tc\r\n"s, " A: b\r\n"s, "A : b\r\n"s, "A\t: b\r\n"s,
          ": b\r\n"s, "A\r\n"s, "A: b\0c\r\n"s, "A\0: b\r\n"s, "A: b\rc\r\n"s, "A: b\x7f\r\n"s,
          "A(: b\r\n"s, "\xc3\xa9: b\r\n"s, "Host: b\r\n"s}) {
        CHECK(status_of(post(header, "")) == 400);
    }
    CHECK(status_of("GET / HTTP/1.1\r\n\r\n") == 400); // without Host
    CHECK(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n") == 400);
}

TEST_CASE("Parser: request lines that are none are refused") {
    using namespace std::string_literals;
    for (const std::string &line : {"GET /"s,
                                    "GET  / HTTP/1.1"s,
                                    "GET / HTTP/1.1 "s,
                                    " GET / HTTP/1.1"s,
                                    "GET / x HTTP/1.1"s,
                                    "GET\t/ HTTP/1.1"s,
                                    "GET / http/1.1"s,
                                    "GET / HTTP/1.11"s,
                                    "GET / HTTP/11"s,
                                    "GET / HTTPS/1.1"s,
                                    "G(T / HTTP/1.1"s,
                                    "GET x HTTP/1.1"s,
                                    "GET * HTTP/1.1"s,
                                    "CONNECT a:1 HTTP/1.1"s,
                                    "GET ftp://a/ HTTP/1.1"s,
                                    "GET http:///x HTTP/1.1"s,
                                    "GET /#a HTTP/1.1"s,
                                    "GET /\xc3\xa9 HTTP/1.1"s,
                                    "GET /%2 HTTP/1.1"s,
                                    "GET /%G0 HTTP/1.1"s,
                                    "GET /%00 HTTP/1.1"s,
                                    "GET /a\0b HTTP/1.1"s,
                                    "GET /\x01 HTTP/1.1"s,
                                    "\x16\x03\x01\x02"s,
                                    "{\"a\": 1}"s}) {
        CHECK(status_of(line + "\r\n") == 400);
    }
}

TEST_CASE("Parser: limits") {
    Limits limits;
    limits.body_bytes = 10;
    limits.header_bytes = 100;
    CHECK(status_of(post("Content-Length: 10\r\n", "0123456789"), limits) == 0);
    CHECK(status_of(post("Content-Length: 11\r\n", ""), limits) == 413); // before it comes
    for (const char *length : {"999999999999999", "1000000000000000", "18446744073709551617",
                               "99999999999999999999999999999999999999"}) {
        CHECK(status_of(post("Content-Length: " + std::string(length) + "\r\n", "")) == 413);
    }
    CHECK(status_of(post("Content-Length: 000000000000000000000\r\n", "")) == 0);
    const std::string chunked = "Transfer-Encoding: chunked\r\n";
    CHECK(status_of(post(chunked, "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"), limits) == 0);
    CHECK(status_of(post(chunked, "5\r\n01234\r\n6\r\n"), limits) == 413);
    CHECK(status_of(post(chunked, "ffffffffffffffff\r\n")) == 413);
    CHECK(status_of(post(chunked, "10000000000000005\r\n")) == 413);
    CHECK(status_of(post(chunked, "1;" + std::string(2000, 'a'))) == 400);

    const std::string start = "GET / HTTP/1.1\r\nHost: a\r\nA: ";
    const std::string fits(100 - start.size() - 4, 'x');
    CHECK(status_of(start + fits + "\r\n\r\n", limits) == 0);
    CHECK(status_of(start + fits + "x\r\n\r\n", limits) == 431);
    CHECK(status_of("GET /" + std::string(100, 'x'), limits) == 414);
    std::string blank;
    for (int i = 0; i < 51; ++i) {
        blank += "\r\n";
    }
    CHECK(status_of(blank, limits) == 414);
    // Trailers count as headers.
    CHECK(status_of(post(chunked, "0\r\nA: " + std::string(100, 'x') + "\r\n\r\n"), limits) == 431);
}

TEST_CASE("Parser: a client that waits before its body is known, once") {
    const Limits limits;
    Parser parser(limits);
    parser.take(post("Content-Length: 3\r\nExpect: 100-Continue\r\n", ""));
    CHECK(parser.wants_continue());
    CHECK(!parser.wants_continue());
    parser.take("abc");
    CHECK(parser.whole());

    Parser unasked(limits);
    unasked.take(post("Content-Length: 3\r\n", ""));
    CHECK(!unasked.wants_continue());
    Parser sent(limits); // it did not wait
    sent.take(post("Content-Length: 3\r\nExpect: 100-continue\r\n", "a"));
    CHECK(!sent.wants_continue());
    CHECK(status_of(post("Expect: magic\r\n", "")) == 417);
}
