// Sessions in a store: what is put is what is opened, bit for bit; pages are held once; roots are
// compared before they are swapped.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "format/pages.h"
#include "format/store/collect.h"
#include "store_case.h"
#include "tests/share.h"

using namespace stasis;
using namespace stasis::format;

namespace {

void round_trip(const State &state, const SaveOptions &save = {}) {
    MemoryStore memory;
    memory.put(state, "s", save);
    const StoredSession opened = memory.store.open("s");
    CHECK(opened.snapshot->state().digest == state.digest);
    if (save.keep == Keep::full) {
        check_same(state, memory.get("s"));
    }
    CHECK(exported(memory.store, "s") == saved(state, save));
    // What a file's session says is what the store's says.
    const ScratchFolder folder;
    write_bytes(folder.path("f"), exported(memory.store, "s"));
    CHECK(Snapshot::open(folder.path("f"))->root() == opened.snapshot->root());
}

// Leaves the texts of tokens in the log.
void keep_texts(State &state) {
    std::vector<bool> used(state.vocabulary);
    for (const TokenEntry &entry : state.log) {
        used[entry.token] = true;
    }
    std::erase_if(state.token_texts, [&](const auto &text) { return !used[text.first]; });
}

// The first `position` tokens of a state.
State first_tokens(const State &whole, uint64_t position) {
    State state = whole;
    state.log.resize(position);
    for (size_t group = 0; group < state.pages.size(); ++group) {
        state.pages[group].resize(page_count(position, state.page_positions));
        state.pages[group].back().valid =
            page_valid(position, state.page_positions, state.pages[group].size() - 1);
        Page &last = state.pages[group].back();
        last.digest = page_digest({static_cast<uint32_t>(group), state.pages[group].size() - 1,
                                   last.data, page_rows(state, group), state.page_positions,
                                   last.valid, state.head_dim_of(group)});
    }
    keep_texts(state);
    state.digest = state_digest(state);
    return state;
}

} // namespace

TEST_CASE("store: a session is what was put, bit for bit, and exported the file of a first save") {
    for (const uint64_t position : {0, 1, 31, 32, 33, 150}) {
        CAPTURE(position);
        round_trip(sample_state({.position = position}));
        round_trip(sample_state(large_pages(position)));
    }
    round_trip(sample_state(kHybrid));
    Shape hybrid = kHybrid;
    hybrid.value_dim = 48; // states of 60 KB
    round_trip(sample_state(hybrid));
    round_trip(sample_state(hybrid), {.codec = Codec::zstd});
    round_trip(sample_state(kUneven));
    round_trip(with_data(sample_state(large_pages(100)), 5000));
    round_trip(sample_state(large_pages(100)), {.codec = Codec::zstd});
    round_trip(sample_state(large_pages(100)), {.keep = Keep::none});
    const std::vector<float> row = sample_row(large_pages(100));
    round_trip(sample_state(large_pages(100)), {.logits_row = row});
    State evicted = sample_state(large_pages(150));
    evicted.evictions = {{100, {{1, 40}}, std::vector<uint16_t>(evicted.hidden_size, 0x3F80)}};
    evicted.digest = state_digest(evicted);
    round_trip(evicted);
}

TEST_CASE("store: later puts append what commits to a file append, after every kind of change") {
    const ScratchFolder folder;
    MemoryStore memory;
    StorePut put;
    std::shared_ptr<const Contents> known;
    uint64_t sequence = 0;
    for (const auto &shape : std::vector<std::array<uint64_t, 3>>{{40, 1, 0},
                                                                  {41, 1, 0},
                                                                  {150, 1, 0},
                                                                  {150, 1, 0},
                                                                  {97, 1, 0},
                                                                  {160, 2, 97},
                                                                  {160, 3, 70}}) {
        const uint64_t position = shape[0]; // no binding: clang captures none
        CAPTURE(position);
        const State state = sample_state(large_pages(position, shape[1], shape[2]));
        put = sequence == 0 ? memory.put(state, "s") : memory.put(state, "s", put);
        known = save(state, folder.path("f"), {.known = known});
        CHECK(put.contents->root == known->root);
        CHECK(put.contents->root.sequence == ++sequence);
        check_same(state, memory.get("s"));
        const Bytes file = read_bytes(folder.path("f")), ours = exported(memory.store, "s");
        REQUIRE(file.size() == ours.size());
        CHECK(std::equal(file.begin() + kSectionsBegin, file.end(), ours.begin() + kSectionsBegin));
    }
}

