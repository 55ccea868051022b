// Backends that several processes share: races, locks, and writers that are killed.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "backends.h"

using namespace stasis;
using namespace stasis::format;

namespace {

std::string raced_key(uint32_t round) {
    return "race/" + std::to_string(round);
}

Bytes raced_bytes(const std::string &name, bool replace) { // equal bytes have equal marks
    return text_bytes(name + (replace ? ", again" : ""));
}

// Two processes swap at the same moments; how many rounds this one has won.
int race(const BackendKind &kind, const std::string &path, const Pipe &mine, const Pipe &others,
         const std::string &name, bool replace) {
    const auto backend = kind.open(path);
    int won = 0;
    for (uint32_t round = 0; round < 200; ++round) {
        const auto marked = replace ? backend->get_marked(raced_key(round)) : std::nullopt;
        others.tell(round);
        if (mine.hear() != round) {
            throw Error(Status::internal, "the other process has ended");
        }
        const auto mark = marked ? std::optional(marked->mark) : std::nullopt;
        won += backend->swap(raced_key(round), mark, raced_bytes(name, replace)) ? 1 : 0;
    }
    return won;
}

} // namespace

TEST_CASE("Backend::swap: of two processes that race for a key, one wins") {
    with_backends(
        [](const BackendKind &kind, const std::string &path) {
            for (const bool replace : {false, true}) {
                const Pipe one, other;
                const pid_t first =
                    begin_process([&] { return race(kind, path, one, other, "first", replace); });
                const pid_t second =
                    begin_process([&] { return race(kind, path, other, one, "second", replace); });
                const int won = end_of_process(first), lost = end_of_process(second);
                CHECK(won + lost == 200);
                const auto backend = kind.open(path);
                int firsts = 0;
                for (uint32_t round = 0; round < 200; ++round) {
                    firsts +=
                        backend->get(raced_key(round)) == raced_bytes("first", replace) ? 1 : 0;
                }
                CHECK(firsts == won);
            }
        },
        true);
}
