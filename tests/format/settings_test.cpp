// Settings of which thousands have sets of tokens: what comes back, what a commit writes of them,
// what they take, and what no save writes.
#include <doctest/doctest.h>

#include <random>

#include "format/set_code.h"
#include "format/settings.h"
#include "format/state/token_set.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

constexpr uint32_t kLarge = 262144;
using Sets = std::vector<std::string>;

std::string random_set(std::mt19937 &random, double density, uint32_t vocabulary) {
    std::vector<uint64_t> bits(vocabulary / 64 + 1);
    std::bernoulli_distribution in(density);
    for (uint32_t token = 0; token < vocabulary; ++token) {
        bits[token / 64] |= uint64_t{in(random)} << token % 64;
    }
    bits[0] |= 1;
    return encode_tokens(runs_of_bits(bits.data(), vocabulary), vocabulary);
}

std::string with_turned(std::mt19937 &random, std::string set, uint32_t tokens,
                        uint32_t vocabulary) {
    for (uint32_t i = 0; i < tokens; ++i) {
        const uint32_t token = 1 + random() % (vocabulary - 1);
        set = changed_tokens(set, {token, token + 1}, vocabulary);
    }
    return set;
}

// Series in which sets change by a few tokens, jump to another density, and come again.
Sets series(size_t count, uint32_t vocabulary) {
    std::mt19937 random(5);
    Sets sets;
    for (size_t i = 0; i < count; ++i) {
        const double densities[] = {0.001, 0.03, 0.5, 0.97};
        if (i % 50 == 0) {
            sets.push_back(random_set(random, densities[i / 50 % 4], vocabulary));
        } else if (i % 7 == 6) {
            sets.push_back(sets[random() % i]);
        } else {
            sets.push_back(with_turned(random, sets.back(), random() % 9, vocabulary));
        }
    }
    return sets;
}

// Each token drawn under settings of its own, some without a set, under two kinds of others.
State drawn_under(const Sets &sets, uint32_t vocabulary = 1000) {
    Shape shape = kSmall;
    shape.position = sets.size();
    shape.vocabulary = vocabulary;
    State state = sample_state(shape);
    const std::vector<Sampling> plain = {state.samplings[0], state.samplings[1]};
    state.samplings.clear();
    for (size_t i = 0; i < sets.size(); ++i) {
        state.samplings.push_back(plain[i % 3 == 0 ? 1 : 0]);
        if (!sets[i].empty()) {
            state.samplings.back().v3.allowed.value = std::make_shared<const std::string>(sets[i]);
        }
        state.log[i].source = TokenSource::sampled;
        state.log[i].sampling = static_cast<uint16_t>(i);
    }
    state.sampling = static_cast<uint32_t>(sets.size() - 1);
    return state;
}

std::shared_ptr<const Snapshot> open_copy(const Bytes &bytes) {
    return Snapshot::open("memory", memory_files(bytes));
}

void check_settings(const State &state, const Snapshot &snapshot) {
    CHECK(snapshot.state().samplings == state.samplings);
    CHECK(snapshot.state().sampling == state.sampling);
    CHECK(snapshot.state().log == state.log);
    CHECK(snapshot.root().features_refuse == kFeatureSettings);
    CHECK((snapshot.root().features_read & kFeatureSamplingV3) != 0);
}

size_t bytes_of(const std::vector<SettingRecord> &records) {
    size_t bytes = 0;
    for (const SettingRecord &record : records) {
        bytes += 16 + record.code.size();
    }
    return bytes;
}

// The most that an item of a series takes, and what all take on average.
struct Taken {
    size_t most = 0, average = 0;
};
Taken taken(const Sets &sets) {
    State state;
    state.vocabulary = kLarge;
    for (const std::string &set : sets) {
        state.samplings.emplace_back().v3.allowed.value = std::make_shared<const std::string>(set);
    }
    Taken taken;
    const std::vector<SettingRecord> records = list_settings(state, {}, {});
    REQUIRE(records.size() == sets.size());
    for (const SettingRecord &record : records) {
        taken.most = std::max(taken.most, 16 + record.code.size());
    }
    taken.average = bytes_of(records) / records.size();
    state.samplings = {Sampling()};
    read_settings(records, state);
    for (size_t i = 0; i < sets.size(); ++i) {
        REQUIRE(*state.samplings[i].v3.allowed.value == sets[i]);
    }
    return taken;
}

