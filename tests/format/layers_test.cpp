// Groups of layers whose heads have sizes of their own, and layers that share keys and values: what
// is saved is what is loaded, commits share what stays, and differences name layer and head.
#include <doctest/doctest.h>

#include "format/compare.h"
#include "format/constants.h"
#include "format/dead.h"
#include "format/element_json.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

State uneven(uint64_t position, uint64_t seed = 1, uint64_t common = 0) {
    return sample_state(kUneven, position, seed, common);
}

std::shared_ptr<const Snapshot> opened(const Bytes &bytes) {
    return Snapshot::open_input(Input(bytes));
}

// A number of a stored page of group 1, which has layer 1 alone: [key, value][head][slot][dim].
uint16_t &number(State &state, size_t position, size_t value, size_t head) {
    const size_t row = value * state.kv_heads_of(1) + head;
    const size_t slot = position % state.page_positions;
    return const_cast<uint16_t *>(
        state.pages[1][position / state.page_positions]
            .data)[(row * state.page_positions + slot) * state.head_dim_of(1) + 9];
}

} // namespace

TEST_CASE("save: groups with sizes of their own survive the file bit for bit, raw and coded") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    Shape hybrid = kUneven; // layers 0, 2, 4 and 6 are recurrent, 3 and 5 share
    hybrid.layers = 7;
    hybrid.checkpoints = 30;
    for (Shape shape : {kUneven, hybrid}) {
        for (const Codec codec : {Codec::raw, Codec::zstd}) {
            for (const uint64_t position : {0, 1, 32, 71, 100}) {
                CAPTURE(position);
                shape.position = position;
                const State state = sample_state(shape);
                save(state, path, {.replace = true, .codec = codec});
                check_same(state, load(path, {}));
                const auto snapshot = Snapshot::open(path);
                CHECK(snapshot->root().features_refuse ==
                      (kFeatureLayers | (shape.checkpoints != 0 ? kFeatureRecurrent : 0)));
                CHECK(check_all_sections(*snapshot, {}) == snapshot->sections().size());
                CHECK(dead_bytes(*snapshot) == 0);
                for (const PageRecord &page : snapshot->pages().back()) {
                    for (const Run &run : page.runs) { // two of three heads of ten bf16 numbers
                        CHECK((codec != Codec::raw || run.stored_bytes == 120U * run.slots));
                    }
                }
            }
        }
    }
}

TEST_CASE("save: one group with sizes of its own, or one layer that shares, needs the feature") {
    State sizes = sample_state({.position = 0});
    sizes.groups[0].head_dim = 5;
    sizes.groups[0].kv_heads = sizes.kv_heads; // may be the state's if the other one is not
    seal(sizes);
    State sharing = sample_state({.position = 0, .layers = 3});
    sharing.groups[0].layers = {0};
    sharing.sharing = {2};
    seal(sharing);
    for (const State &state : {sizes, sharing}) {
        const Bytes bytes = saved(state);
        const auto snapshot = opened(bytes);
        CHECK(snapshot->root().features_refuse == kFeatureLayers);
        check_same(state, snapshot->state());
        Root root = snapshot->root();
        root.features_refuse = 0;
        check_refused("layers that differ: the root's features and the manifest disagree",
                      with_root(bytes, root, kSlotA));
    }
}

TEST_CASE("save: a state whose layers are alike says nothing of sizes and sharing") {
    const auto snapshot = opened(saved(sample_state({})));
    CHECK(snapshot->root().features_refuse == 0);
    const std::string cache = element_text(*snapshot, 1);
    CHECK(cache.find("sharing") == std::string::npos);
    CHECK(cache.find("kv_heads") == std::string::npos);
    CHECK(cache.find("head_dim") == std::string::npos);
}

