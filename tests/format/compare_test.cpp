// The first difference of two snapshots: which element, position, layer and head are named, and
// that what determines results goes before what does not.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <set>

#include "format/compare.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Shape kComparedShape{.position = 150, .layers = 5};

struct Pair {
    ScratchFolder folder;
    Difference difference(const State &a, const State &b) const {
        save(a, folder.path("a"), {.replace = true});
        save(b, folder.path("b"), {.replace = true});
        return compare(*Snapshot::open(folder.path("a")), *Snapshot::open(folder.path("b")), {});
    }
};

// The difference that one change to a state makes; the same in both directions.
Difference after(const std::function<void(State &)> &change) {
    const Pair pair;
    const State a = sample_state(kComparedShape);
    State b = sample_state(kComparedShape);
    change(b);
    seal(b);
    const Difference there = pair.difference(a, b);
    const Difference back = pair.difference(b, a);
    CHECK(there.equal == back.equal);
    CHECK(there.element == back.element);
    CHECK(there.position == back.position);
    CHECK(there.layer == back.layer);
    CHECK(there.head == back.head);
    CHECK(there.message.empty() == there.equal);
    return there;
}

void names(const Difference &found, uint32_t element, uint64_t position = kNoPosition,
           uint32_t layer = kNowhere, uint32_t head = kNowhere) {
    CAPTURE(found.message);
    CHECK(!found.equal);
    CHECK(found.element == element);
    CHECK(found.position == position);
    CHECK(found.layer == layer);
    CHECK(found.head == head);
}

// A number of a stored page: [layer of the group][key, value][head][slot][dim].
uint16_t &number(State &state, size_t group, size_t position, size_t layer, size_t value,
                 size_t head) {
    const size_t row = (layer * 2 + value) * state.kv_heads + head;
    const size_t slot = position % state.page_positions;
    return const_cast<uint16_t *>(
        state.pages[group][position / state.page_positions]
            .data)[(row * state.page_positions + slot) * state.head_dim + 1];
}

} // namespace

TEST_CASE("compare: two snapshots of one session are equal") {
    CHECK(after([](State &) {}).equal);
    const Pair pair;
    const State few = sample_state(kComparedShape);
    State all = sample_state({.position = 150, .layers = 5, .window_retain = 1000});
    all.window_retain = few.window_retain;
    CHECK(pair.difference(few, all).equal); // more pages kept, the same state
}

TEST_CASE("compare: identity: the element of each part is named") {
    names(after([](State &s) { s.contract.core ^= 1; }), 11);
    names(after([](State &s) { s.contract.sampling ^= 1; }), 11);
    names(after([](State &s) { s.model.architecture = "gemma3"; }), 6);
    names(after([](State &s) { s.model.config[0].second = "9"; }), 6);
    names(after([](State &s) { s.model.config[1].second = "1e-05"; }), 7);
    names(after([](State &s) { s.model.config[2].second = "48"; }), 2);
    names(after([](State &s) { s.model.config[3].second = "base 1000000"; }), 3);
    names(after([](State &s) { s.model.config[4].second = "0 41"; }), 5);
    names(after([](State &s) { s.model.config.pop_back(); }), 6);
    names(after([](State &s) { s.model.embeddings.bytes[0] ^= 1; }), 2);
    names(after([](State &s) { s.model.norms.bytes[0] ^= 1; }), 7);
    names(after([](State &s) { s.model.attention[3].bytes[0] ^= 1; }), 8, kNoPosition, 3);
    names(after([](State &s) { s.model.mlp[4].bytes[0] ^= 1; }), 8, kNoPosition, 4);
    names(after([](State &s) { s.model.head.bytes[0] ^= 1; }), 8);
    names(after([](State &s) { s.model.model.bytes[0] ^= 1; }), 6);
    names(after([](State &s) { s.model.tokenizer.bytes[0] ^= 1; }), 10);
    names(after([](State &s) { s.model.tokenizer_type = ""; }), 10);
    names(after([](State &s) { s.model.tokenizer_rules[1].second = "no"; }), 10);
    names(after([](State &s) { s.model.chat_template = "zephyr"; }), 10);
    names(after([](State &s) { s.groups[1].window = 39; }), 5, kNoPosition, 1);
}

TEST_CASE("compare: tokens: the first that differs, or the end of the shorter log") {
    names(after([](State &s) { s.log[17].token ^= 1; }), 4, 17);
    const Pair pair;
    names(pair.difference(sample_state({.position = 40}), sample_state({.position = 150})), 4, 40);
    names(pair.difference(sample_state({.position = 0}), sample_state({.position = 3})), 4, 0);
}