// The file with one item changed, or more of them.
Bytes with_items(const Bytes &file,
                 const std::function<void(std::vector<SettingRecord> &)> &change) {
    return forged_node(file, TreeKind::settings, 0, 0, 0, [&](Bytes &node) {
        uint32_t header[4];
        std::memcpy(header, node.data(), sizeof header);
        std::vector<SettingRecord> items;
        parse_settings(node, header[3], items);
        change(items);
        node.resize(kNodeHeaderBytes);
        add_settings(node, items);
    });
}

} // namespace

TEST_CASE("save: settings with sets come back, by the thousand, in every form of a file") {
    Sets sets = series(3000, 1000);
    sets[17] = sets[18] = ""; // drawn from all tokens
    const State state = drawn_under(sets);
    const Bytes file = saved(state, {.codec = Codec::zstd});
    check_settings(state, *open_copy(file));
    const auto snapshot = open_copy(file);
    // Equal sets are one in memory, and what the manifest says is named, not said again.
    CHECK(snapshot->layout().setting_count == 3000);
    CHECK(snapshot->root().manifest_bytes < 3000);
    Bytes stream;
    write_stream(state,
                 {&stream,
                  [](void *user, const void *data, size_t size_bytes) {
                      const auto *from = static_cast<const uint8_t *>(data);
                      auto *to = static_cast<Bytes *>(user);
                      to->insert(to->end(), from, from + size_bytes);
                  }},
                 {});
    check_settings(state, *open_copy(stream));
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    write_bytes(path, file);
    compact(path, {.codec = Codec::zstd});
    CHECK(read_bytes(path) == file);
    // Gone with the next commit.
    save(sample_state(
             {.position = 3001, .layers = 2, .kv_heads = 1, .head_dim = 3, .vocabulary = 1000}),
         path, {});
    CHECK(Snapshot::open(path)->root().features_refuse == 0);
    CHECK(Snapshot::open(path)->layout().settings == NodeRef());
}

TEST_CASE("save: a commit writes its new sets alone, and no manifest grows with them") {
    const ScratchFolder folder;
    const std::string path = folder.path("s"), other = folder.path("other");
    const Sets sets = series(2000, 1000);
    std::shared_ptr<const Contents> known;
    std::vector<uint64_t> manifests, files;
    for (size_t end = 100; end <= sets.size(); end += 100) {
        const State state = drawn_under({sets.begin(), sets.begin() + static_cast<ptrdiff_t>(end)});
        known = save(state, path, {.keep = Keep::none, .known = end % 300 == 0 ? known : nullptr});
        manifests.push_back(Snapshot::open(path)->root().manifest_bytes);
        files.push_back(read_bytes(path).size());
        check_settings(state, *Snapshot::open(path));
    }
    CHECK(manifests.back() == manifests.front());
    // 100 sets of at most 126 bytes, log, pages' digests, and what every commit writes.
    for (size_t i = 1; i < files.size(); ++i) {
        CHECK(files[i] - files[i - 1] < 100 * 142 + 16000);
    }
    // The same state saved at once has the same items.
    save(drawn_under(sets), other, {.keep = Keep::none});
    CHECK(Snapshot::open(other)->contents()->settings ==
          Snapshot::open(path)->contents()->settings);
    // After a rewind and other tokens the nodes of what is left are used again.
    Sets fork(sets.begin(), sets.begin() + 1600);
    fork.push_back(sets[1999]);
    const auto before = Snapshot::open(path)->trees().settings;
    save(drawn_under(fork), path, {.keep = Keep::none});
    const auto after = Snapshot::open(path)->trees().settings;
    check_settings(drawn_under(fork), *Snapshot::open(path));
    REQUIRE(after.levels[0].size() == 101);
    CHECK(std::equal(after.levels[0].begin(), after.levels[0].begin() + 100,
                     before.levels[0].begin()));
}