TEST_CASE("store: sessions that were computed apart hold a common prompt once") {
    MemoryStore memory;
    // 960 tokens of prompt, 30 pages, and a turn of some tokens of its own.
    Shape shape = large_pages(965, 2, 960);
    shape.window = 0;
    const State first = sample_state(shape);
    memory.put(first, "first");
    const uint64_t one = memory.backend->bytes();
    REQUIRE(one > 1400000);
    for (uint64_t i = 0; i < (test::kSanitized ? 100 : 1000); ++i) {
        State state = first;
        state.log.back().token = static_cast<uint32_t>(i % state.vocabulary);
        state.token_texts = sample_state({.position = 5000}).token_texts;
        keep_texts(state);
        state.capacity = 5000 + i; // so that no root is another's
        state.digest = state_digest(state);
        const StorePut put = memory.put(state, "session " + std::to_string(i));
        REQUIRE(put.counts.shared > 1400000);
        REQUIRE(put.counts.written < 60000); // log, texts, tables
    }
    CHECK(memory.backend->bytes() < one + (test::kSanitized ? 100 : 1000) * 60000);
}

// Puts with a lender, and what the backend is asked for meanwhile.
struct LentPut {
    StorePut put;
    size_t puts = 0; // of objects
};
LentPut put_lent(MemoryStore &memory, const State &state, const std::string &name,
                 const std::string &lender, const SaveOptions &save = {}) {
    LentPut result;
    memory.backend->meanwhile([&](const char *call, const std::string &key) {
        result.puts += std::string(call) == "put" && key.rfind(kObjectPrefix, 0) == 0 ? 1 : 0;
    });
    StorePutOptions options;
    options.save = save;
    options.lender = lender;
    result.put = memory.store.put(state, name, options);
    memory.backend->meanwhile({});
    return result;
}

TEST_CASE("store: what a lender has is referred to, and what sessions part in is held once") {
    // 64 pages of 32 positions in common, 22 slots of the next, and 40 tokens of one's own.
    constexpr uint64_t kCommon = 2070, kEnd = 2110, kOwn = kEnd - kCommon;
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        const SaveOptions save{.codec = codec};
        MemoryStore memory;
        Shape shape = large_pages(kEnd, 2, kCommon);
        shape.window = 0;
        const uint64_t position_bytes = page_stored_bytes(sample_state(shape), 0, 1) +
                                        page_stored_bytes(sample_state(shape), 1, 1);
        memory.put(sample_state(shape), "2", save);
        for (uint64_t seed = 3; seed < 8; ++seed) {
            CAPTURE(seed);
            shape.seed = seed;
            const State state = sample_state(shape);
            const LentPut lent =
                put_lent(memory, state, std::to_string(seed), std::to_string(seed - 1), save);
            // In each group two runs of one's own, and first the one up to where they part; two
            // segments, one of them of what is common. Runs that a codec would not make smaller are
            // looked up one by one.
            const size_t puts = seed == 3 ? 8 : 6;
            CHECK((codec == Codec::raw ? lent.puts == puts : lent.puts >= puts));
            CHECK(lent.put.counts.shared > position_bytes * (kCommon - 22) / 2);
            // What is common is written by the first one, and once more with the run that ends
            // where they part: the log alone has 16 KB. Tables name runs of their own if none is
            // taken.
            const uint64_t common = seed == 3 ? position_bytes * (kCommon % 32) + 40000
                                    : seed == 4 || codec == Codec::zstd ? 40000
                                                                        : 0;
            CHECK(lent.put.counts.written < position_bytes * kOwn + common + 10000);
            check_same(state, memory.get(std::to_string(seed)));
            // Nothing of the lender's own is in it: it is no longer than alone.
            CHECK(exported(memory.store, std::to_string(seed)).size() <
                  saved(state, save).size() + 2000);
        }
    }
}