TEST_CASE("compare: keys and values: the lowest position over all layers and heads, layer and head "
          "named") {
    // Group 0 holds layers 0, 2, 4; group 1 holds 1, 3.
    names(after([](State &s) { number(s, 0, 0, 0, 0, 0) ^= 1; }), 1, 0, 0, 0);
    names(after([](State &s) { number(s, 0, 149, 2, 1, 1) ^= 0x8000; }), 1, 149, 4, 1);
    names(after([](State &s) { number(s, 1, 130, 1, 0, 1) ^= 4; }), 1, 130, 3, 1);
    const Difference values = after([](State &s) {
        number(s, 0, 120, 0, 0, 0) ^= 1; // a later position in an earlier layer
        number(s, 0, 99, 2, 1, 1) ^= 1;
        number(s, 1, 140, 0, 0, 0) ^= 1;
    });
    names(values, 1, 99, 4, 1);
    CHECK(values.message.find("values differ: bf16 bits") != std::string::npos);
    names(after([](State &s) {
              number(s, 0, 135, 0, 0, 1) ^= 1;
              number(s, 1, 133, 0, 0, 1) ^= 1; // lower, in the other group
          }),
          1, 133, 1, 1);
    names(after([](State &s) {
              number(s, 0, 133, 2, 0, 0) ^= 1;
              number(s, 1, 133, 0, 0, 1) ^= 1; // the same position, a lower layer
          }),
          1, 133, 1, 1);
}

TEST_CASE("compare: keys and values of released pages differ by their digests") {
    const Difference found = after([](State &s) { s.pages[1][1].digest.bytes[0] ^= 1; });
    names(found, 1, 32, 1);
    CHECK(found.message.find("is not in one of the files") != std::string::npos);
}

TEST_CASE("compare: logits, then origins, then settings") {
    names(after([](State &s) { s.hidden[3] ^= 1; }), 9, 149);
    names(after([](State &s) { s.logits.bytes[0] ^= 1; }), 9, 149);
    names(after([](State &s) { s.top.pop_back(); }), 9, 149);
    names(after([](State &s) {
              s.log[25].source = TokenSource::prompt;
              s.log[25].sampling = 0;
          }),
          12, 25);
    names(after([](State &s) { s.log[30].turn ^= TokenEntry::kTurnStart; }), 12, 30);
    names(after([](State &s) { s.log[32].sampling ^= 1; }), 12, 32);
    names(after([](State &s) { s.token_texts[1].second = "other"; }), 10);
    names(after([](State &s) { s.pending_system = ""; }), 12);
    names(after([](State &s) { s.samplings[1].seed ^= 1; }), 6);
    names(after([](State &s) { s.sampling = 0; }), 6);
    names(after([](State &s) { s.capacity += 1; }), 6);
    names(after([](State &s) { s.window_retain += 1; }), 6);
    names(after([](State &s) { s.tracking -= 1; }), 6);
    // The draw and its settings differ, and the token too: the token is reported.
    names(after([](State &s) {
              s.samplings[1].seed ^= 1;
              s.log[12].source = TokenSource::prompt;
              s.log[12].sampling = 0;
              s.log[32].token ^= 1;
          }),
          4, 32);
}

namespace {

// Every read of the files that are open, by descriptor.
struct Read {
    int descriptor;
    uint64_t begin, end;
};
std::vector<Read> reads;

const FileOperations &recording_files() {
    static const FileOperations operations = [] {
        FileOperations files = system_files();
        files.read_at = [](int descriptor, void *data, size_t size_bytes, off_t offset) {
            const auto begin = static_cast<uint64_t>(offset);
            reads.push_back({descriptor, begin, begin + size_bytes});
            return system_files().read_at(descriptor, data, size_bytes, offset);
        };
        return files;
    }();
    return operations;
}

// Pages of which one file's bytes were read, and how many bytes were read of that file in all.
struct Touched {
    std::set<std::pair<size_t, uint64_t>> pages; // group, index
    uint64_t bytes = 0;
};

Touched touched(const Snapshot &snapshot, int descriptor) {
    Touched touched;
    for (const Read &read : reads) {
        touched.bytes += read.descriptor == descriptor ? read.end - read.begin : 0;
    }
    for (size_t group = 0; group < snapshot.state().pages.size(); ++group) {
        for (uint64_t index = 0; index < snapshot.state().pages[group].size(); ++index) {
            for (const Run &run : snapshot.page(group, index).runs) {
                const uint64_t end = run.offset + kFrameBytes + run.stored_bytes;
                for (const Read &read : reads) {
                    if (read.descriptor == descriptor && read.begin < end &&
                        read.end > run.offset) {
                        touched.pages.insert({group, index});
                    }
                }
            }
        }
    }
    return touched;
}

} // namespace