TEST_CASE("list_settings: sets take what FORMAT.md says, whatever they are") {
    std::mt19937 random(9);
    for (const double density : {0.0005, 0.01, 0.06, 0.5, 0.94, 0.999}) {
        CAPTURE(density);
        Sets few{random_set(random, density, kLarge)}, anew;
        for (int i = 0; i < 70; ++i) {
            few.push_back(with_turned(random, few.back(), 20, kLarge));
            anew.push_back(random_set(random, density, kLarge));
        }
        const Taken small = taken(few), large = taken(anew);
        MESSAGE("of " << density << ": changes " << small.average << ", anew " << large.average);
        CHECK(small.average <= 2048 + 60 + large.most / few.size());
        CHECK(large.most <= kLarge / 8 + 19);
        CHECK(large.most < (density < 0.03 || density > 0.97 ? 8192 : kLarge));
    }
    // The dearest sets of 3 %: tokens far from each other, all in a heap, as rows and columns.
    const uint32_t most = kLarge * 3 / 100;
    Sets sets;
    for (const uint32_t step : {1U, 2U, 3U, 33U}) {
        for (const uint32_t begin : {0U, 77U}) {
            TokenRuns runs;
            for (uint32_t i = 0; i < most; ++i) {
                const uint32_t token = begin + i * step;
                if (step == 1 && i > 0) {
                    ++runs.back();
                } else {
                    runs.insert(runs.end(), {token, token + 1});
                }
            }
            sets.push_back(encode_tokens(runs, kLarge));
        }
    }
    CHECK(taken(sets).most < 8192);
    // Every token by turns: a bit for each.
    TokenRuns turns;
    for (uint32_t token = 0; token < kLarge; ++token) {
        turns.push_back(token);
    }
    CHECK(taken({encode_tokens(turns, kLarge)}).most <= kLarge / 8 + 19);
}

TEST_CASE(
    "difference: what only one of two sets has, in either form, and applied to one the other") {
    std::mt19937 random(13);
    size_t forms[2][2] = {};
    for (const uint32_t vocabulary : {1U, 63U, 64U, 65U, 1000U, 4100U}) {
        for (int round = 0; round < 60; ++round) {
            const double densities[] = {0.01, 0.5, 0.99};
            const std::string one = random_set(random, densities[round % 3], vocabulary);
            const std::string other = random_set(random, densities[round / 3 % 3], vocabulary);
            ++forms[static_cast<size_t>(one[0])][static_cast<size_t>(other[0])];
            const auto bits = [&](const std::string &set) {
                std::vector<bool> found(vocabulary);
                const TokenRuns runs = *decode_tokens(set, vocabulary);
                for (size_t i = 0; i < runs.size(); i += 2) {
                    std::fill(found.begin() + runs[i], found.begin() + runs[i + 1], true);
                }
                return found;
            };
            const std::vector<bool> a = bits(one), b = bits(other);
            TokenRuns expected;
            for (uint32_t token = 0; token <= vocabulary; ++token) {
                const bool in = token < vocabulary && a[token] != b[token];
                if (in != (expected.size() % 2 == 1)) {
                    expected.push_back(token);
                }
            }
            CHECK(difference(one, other, vocabulary) == expected);
            CHECK(count_difference(one, other, vocabulary) == expected.size());
            CHECK(changed_tokens(one, expected, vocabulary) == other);
            CHECK(changed_tokens(other, expected, vocabulary) == one);
            CHECK(difference({}, one, vocabulary) == *decode_tokens(one, vocabulary));
            CHECK(is_token_set(one, vocabulary));
        }
    }
    CHECK(std::min({forms[0][0], forms[0][1], forms[1][0], forms[1][1]}) > 10);
}