TEST_CASE("check_all_sections: a flipped byte of a run that is no longer named is found") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (const uint32_t head_dim : {4U, 18U}) { // 18: 8 rows of it, as many bytes as 6 of 24
        Shape shape = kUneven;
        shape.head_dim = head_dim;
        shape.position = 64;
        save(sample_state(shape), path, {.replace = true, .codec = Codec::zstd});
        std::vector<Run> runs;
        for (size_t group = 0; group < 2; ++group) {
            runs.push_back(Snapshot::open(path)->page(group, 0).runs.at(0));
        }
        shape.seed = 2; // nothing stays
        save(sample_state(shape), path, {.codec = Codec::zstd});
        Bytes bytes = read_bytes(path);
        CHECK(check_all_sections(*opened(bytes), {}) > 0);
        for (const Run &run : runs) {
            for (uint64_t at = 0; at < run.stored_bytes; at += 7) {
                bytes[run.offset + kFrameBytes + at] ^= 0x10;
                CHECK_THROWS_WITH_AS(check_all_sections(*opened(bytes), {}),
                                     doctest::Contains("its bytes do not give its checksum"),
                                     Error);
                bytes[run.offset + kFrameBytes + at] ^= 0x10;
            }
        }
    }
}

TEST_CASE("save: commits of groups with sizes of their own share the slots that stay") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    std::shared_ptr<const Contents> known;
    for (const bool remember : {false, true}) {
        CAPTURE(remember);
        std::remove(path.c_str());
        known = nullptr;
        const auto commit = [&](const State &state) {
            known = save(state, path, {.known = remember ? known : nullptr});
            check_same(state, load(path, {}));
            return Snapshot::open(path);
        };
        const auto first = commit(uneven(70));
        const auto grown = commit(uneven(90));
        for (size_t group = 0; group < 2; ++group) {
            const std::vector<Run> before = first->page(group, 2).runs;
            const std::vector<Run> after = grown->page(group, 2).runs;
            REQUIRE(after.size() == 2);
            CHECK(after[0] == before[0]);
            CHECK(after[1].used == 20);
            CHECK(after[1].stored_bytes ==
                  page_stored_bytes(grown->state(), group, 20)); // raw, of this group
        }
        // Another course from position 85 on: the slots below are found and used again.
        const auto forked = commit(uneven(95, 2, 85));
        for (size_t group = 0; group < 2; ++group) {
            const std::vector<Run> runs = forked->page(group, 2).runs;
            REQUIRE(runs.size() == 3);
            CHECK(runs[0].used + runs[1].used == 21);
            CHECK(runs[1].offset == grown->page(group, 2).runs[1].offset);
        }
        commit(uneven(40));
        compact(path, {.codec = Codec::zstd});
        check_same(uneven(40), load(path, {}));
        save(uneven(40), path, {.keep = Keep::none});
        save(uneven(45), path, {.keep = Keep::none});
        CHECK(Snapshot::open(path)->page(1, 0).fingerprints.size() == 32 + 1);
        CHECK(Snapshot::open(path)->page(0, 0).fingerprints.size() == 32 + 2);
    }
}

TEST_CASE("save: a file of the same layers with other sizes of heads shares no page") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = uneven(64); // whole pages: the same numbers in the same order, of
    State other = uneven(64);       // three heads of ten and of ten heads of three
    other.groups[1].kv_heads = 10;
    other.groups[1].head_dim = 3;
    seal(other);
    save(state, path, {});
    const auto before = Snapshot::open(path);
    save(other, path, {});
    const auto after = Snapshot::open(path);
    CHECK(after->page(1, 0).runs[0].offset >= before->file_bytes());
    check_same(other, load(path, {}));
    // More or fewer heads, or numbers in each: what is in both is the same.
    for (const auto &[kv_heads, head_dim] : {std::pair(3U, 4U), {2U, 4U}, {2U, 5U}, {2U, 4U}}) {
        Shape shape = kUneven;
        shape.position = 64;
        shape.kv_heads = kv_heads;
        shape.head_dim = head_dim;
        save(sample_state(shape), path, {});
        check_same(sample_state(shape), load(path, {}));
    }
}

