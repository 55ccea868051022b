// What is saved is what is loaded, bit for bit, and the same state gives the same bytes.
#include <doctest/doctest.h>

#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

void round_trip(const Shape &shape) {
    CAPTURE(shape.position);
    const ScratchFolder folder;
    const State state = sample_state(shape);
    save(state, folder.path("s.stasis"), {});
    check_same(state, load(folder.path("s.stasis"), {}));
    CHECK(folder.names() == std::vector<std::string>{"s.stasis"});
}

} // namespace

TEST_CASE(
    "save: a state survives the file bit for bit, at every position around page and window edges") {
    for (uint64_t position : {0,  1,  2,  31, 32, 33, 39,  40,  41,  63,  64, 65,
                              71, 72, 73, 95, 96, 97, 103, 104, 105, 150, 320}) {
        round_trip({.position = position});
    }
}

TEST_CASE("save: shapes: one layer, many layers, large heads, large pages, retention, odd sizes") {
    round_trip({.layers = 1, .window = 0});
    round_trip({.layers = 1, .window = 1});
    round_trip({.layers = 61, .kv_heads = 1});
    round_trip({.position = 300, .kv_heads = 8, .head_dim = 256, .page_positions = 64});
    round_trip({.position = 300, .page_positions = 256, .window = 16});
    round_trip({.position = 200, .window_retain = 50});
    round_trip({.kv_heads = 3, .head_dim = 7, .hidden_size = 1, .vocabulary = 3});
    round_trip({.position = 20000, .layers = 2, .kv_heads = 1, .head_dim = 2, .vocabulary = 70000});
}

TEST_CASE("save: an empty state has no sections but identity and manifest") {
    const State state = sample_state({.position = 0});
    const Bytes bytes = saved(state);
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    REQUIRE(snapshot->sections().size() == 2);
    CHECK(snapshot->sections()[0].frame.kind == SectionKind::identity);
    CHECK(snapshot->sections()[1].frame.kind == SectionKind::manifest);
    check_same(state, snapshot->state());
}

TEST_CASE("save: the same state gives the same bytes, wherever its pages lie") {
    const Shape shape;
    const Bytes bytes = saved(sample_state(shape));
    CHECK(saved(sample_state(shape)) == bytes);

    const ScratchFolder folder;
    write_bytes(folder.path("a"), bytes);
    const State loaded = load(folder.path("a"), {});
    CHECK(saved(loaded) == bytes);

    CHECK(saved(sample_state({.seed = 2})) != bytes);
}

TEST_CASE("save: unused slots never reach the file") {
    const Shape shape{.position = 33};
    State state = sample_state(shape);
    const Bytes bytes = saved(state);
    for (std::vector<Page> &pages : state.pages) {
        Page &last = pages.back();
        auto *data = const_cast<uint16_t *>(last.data);
        for (size_t slot = last.valid; slot < state.page_positions; ++slot) {
            data[slot * state.head_dim] = 0x7FC0;
        }
    }
    CHECK(saved(state) == bytes);
}

TEST_CASE("save: the row of logits is kept on request, and only the right one") {
    const Shape shape;
    const State state = sample_state(shape);
    std::vector<float> row = sample_row(shape);
    const Bytes with = saved(state, {.logits_row = row});
    CHECK(Snapshot::open("memory", memory_files(with))->logits_row() == row);
    const Bytes without = saved(state);
    CHECK(Snapshot::open("memory", memory_files(without))->logits_row().empty());
    CHECK(with.size() > without.size() + row.size() * sizeof(float));

    row[3] += 1;
    CHECK_THROWS_WITH_AS(saved(state, {.logits_row = row}),
                         "row of 50 logits: not the row of the state's 50 logits", Error);
}

TEST_CASE("save: a snapshot can be opened without its pages, and pages be read one by one") {
    const Shape shape{.position = 150};
    const State state = sample_state(shape);
    const ScratchFolder folder;
    save(state, folder.path("s.stasis"), {});
    const auto snapshot = Snapshot::open(folder.path("s.stasis"));
    CHECK(snapshot->file_bytes() == read_bytes(folder.path("s.stasis")).size());
    CHECK(snapshot->format() == 1);
    CHECK(snapshot->state().digest == state.digest);
    CHECK(!snapshot->stored(1, 0));
    REQUIRE(snapshot->stored(1, 4));
    CHECK(snapshot->state().pages[1][4].data == nullptr);
    std::vector<uint16_t> page(1 * 2 * 2 * 32 * 4, 0xFFFF);
    const PageInto into{1, 4, page.data()};
    snapshot->read({&into, 1});
    CHECK(std::equal(page.begin(), page.end(), state.pages[1][4].data));
}