TEST_CASE("encode_runs: runs come back, and what is not their code is told") {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        TokenRuns runs;
        const uint32_t vocabulary = round % 3 == 0 ? UINT32_MAX : kLarge;
        const uint32_t most = 1U << random() % 20;
        for (uint64_t token = random() % most; token < vocabulary && runs.size() < 300;
             token += 1 + random() % most) {
            runs.push_back(static_cast<uint32_t>(token));
        }
        if (runs.size() % 2 == 1) {
            runs.push_back(vocabulary);
        }
        if (runs.empty()) {
            continue;
        }
        const auto count = static_cast<uint32_t>(runs.size());
        const std::vector<uint8_t> code = encode_runs(runs);
        REQUIRE(decode_runs(code, count, vocabulary) == runs);
        CHECK(decode_runs(code, count + 1, vocabulary).empty());
        CHECK(decode_runs(code, static_cast<uint32_t>(8 * code.size()), vocabulary).empty());
        CHECK(decode_runs(code, count, runs.back() - 1).empty());
        std::vector<uint8_t> other = code;
        other.push_back(0);
        CHECK(decode_runs(other, count, vocabulary).empty());
        other.resize(code.size() - 1);
        CHECK(decode_runs(other, count, vocabulary).empty());
        for (int i = 0; i < 20; ++i) { // anything else is other runs, or none
            other = code;
            other[random() % other.size()] ^= static_cast<uint8_t>(1U << random() % 8);
            const TokenRuns found = decode_runs(other, count, vocabulary);
            CHECK(found != runs);
            CHECK((found.empty() || (found.size() == count && found.back() <= vocabulary &&
                                     std::is_sorted(found.begin(), found.end(),
                                                    [](auto a, auto b) { return a <= b; }))));
        }
    }
}

TEST_CASE("Snapshot::open: items that no save writes are refused") {
    Sets sets = {"", encode_tokens({1, 4}, 50), encode_tokens({1, 5}, 50),
                 encode_tokens({1, 4}, 50)};
    State state = drawn_under(sets, 50);
    const Bytes file = saved(state);
    using Items = std::vector<SettingRecord>;
    CHECK(refusal(with_items(file, [](Items &) {})).empty());
    const auto bad = [&](const char *why, const std::function<void(Items &)> &change) {
        CAPTURE(why);
        check_refused(why, with_items(file, change));
    };
    bad("item 0: it names settings that the manifest does not have",
        [](Items &i) { i[0].plain = 1; });
    bad("item 3: it names settings that the manifest does not have",
        [](Items &i) { i[3].plain = 2; });
    bad("item 2: it is told from a set that is not there", [](Items &i) { i[2].from = 2; });
    bad("item 2: it is told from a set that is not there", [](Items &i) { i[2].from = 3; });
    bad("item 2: it is told from a set that is not there",
        [](Items &i) { i[2].from = UINT32_MAX; });
    bad("item 3: a code of nothing", [](Items &i) { i[3].code = {0}; });
    for (const uint32_t count : {1U, 3U, 64U, UINT32_MAX}) {
        bad("item 1: its code is not of so many", [=](Items &i) { i[1].edges = count; });
    }
    bad("item 1: its code is not of so many", [](Items &i) { i[1].code.push_back(0); });
    bad("item 1: its code is not of so many", [](Items &i) { i[1].code[0] = 32; });
    bad("item 1: its code is not of so many", [](Items &i) { i[1].code.back() |= 0x80; });
    bad("item 1: its code is not of so many", [](Items &i) { i[1].code = encode_runs({1, 51}); });
    bad("no set of any", [](Items &i) { // what it differs in is all of it
        i[2] = {i[2].plain, 1, 2, encode_runs({1, 4})};
    });
    bad("0 sets", [](Items &i) {
        for (SettingRecord &each : i) {
            each = {each.plain, 0, 0, {}};
        }
    });
    // Beside the items.
    const auto manifest = [&](const char *why, const Change &change) {
        CAPTURE(why);
        check_refused(why, forged(file, change));
    };
    manifest("2 of 4 in the manifest are named", [](State &, Layout &layout) {
        layout.plain_settings = {0, 1, 2, 3};
    });
    manifest("4 items, expected 4, 0, 0, 5",
             [](State &, Layout &layout) { layout.setting_count = 5; });
    manifest("65537 items", [](State &, Layout &layout) { layout.setting_count = 65537; });
    manifest("nothing in it", [](State &, Layout &layout) { layout.setting_count = 0; });
    manifest("settings of version 3 are missing",
             [](State &, Layout &layout) { layout.settings = {}; });
    manifest("for a vocabulary of 8388609", [](State &s, Layout &) { s.vocabulary = 8388609; });
    manifest("sets beside sets in the manifest", [](State &s, Layout &layout) {
        const auto set = s.samplings[1].v3.allowed; // as if the manifest had it
        s.samplings = {s.samplings[0], s.samplings[1]};
        s.samplings[0].v3.allowed = set;
        layout.plain_settings.clear();
    });
}