TEST_CASE("compare: layer and head of a group with sizes of its own are named") {
    const auto difference = [](const State &a, const State &b, SaveOptions options = {}) {
        const Bytes x = saved(a, options), y = saved(b, options);
        return compare(*opened(x), *opened(y), {});
    };
    const State state = uneven(100);
    CHECK(difference(state, uneven(100)).equal);
    State other = uneven(100);
    number(other, 97, 1, 2) ^= 1;
    number(other, 96, 0, 1) ^= 1;
    seal(other);
    Difference found = difference(state, other);
    CHECK(found.element == 1);
    CHECK(found.position == 96);
    CHECK(found.layer == 1);
    CHECK(found.head == 1);
    CHECK(found.message.find("keys differ") != std::string::npos);
    number(other, 96, 0, 1) ^= 1;
    seal(other);
    found = difference(state, other);
    CHECK(found.position == 97);
    CHECK(found.head == 2);
    CHECK(found.message.find("values differ") != std::string::npos);
    found = difference(state, other, {.keep = Keep::none});
    CHECK(found.position == 97);
    CHECK(found.layer == 1);
    CHECK(found.message.find("told by fingerprints") != std::string::npos);
}

TEST_CASE("compare: other sizes of a group and other sharing layers are named") {
    const auto after = [](auto change) {
        State other = uneven(0);
        change(other);
        seal(other);
        const Bytes x = saved(uneven(0)), y = saved(other);
        const Difference there = compare(*opened(x), *opened(y), {});
        const Difference back = compare(*opened(y), *opened(x), {});
        CHECK(there.element == 6);
        CHECK(back.element == 6);
        CHECK(there.layer == back.layer);
        return there;
    };
    Difference found = after([](State &s) { s.groups[1].kv_heads = 4; });
    CHECK(found.layer == 1);
    CHECK(found.message.find("KV heads of a layer group differs: 3 and 4") != std::string::npos);
    found = after([](State &s) { s.groups[1].head_dim = 9; });
    CHECK(found.message.find("head_dim of a layer group differs: 10 and 9") != std::string::npos);
    found = after([](State &s) {
        s.groups[0].kv_heads = 2;
        s.groups[0].head_dim = 8;
    });
    CHECK(found.layer == 0);
    CHECK(found.message.find("head_dim of a layer group differs: 4 and 8") != std::string::npos);
    found = after([](State &s) {
        s.sharing = {4};
        s.groups[0].layers = {0, 2, 3};
    });
    CHECK(found.layer == 3);
    CHECK(found.message.find("layer 3 uses another layer's keys and values in the first alone") !=
          std::string::npos);
    found = after([](State &s) {
        s.sharing = {2, 3, 4};
        s.groups[0].layers = {0};
    });
    CHECK(found.layer == 2);
    CHECK(found.message.find("in the second alone") != std::string::npos);
}

TEST_CASE("element_json: sizes of a group and sharing layers are listed where there are any") {
    const auto snapshot = opened(saved(uneven(40)));
    const std::string cache = element_text(*snapshot, 1);
    CHECK(cache.find(R"("groups":[{"layers":[0,2],"window":0,)") != std::string::npos);
    CHECK(cache.find(R"({"layers":[1],"kv_heads":3,"head_dim":10,"window":40,)") !=
          std::string::npos);
    CHECK(cache.find(R"(],"sharing":[3,4],"pages":[)") != std::string::npos);
    CHECK(cache.find(R"("bytes":4800,"stored_bytes":4800}],"sharing")") != std::string::npos);
    CHECK(element_text(*snapshot, 5).find(R"("layer_windows":[0,40,0,null,null])") !=
          std::string::npos);
    CHECK(element_text(*snapshot, 11).find(R"("kv_heads":2,"head_dim":4)") != std::string::npos);
}
