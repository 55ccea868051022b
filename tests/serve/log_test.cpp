// Lines of the server's log: each is an object of JSON, whatever clients sent.
#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <thread>

#include "tools/serve/http/log.h"

namespace {

using nlohmann::json;
using serve::http::Log;
using serve::http::Served;

// Returns what `write` logs, line by line.
template <typename Write> std::vector<json> lines_of(Write write) {
    char *text = nullptr;
    size_t size = 0;
    std::FILE *file = open_memstream(&text, &size);
    REQUIRE(file != nullptr);
    {
        Log log(file);
        write(log);
    }
    std::fclose(file);
    const std::string all(text, size);
    std::free(text);
    std::vector<json> lines;
    for (size_t at = 0; at < all.size();) {
        const size_t end = all.find('\n', at);
        REQUIRE(end != std::string::npos);
        lines.push_back(json::parse(all.substr(at, end - at)));
        at = end + 1;
    }
    return lines;
}

} // namespace

TEST_CASE("Log: a request is a line that holds what was met, and no more") {
    const auto lines = lines_of([](Log &log) {
        log.request({"POST", "/v1/\n\"\xff", "127.0.0.1:5", 200, 1234, 0.25, true, ""});
        log.request({"", "", "[::1]:5", 400, 0, 0, false, "no request"});
    });
    REQUIRE(lines.size() == 2);
    json first = lines[0];
    CHECK(first["time"].get<std::string>().size() ==
          std::string("2026-01-01T00:00:00.000Z").size());
    first.erase("time");
    CHECK(first == json{{"event", "request"},
                        {"method", "POST"},
                        {"path", "/v1/\n\"\xef\xbf\xbd"},
                        {"status", 200},
                        {"bytes", 1234},
                        {"seconds", 0.25},
                        {"peer", "127.0.0.1:5"},
                        {"whole", true}});
    CHECK(lines[1]["error"] == "no request");
}

TEST_CASE("Log: lines of several threads stay whole") {
    const auto lines = lines_of([](Log &log) {
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&log, t] {
                for (int i = 0; i < 200; ++i) {
                    log.event("test", {{"thread", t}, {"text", std::string(200, 'x')}});
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    });
    REQUIRE(lines.size() == 800);
    for (const json &line : lines) {
        CHECK(line["text"].get<std::string>().size() == 200);
    }
}