TEST_CASE("Snapshot::open: a small file whose items say much is refused") {
    std::mt19937 random(1);
    const uint32_t vocabulary = 30000;
    State state = drawn_under({random_set(random, 0.5, vocabulary)}, vocabulary);
    for (size_t i = 1; i < 37; ++i) {
        state.samplings.push_back(state.samplings[0]);
        state.samplings.back().v3.allowed.value = std::make_shared<const std::string>(
            with_turned(random, *state.samplings[i - 1].v3.allowed.value, 1, vocabulary));
    }
    const Bytes file = saved(state); // of its items a few are whole
    const auto told = [&](size_t whole) {
        return with_items(file, [&](std::vector<SettingRecord> &items) {
            for (size_t i = 1; i < items.size(); ++i) {
                items[i] = {0, 1, 2, encode_runs({7, 8})};
                if (i % whole == 0) {
                    items[i] = {items[0].plain, 0, items[0].edges, items[0].code};
                }
            }
        });
    };
    CHECK(refusal(told(8)).empty());
    check_refused("too short for what they say", told(100));
    // The same of what they share.
    state = drawn_under({encode_tokens({1, 4}, 50), encode_tokens({1, 5}, 50)}, 50);
    state.samplings[1] = state.samplings[0];
    state.samplings[1].v3.allowed.value =
        std::make_shared<const std::string>(encode_tokens({1, 5}, 50));
    state.samplings[0].bias.clear();
    for (uint32_t token = 0; token < 50; ++token) {
        state.samplings[0].bias.emplace_back(token, 1.0F);
    }
    state.samplings[1].bias = state.samplings[0].bias;
    const Bytes biased = saved(state); // in the manifest twice
    CHECK(open_copy(biased)->layout().plain_settings == std::vector<uint32_t>{0, 1});
    CHECK(open_copy(biased)->state().samplings == state.samplings);
    check_refused(
        "item 1: the items so far are too short",
        with_items(biased, [](std::vector<SettingRecord> &items) { items[1].plain = 0; }));
}

TEST_CASE("Snapshot::open: sets that a manifest holds are read, and a commit gives them a tree") {
    const Sets sets = series(60, 50);
    const State state = drawn_under(sets, 50);
    const Bytes older = with_settings_in_manifest(saved(state), [](State &, Layout &) {});
    const auto snapshot = open_copy(older);
    CHECK(snapshot->root().features_refuse == 0);
    CHECK(snapshot->layout().settings == NodeRef());
    CHECK(snapshot->state().samplings == state.samplings);
    const ScratchFolder folder;
    write_bytes(folder.path("s"), older);
    Sets more = sets;
    more.push_back(encode_tokens({3, 4}, 50));
    save(drawn_under(more, 50), folder.path("s"), {});
    check_settings(drawn_under(more, 50), *Snapshot::open(folder.path("s")));
}

TEST_CASE("save: sets of a vocabulary too large for a tree stay in the manifest") {
    Shape shape = kSmall;
    State state = sample_state(shape);
    state.vocabulary = kSettingsVocabularyMax + 1;
    state.samplings[1].v3.allowed.value =
        std::make_shared<const std::string>(encode_tokens({5, 8388609}, state.vocabulary));
    const Bytes file = saved(state);
    CHECK(open_copy(file)->root().features_refuse == 0);
    CHECK(open_copy(file)->state().samplings == state.samplings);
    state.vocabulary = kSettingsVocabularyMax;
    state.samplings[1].v3.allowed.value =
        std::make_shared<const std::string>(encode_tokens({5, 8388608}, state.vocabulary));
    CHECK(open_copy(saved(state))->root().features_refuse == kFeatureSettings);
    CHECK(open_copy(saved(state))->state().samplings == state.samplings);
}
