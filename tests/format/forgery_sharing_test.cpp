// Bytes of a file that stand for several things: sections inside one another, and many names for
// one table, by which a small manifest would unfold into a large one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Bytes &file_without_row() {
    static const Bytes bytes = saved(sample_state(kSmall));
    return bytes;
}

// A FlatBuffers buffer in which `count` entries of a vector are all its last one: the vector stands
// at the marker, which is long enough, and is named by who named the one of `few` entries.
Bytes bent(Bytes buffer, uint32_t few, const std::string &marker) {
    const auto word = [&](size_t at) {
        uint32_t value = 0;
        std::memcpy(&value, buffer.data() + at, 4);
        return value;
    };
    const auto put = [&](size_t at, size_t value) { std::memcpy(buffer.data() + at, &value, 4); };
    const auto found = std::search(buffer.begin(), buffer.end(), marker.begin(), marker.end());
    const auto vector = static_cast<size_t>(found - buffer.begin());
    REQUIRE(vector % 4 == 0);
    for (size_t old = 4; old + 4 <= buffer.size(); old += 4) {
        for (size_t name = 0; word(old) == few && name < old; name += 4) {
            if (name + word(name) == old && vector > name) { // offsets count from their own place
                const size_t table = old + 4 * few + word(old + 4 * few);
                const size_t count = marker.size() / 4 - 1;
                put(name, vector - name);
                put(vector, count);
                for (size_t i = 1; i <= count && table > vector + 4 * i; ++i) {
                    put(vector + 4 * i, table - (vector + 4 * i));
                }
                return buffer;
            }
        }
    }
    FAIL("no vector of " << few);
    return buffer;
}

} // namespace

TEST_CASE("Snapshot::open: sections inside one another: what they hold is held to its digests all "
          "the same") {
    // A whole section stands in the text of a token, at a multiple of 64, and a page is bent to it.
    State state = sample_state({.position = 64, .layers = 1, .head_dim = 1});
    const Bytes plain = saved(state);
    const Run run = Snapshot::open("memory", memory_files(plain))->page(0, 0).runs[0];
    const auto begin = plain.begin() + static_cast<ptrdiff_t>(run.offset);
    const Bytes section(begin, begin + static_cast<ptrdiff_t>(section_bytes(run.stored_bytes)));
    const std::string text(section.begin(), section.end());
    const auto inner_of = [&](const Bytes &bytes) {
        const auto after = bytes.begin() + static_cast<ptrdiff_t>(run.offset + kFrameBytes);
        return std::search(after, bytes.end(), section.begin(), section.end()) - bytes.begin();
    };
    state.token_texts[0].second = text;
    const auto lead = static_cast<size_t>(64 - inner_of(saved(state)) % 64);
    state.token_texts[0].second = std::string(lead, 'x') + text;
    const Bytes bytes = saved(state);
    const auto inner = static_cast<uint64_t>(inner_of(bytes));
    REQUIRE(inner % 64 == 0);
    const auto bend = [&](PageRecord &entry) { entry.runs[0].offset = inner; };
    const Bytes bent = forged_page(bytes, 0, 0, bend);
    CHECK(Snapshot::open("memory", memory_files(bent))->page(0, 0).runs[0].offset == inner);
    CHECK(refusal(bent) == "");
    Bytes damaged = bent;
    damaged[inner + kFrameBytes] ^= 1;
    check_refused("", damaged);
    damaged = bent;
    damaged[run.offset + kFrameBytes] ^= 1; // of the run that no page names any more
    CHECK(refusal(damaged) == "");
}

TEST_CASE(
    "Snapshot::open: many names for one table cannot unfold a small manifest into a large one") {
    const auto snapshot = Snapshot::open("memory", memory_files(file_without_row()));
    const std::string marker(80000, 'm');
    constexpr uint32_t kFew = 29; // a number that nothing else there is
    State state = snapshot->state();
    state.pending_system = marker;
    state.samplings.resize(kFew);
    const Bytes manifest = bent(build_manifest(state, snapshot->layout()), kFew, marker);
    const Bytes file = with_manifest(file_without_row(), *snapshot, {}, manifest);
    check_refused("", file);
    CHECK(refusal(file).find("add up to more than its size") != std::string::npos);

    ModelIdentity model = snapshot->state().model;
    model.chat_template = marker;
    model.config.assign(kFew, {"", ""});
    const Bytes identity = bent(build_identity(model), kFew, marker);
    largest_allocation();
    CHECK_THROWS_WITH_AS(parse_identity(identity),
                         doctest::Contains("add up to more than its size"), Error);
    CHECK(largest_allocation() < 4 * identity.size());
}