TEST_CASE("store: a lender that lacks something, or is another model's, costs time alone") {
    Shape shape = large_pages(300, 2, 250);
    shape.window = 0;
    const State state = sample_state(large_pages(300, 3, 250));
    {
        MemoryStore memory;
        memory.put(sample_state(shape), "lender");
        for (const std::string &key : keys_of(*memory.backend, kObjectPrefix)) {
            CAPTURE(key);
            MemoryStore less;
            less.put(sample_state(shape), "lender");
            less.backend->remove(key, {});
            put_lent(less, state, "s", "lender");
            check_same(state, less.get("s"));
            CHECK(exported(less.store, "s").size() > 0);
        }
    }
    MemoryStore memory;
    State other = sample_state(shape);
    other.model.model.bytes[0] ^= 1;
    other.digest = state_digest(other);
    memory.put(other, "other");
    const size_t all = put_lent(memory, state, "s", "").puts;
    REQUIRE(all > 10);
    CHECK(put_lent(memory, state, "t", "none").puts == all);
    CHECK(put_lent(memory, state, "u", "other").puts == all);
    check_same(state, memory.get("u"));
    // Where ages decide what is removed, each payload is put again.
    MemoryStore ages{std::make_shared<MemoryBackend>(false)};
    ages.put(sample_state(shape), "lender");
    CHECK(put_lent(ages, state, "s", "lender").puts == all);
}

TEST_CASE("store: over 200 turns a put writes at most 1.1 times the turn's keys and values") {
    constexpr uint64_t kTurn = 100;
    const uint64_t turns = (test::kSanitized ? 40 : 200);
    // 8 KiB a token, a third of what a model of 135 million weights has.
    const State whole = sample_state({.position = turns * kTurn,
                                      .layers = 8,
                                      .kv_heads = 4,
                                      .head_dim = 64,
                                      .hidden_size = 1024,
                                      .vocabulary = 30000,
                                      .page_positions = 64,
                                      .window = 0});
    MemoryStore memory;
    StorePut put;
    uint64_t written = 0;
    size_t most = 0;
    for (uint64_t turn = 1; turn <= turns; ++turn) {
        const State state = first_tokens(whole, turn * kTurn);
        put = turn == 1 ? memory.put(state, "s") : memory.put(state, "s", put);
        written += put.counts.written;
        most = std::max(most, memory.store.open("s").ranges->root().segments.size());
    }
    CHECK(memory.backend->bytes_written() == written); // what is reported is what is written
    const auto kv = static_cast<double>(turns * kTurn * 8192);
    MESSAGE("written: ", static_cast<double>(written) / kv, " of the keys and values; at most ",
            most, " segments");
    CHECK(static_cast<double>(written) < 1.1 * kv);
    CHECK(most < 16);
    check_same(whole, memory.get("s"));
}

TEST_CASE("store: what is mostly dead is written anew") {
    MemoryStore memory;
    StorePut put = memory.put(sample_state(large_pages(150)), "s", SaveOptions{.keep = Keep::none});
    uint64_t most = 0;
    for (uint64_t i = 0; i < 100; ++i) { // the same positions again and again
        const State state = sample_state(large_pages(150 + i % 2, i % 200 + 1, 32));
        put = memory.put(state, "s", put);
        most = std::max(most, put.contents->root.file_bytes);
        REQUIRE(put.contents->root.sequence == i + 2);
    }
    const uint64_t live = saved(sample_state(large_pages(151))).size();
    CHECK(most > 2 * live);
    CHECK(most < 4 * live + 100000);
    collect(*memory.backend, {});
    CHECK(memory.backend->bytes() < 4 * live + 100000);
    check_same(sample_state(large_pages(151, 100, 32)), memory.get("s"));
}