TEST_CASE(
    "compare: comparing reads trees, and of the pages only those that differ, from opening on") {
    const Shape shape{.position = 4000, .layers = 5, .kv_heads = 2, .head_dim = 32};
    const ScratchFolder folder;
    State other = sample_state(shape);
    number(other, 0, 2345, 2, 1, 1) ^= 1;
    seal(other);
    save(sample_state(shape), folder.path("a"), {});
    save(sample_state(shape), folder.path("same"), {});
    save(other, folder.path("other"), {});
    const auto compared = [&](const std::string &name) {
        reads.clear();
        const auto a = Snapshot::open(folder.path("a"), recording_files());
        const int first = reads.at(0).descriptor;
        const auto b = Snapshot::open(folder.path(name), recording_files());
        const int second = reads.back().descriptor;
        CHECK(first != second);
        CHECK(compare(*a, *b, {}).equal == (name == "same"));
        CHECK(a->file_bytes() > 3'000'000);
        return std::pair(touched(*a, first), touched(*b, second));
    };
    const auto same = compared("same");
    CHECK(same.first.pages.empty());
    CHECK(same.second.pages.empty());
    const auto differing = compared("other");
    const std::set<std::pair<size_t, uint64_t>> page{{0, 2345 / 32}};
    CHECK(differing.first.pages == page);
    CHECK(differing.second.pages == page);
    // Trees, manifest, identity, and 50 KiB of that page, of 3 MB.
    CHECK(differing.first.bytes < 200'000);
    CHECK(differing.second.bytes < 200'000);
    MESSAGE("read " << differing.first.bytes << " and " << differing.second.bytes << " bytes");
}

TEST_CASE("compare: a damaged page that is compared is an error, not a difference") {
    const ScratchFolder folder;
    State other = sample_state(kComparedShape);
    number(other, 0, 3, 0, 0, 0) ^= 1;
    seal(other);
    save(sample_state(kComparedShape), folder.path("a"), {});
    Bytes bytes = saved(other);
    const Run run = Snapshot::open("memory", memory_files(bytes))->page(0, 0).runs.at(0);
    bytes[run.offset + kFrameBytes] ^= 1;
    write_bytes(folder.path("damaged"), bytes);
    const std::string message =
        folder.path("damaged") + ": page 0 of layer group 0: section at byte " +
        std::to_string(run.offset) + " (run): its bytes do not give its checksum";
    const auto a = Snapshot::open(folder.path("a"));
    const auto damaged = Snapshot::open(folder.path("damaged"));
    CHECK_THROWS_WITH_AS(compare(*a, *damaged, {}), message.c_str(), Error);
    CHECK_THROWS_WITH_AS(compare(*damaged, *a, {}), message.c_str(), Error);
}

TEST_CASE("compare: pages that a file does not keep are compared by fingerprints") {
    const ScratchFolder folder;
    State other = sample_state(kComparedShape);
    number(other, 0, 99, 1, 1, 1) ^= 1;  // layer 2
    number(other, 0, 120, 0, 0, 0) ^= 1; // a later position of layer 0, in the same page
    seal(other);
    const auto open = [&](const State &state, Keep keep, const char *name) {
        save(state, folder.path(name), {.keep = keep});
        return Snapshot::open(folder.path(name));
    };
    const auto full = open(sample_state(kComparedShape), Keep::full, "full");
    const auto none = open(sample_state(kComparedShape), Keep::none, "none");
    const auto other_full = open(other, Keep::full, "other full");
    const auto other_none = open(other, Keep::none, "other none");
    CHECK(compare(*full, *none, {}).equal);
    for (const Snapshot *a : {full.get(), none.get()}) {
        const Difference found = compare(*a, *other_none, {});
        // The first position that differs in any layer, the first layer that differs anywhere.
        names(found, 1, 99, 0);
        CHECK(found.message.find("fingerprints") != std::string::npos);
    }
    names(compare(*none, *other_full, {}), 1, 99, 0);
    names(compare(*full, *other_full, {}), 1, 99, 2, 1);
}

TEST_CASE("compare: comparing reports each page that it looks at, and can be cancelled") {
    const Bytes bytes = saved(sample_state(kComparedShape));
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    std::vector<uint64_t> seen;
    const ProgressFunction note = [](void *user, uint64_t done, uint64_t) {
        static_cast<std::vector<uint64_t> *>(user)->push_back(done);
        return true;
    };
    compare(*snapshot, *snapshot, {nullptr, note, &seen});
    CHECK(seen == std::vector<uint64_t>{0, 1, 2, 3, 4});
    const std::atomic<bool> cancel{true};
    CHECK_THROWS_AS(compare(*snapshot, *snapshot, {.cancel = &cancel}), Error);
}
