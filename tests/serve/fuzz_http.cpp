// Fuzzes the reader of requests: the input is a byte that says how the rest is cut, and what a
// client sends. However it is cut, the same requests are read and the same refused; a request holds
// what its bytes say, and reading takes memory in proportion to them.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/watched.h"
#include "tools/serve/http/parser.h"

namespace {

using serve::http::Limits;
using serve::http::Parser;
using stasis::fuzz::expect;

// Returns all that was read, as text of which no part can be mistaken for another.
std::string read_requests(std::string_view bytes, size_t step, const Limits &limits) {
    std::string read;
    const auto put = [&](std::string_view part) {
        read += std::to_string(part.size()) + ":" + std::string(part);
    };
    Parser parser(limits);
    while (!bytes.empty() && !parser.refused()) {
        const size_t taken = parser.take(bytes.substr(0, step));
        expect(taken <= step && (taken > 0 || parser.refused()), "the reader stands still");
        bytes.remove_prefix(taken);
        if (!parser.whole()) {
            continue;
        }
        const auto &request = parser.request();
        expect(request.path == "*" || request.path.substr(0, 1) == "/", "a path begins with '/'");
        expect(request.path.find('\0') == std::string::npos, "a path holds a NUL");
        expect(request.body.size() <= limits.body_bytes, "a body is over its limit");
        size_t lengths = 0;
        for (const auto &[name, value] : request.headers) {
            put(name);
            put(value);
            expect((name + value).find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
                   "a header holds the end of a line");
            lengths += name == "content-length" || name == "transfer-encoding" ? 1 : 0;
        }
        expect(lengths <= 1, "the length of a body is given twice");
        put(request.method);
        put(request.path);
        put(request.query);
        put(request.body);
        put(parser.keep_alive() ? "keep" : "close");
        parser = Parser(limits);
    }
    put(parser.begun() ? "begun" : "");
    put(parser.reason());
    expect(parser.refused() == !parser.reason().empty(), "a refusal without a reason");
    return read;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
    Limits limits;
    limits.body_bytes = 300;
    limits.header_bytes = 600;
    const stasis::fuzz::Meter meter(64 * size + (64 << 10));
    const std::string whole = read_requests(bytes, bytes.size() + 1, limits);
    expect(read_requests(bytes, 1 + data[0] % 37, limits) == whole,
           "requests depend on how their bytes are cut");
    return 0;
}