TEST_CASE(
    "store: another beginning, or another model, under the same name is a whole new session") {
    MemoryStore memory;
    StorePut put = memory.put(sample_state(large_pages(100)), "s");
    for (const bool model : {false, true}) {
        State other = sample_state(large_pages(80));
        if (model) {
            other.model.model.bytes[0] ^= 1;
        } else {
            other.log[0].token = other.log[1].token;
            keep_texts(other);
        }
        other.digest = state_digest(other);
        put = memory.put(other, "s", put);
        check_same(other, memory.get("s"));
        CHECK(put.contents->root.sequence == (model ? 3 : 2));
        CHECK(put.contents->root.file_bytes == saved(other).size());
    }
}

TEST_CASE(
    "store: of two that continue one session the second gets a conflict with the newer root") {
    MemoryStore memory;
    const StorePut put = memory.put(sample_state(large_pages(100)), "s");
    const StorePut newer = memory.put(sample_state(large_pages(120, 2, 100)), "s", put);
    const State late = sample_state(large_pages(130, 3, 100));
    for (const bool knows : {true, false}) {
        try {
            knows ? memory.put(late, "s", put) : memory.put(late, "s");
            FAIL("no conflict");
        } catch (const Conflict &conflict) {
            CHECK(conflict.status() == Status::conflict);
            CHECK(conflict.root == newer.contents->root.digest);
        }
    }
    check_same(sample_state(large_pages(120, 2, 100)), memory.get("s"));

    // One that another removed is a conflict as well; it may be overwritten.
    StorePutOptions over;
    over.overwrite = true;
    memory.store.put(late, "s", over);
    check_same(late, memory.get("s"));
    memory.store.remove("s");
    CHECK_THROWS_AS(memory.put(late, "s", newer), Conflict);
    CHECK(error_of([&] { memory.get("s"); }) == "2 the store has no session 's'");
    CHECK(error_of([&] { memory.store.remove("s"); }) == "2 the store has no session 's'");
    memory.put(late, "s");
    check_same(late, memory.get("s"));
}

