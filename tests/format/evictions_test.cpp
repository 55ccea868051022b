// Evictions in files: what is saved is what is loaded, what no page need hold any more is not
// there, and what contradicts itself is refused.
#include <doctest/doctest.h>

#include <random>

#include "format/compare.h"
#include "format/element_json.h"
#include "format/evictions.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Shape kEvictedShape{.position = 200, .layers = 4, .window = 70};

Eviction event(uint64_t position, std::vector<PositionRange> ranges) {
    return {position, std::move(ranges), std::vector<uint16_t>(kEvictedShape.hidden_size, 0x3F80)};
}

// With events, and without the pages that they leave invisible.
State evicted_state(std::vector<Eviction> events, const Shape &shape = kEvictedShape) {
    State state = sample_state(shape);
    state.evictions = std::move(events);
    const std::vector<bool> gone = evicted_pages(state);
    for (std::vector<Page> &pages : state.pages) {
        for (size_t index = 0; index < pages.size(); ++index) {
            pages[index].data = gone[index] ? nullptr : pages[index].data;
        }
    }
    state.digest = state_digest(state);
    return state;
}

const std::vector<Eviction> kEvents = {event(70, {{1, 3}, {32, 60}}),
                                       event(128, {{60, 70}, {96, 128}}), event(200, {{0, 1}})};

std::string refusal_of(const std::vector<Eviction> &events) {
    State state = sample_state(kEvictedShape);
    state.evictions = events;
    state.digest = state_digest(state);
    try {
        check_evictions(state, Status::corrupt);
    } catch (const Error &error) {
        CHECK(error.status() == Status::corrupt);
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("save: evictions survive the file, and their pages are not in it") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = evicted_state(kEvents);
    CHECK(evicted_pages(state) == std::vector{false, true, false, true, false, false, false});
    save(state, path, {});
    check_same(state, load(path, {}));
    const auto snapshot = Snapshot::open(path);
    CHECK(snapshot->root().features_refuse == kFeatureEvictions);
    CHECK_FALSE(snapshot->stored(0, 1));
    CHECK(snapshot->stored(0, 0));
    CHECK(element_text(*snapshot, 5)
              .find(R"("evicted":[{"position":70,"ranges":[[1,3],[32,60]]},{"position":128)") !=
          std::string::npos);
    compact(path, {});
    check_same(state, load(path, {}));
    save(sample_state(kEvictedShape), folder.path("plain"), {});
    CHECK(Snapshot::open(folder.path("plain"))->root().features_refuse == 0);
}

TEST_CASE(
    "save: a commit drops pages that were evicted since, keeps others, and takes evictions back") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State plain = sample_state(kEvictedShape);
    save(plain, path, {});
    const auto before = Snapshot::open(path);
    REQUIRE(before->stored(0, 1));
    const State state = evicted_state(kEvents);
    save(state, path, {});
    check_same(state, load(path, {}));
    const auto after = Snapshot::open(path);
    CHECK_FALSE(after->stored(0, 1));
    CHECK(after->page(0, 0).runs == before->page(0, 0).runs);
    const Difference difference = compare(*before, *after, {});
    CHECK(difference.element == 5);
    CHECK(difference.position == 70);
    CHECK(difference.message.find("at 70 [1, 3) [32, 60)") != std::string::npos);
    save(plain, path, {}); // pages of which the file still has the bytes, and names them no more
    check_same(plain, load(path, {}));
    CHECK(Snapshot::open(path)->root().features_refuse == 0);
}

TEST_CASE("Snapshot::open: evictions that contradict themselves are refused, each for its reason") {
    CHECK(refusal_of(kEvents) == "");
    const auto with = [](auto change) {
        std::vector<Eviction> events = kEvents;
        change(events);
        return refusal_of(events);
    };
    const std::string position = "expected one behind";
    using Events = std::vector<Eviction>;
    CHECK(with([](Events &e) { e[0].position = 0; }).find(position) != std::string::npos);
    CHECK(with([](Events &e) { e[1].position = 70; }).find(position) != std::string::npos);
    CHECK(with([](Events &e) { e[2].position = 201; }).find(position) != std::string::npos);
    const std::string range = ": range [";
    CHECK(with([](Events &e) { e[0].ranges[1] = {40, 40}; }).find(range) != std::string::npos);
    CHECK(with([](Events &e) { e[0].ranges[1].end = 71; }).find(range) != std::string::npos);
    CHECK(with([](Events &e) { e[0].ranges[1].begin = 3; }).find(range) != std::string::npos);
    CHECK(with([](Events &e) { e[0].ranges[1].begin = 2; }).find(range) != std::string::npos);
    CHECK(with([](Events &e) { std::swap(e[0].ranges[0], e[0].ranges[1]); }).find(range) !=
          std::string::npos);
    CHECK(with([](Events &e) { e[1].ranges[0].begin = 59; }) == "position 59 was evicted twice");
    const std::string rest = "no ranges, or a hidden state";
    CHECK(with([](Events &e) { e[1].ranges.clear(); }).find(rest) != std::string::npos);
    CHECK(with([](Events &e) { e[1].hidden.pop_back(); }).find(rest) != std::string::npos);
    CHECK(with([](Events &e) { e[1].hidden[0] = 0x7F80; }).find(rest) != std::string::npos);

    State state = evicted_state(kEvents);
    state.evictions[0].position = 0;
    state.digest = state_digest(state);
    const ScratchFolder folder;
    CHECK_THROWS_WITH_AS(save(state, folder.path("s"), {}), doctest::Contains(position.c_str()),
                         Error);
    state = evicted_state(kEvents);
    state.pages[0][2].data = nullptr; // not evicted whole
    CHECK_THROWS_WITH_AS(save(state, folder.path("s"), {}),
                         doctest::Contains("page 2 of layer group 0 is not stored"), Error);
}

TEST_CASE(
    "Snapshot::open: bytes of evictions: cut, longer or changed, they are refused or others") {
    State state = evicted_state(kEvents);
    const std::vector<uint8_t> bytes = build_evictions(state);
    const auto parsed = [&](std::span<const uint8_t> from) {
        State into = state;
        into.evictions.clear();
        parse_evictions(from, into);
        return into.evictions;
    };
    CHECK(parsed(bytes) == state.evictions);
    for (size_t size = 0; size < bytes.size(); ++size) {
        CHECK_THROWS_AS(parsed(std::span(bytes).first(size)), Error);
    }
    std::vector<uint8_t> longer = bytes;
    longer.push_back(0);
    CHECK_THROWS_AS(parsed(longer), Error);
    std::mt19937 random(1);
    for (int i = 0; i < 5000; ++i) {
        std::vector<uint8_t> changed = bytes;
        changed[random() % bytes.size()] ^= static_cast<uint8_t>(1 + random() % 255);
        try {
            const std::vector<Eviction> others = parsed(changed);
            CHECK(others != state.evictions);
        } catch (const Error &error) {
            CHECK(error.status() == Status::corrupt);
        }
    }
}