TEST_CASE("store: threads that race for one name never lose a turn") {
    MemoryStore memory;
    memory.put(sample_state(large_pages(1)), "s");
    std::vector<State> states;
    for (uint64_t position = 1; position <= 40; ++position) {
        states.push_back(sample_state(large_pages(position)));
    }
    std::atomic<uint64_t> turns{0}, lost{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            for (;;) {
                const StoredSession opened = memory.store.open("s");
                const uint64_t position = opened.snapshot->state().log.size();
                if (position == states.size()) {
                    return;
                }
                StorePutOptions options;
                options.expected = opened.mark;
                options.save.known = opened.snapshot->contents();
                try {
                    memory.store.put(states[position], "s", options);
                    ++turns;
                } catch (const Conflict &) {
                    ++lost;
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(turns == states.size() - 1);
    MESSAGE(lost.load(), " races were lost");
    CHECK(memory.store.open("s").snapshot->root().sequence == states.size());
    check_same(states.back(), memory.get("s"));
}

TEST_CASE("store: a fork writes a root alone, and goes on by itself") {
    MemoryStore memory;
    const State state = sample_state(large_pages(150));
    const StorePut put = memory.put(state, "from");
    const uint64_t before = memory.backend->bytes_written();
    memory.store.fork("from", "to", false);
    CHECK(memory.backend->bytes_written() - before < 400);
    check_same(state, memory.get("to"));
    CHECK_THROWS_AS(memory.store.fork("from", "to", false), Conflict);
    CHECK(error_of([&] { memory.store.fork("none", "x", false); }) ==
          "2 the store has no session 'none'");

    memory.put(sample_state(large_pages(170)), "from", put);
    check_same(state, memory.get("to"));
    memory.store.remove("from");
    collect(*memory.backend, {});
    check_same(state, memory.get("to"));
    memory.put(sample_state(large_pages(20)), "other");
    memory.store.fork("to", "other", true);
    check_same(state, memory.get("other"));
}

TEST_CASE("store: what was exported shares all of its payloads when it is imported") {
    const ScratchFolder folder;
    MemoryStore memory;
    StorePut put = memory.put(sample_state(large_pages(100)), "s");
    const State state = with_data(sample_state(large_pages(150)), 9000);
    put = memory.put(state, "s", put);
    export_snapshot(*memory.store.open("s").snapshot, folder.path("x"), false, {});
    CHECK(error_of([&] {
              export_snapshot(*memory.store.open("s").snapshot, folder.path("x"), false, {});
          }).find("it is there, and not written to unless it may be replaced") !=
          std::string::npos);
    export_snapshot(*memory.store.open("s").snapshot, folder.path("x"), true, {});
    check_same(state, load(folder.path("x"), {}));

    const StorePut imported = memory.store.import(*Snapshot::open(folder.path("x")), "again", {});
    check_same(state, memory.get("again"));
    CHECK(imported.counts.shared == // every one of them
          memory.store.open("s").ranges->size() - kSectionsBegin - [&] {
              uint64_t inlined = 0;
              const StoredSession opened = memory.store.open("s");
              for (const Segment &segment : opened.ranges->segments()) {
                  inlined += segment.inlined.size();
              }
              return inlined;
          }());
    CHECK(imported.counts.shared > 3 * imported.counts.written);
    CHECK(exported(memory.store, "again") == read_bytes(folder.path("x")));
    CHECK_THROWS_AS(memory.store.import(*Snapshot::open(folder.path("x")), "again", {}), Conflict);

    // A session goes on from what was imported, and a file from what was exported.
    memory.put(sample_state(large_pages(170)), "again", imported);
    check_same(sample_state(large_pages(170)), memory.get("again"));
    save(sample_state(large_pages(170)), folder.path("x"), {});
    check_same(sample_state(large_pages(170)), load(folder.path("x"), {}));
}

TEST_CASE("store: a stream's trailer is not imported") {
    MemoryStore memory;
    Bytes stream;
    const State state = sample_state(large_pages(100));
    write_stream(state,
                 {&stream,
                  [](void *user, const void *data, size_t bytes) {
                      const auto *begin = static_cast<const uint8_t *>(data);
                      auto *to = static_cast<Bytes *>(user);
                      to->insert(to->end(), begin, begin + bytes);
                  }},
                 {});
    const ScratchFolder folder;
    write_bytes(folder.path("x"), stream);
    memory.store.import(*Snapshot::open(folder.path("x")), "s", {});
    check_same(state, memory.get("s"));
    CHECK(exported(memory.store, "s") == saved(state));
}

TEST_CASE("store: names map one to one to keys, and are listed as they are") {
    MemoryStore memory;
    const State state = sample_state({.position = 3});
    std::vector<std::string> names = {"a",
                                      "A",
                                      "a b",
                                      "a/b",
                                      ".",
                                      "..",
                                      "_",
                                      "_-",
                                      "a.",
                                      "\xC3\xA9",
                                      "\xF0\x9F\x90\x88",
                                      std::string(255, 'x'),
                                      std::string(254, 'x'),
                                      std::string(255, 'X'),
                                      std::string(254, 'X'),
                                      std::string(159, 'x'),
                                      std::string(160, 'x'),
                                      std::string(161, 'x')};
    std::string cats;
    for (int i = 0; i < 63; ++i) {
        cats += "\xF0\x9F\x90\x88";
    }
    names.push_back(cats);
    for (const std::string &name : names) {
        memory.put(state, name);
    }
    std::vector<std::string> listed;
    memory.store.list([&](const ListedSession &session) {
        CHECK(session.damage.empty());
        CHECK(session.state == state.digest);
        CHECK(session.position == 3);
        CHECK(session.bytes == saved(state).size());
        listed.push_back(session.name);
        return true;
    });
    std::sort(listed.begin(), listed.end());
    std::sort(names.begin(), names.end());
    CHECK(listed == names);
    const std::string why = "expected 1 to 255 of UTF-8, none of them 0";
    for (const std::string &name :
         {std::string(), std::string(256, 'x'), std::string("\xFF"), std::string("a\xC3"),
          std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("\xF4\x90\x80\x80"),
          std::string("a\0b", 3)}) {
        CHECK(error_of([&] { memory.put(state, name); }).find(why) != std::string::npos);
    }
}
