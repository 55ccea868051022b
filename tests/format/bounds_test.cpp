// Bounds for a file from an untrusted source: time to open it in proportion to its size whatever it
// was forged of, output in proportion too, and a check of the watch in every phase. Generators:
// shapes of files, each in growing sizes, all with right digests.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "format/compare.h"
#include "format/element_json.h"
#include "format/pages.h"
#include "format/state/token_set.h"
#include "format/texts.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Shape kTiny{.position = 0, .layers = 1, .kv_heads = 1, .head_dim = 1, .hidden_size = 1};

// Keys and values are not kept: page digests may be anything.
Bytes file_of(State &state) {
    state.pages.assign(state.groups.size(), {});
    for (std::vector<Page> &pages : state.pages) {
        for (uint64_t i = 0; i < page_count(state.log.size(), state.page_positions); ++i) {
            pages.push_back({page_valid(state.log.size(), state.page_positions, i), {}});
        }
    }
    state.capacity = state.log.size();
    state.digest = state_digest(state);
    return saved(state, {.keep = Keep::none});
}

// A state of n tokens in all; token i is what `token` says, and has a text of `text_bytes`.
State state_of(size_t n, uint32_t (*token)(size_t i), size_t text_bytes = 1) {
    State state = sample_state(kTiny);
    state.vocabulary = UINT32_MAX;
    std::vector<uint32_t> tokens;
    for (size_t i = 0; i < n; ++i) {
        state.log.push_back({token(i)});
        tokens.push_back(token(i));
    }
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    state.token_texts.clear();
    for (const uint32_t each : tokens) {
        state.token_texts.emplace_back(each, std::string(text_bytes, '\x01'));
    }
    state.hidden = {0x3F80};
    return state;
}

// Tokens that a multiplicative hash, of which the upper half is taken, puts into few places.
uint32_t colliding(size_t i) {
    static std::vector<uint32_t> tokens;
    for (uint32_t next = tokens.empty() ? 0 : tokens.back() + 1; tokens.size() <= i; ++next) {
        if ((next * 0x9E3779B97F4A7C15U >> 32 & 0x1FFFF) < 0x400) {
            tokens.push_back(next);
        }
    }
    return tokens[i];
}

struct Grown {
    const char *name;
    size_t size;
    Bytes (*make)(size_t n);
};

const std::vector<Grown> kGrown = {
    {"a long text at each position", 500,
     [](size_t n) {
         State state = state_of(
             n, [](size_t) { return 7U; }, kTextBytesMax);
         return file_of(state);
     }},
    {"tokens that collide", 6000,
     [](size_t n) {
         State state = state_of(n, colliding);
         return file_of(state);
     }},
    {"as many spans as positions", 2000,
     [](size_t n) {
         State state = state_of(
             n, [](size_t i) { return static_cast<uint32_t>(i % 3); }, 64);
         for (size_t i = 0; i < n; ++i) {
             state.log[i].source = i % 2 == 0 ? TokenSource::templated : TokenSource::text;
             state.log[i].turn = TokenEntry::kTurnStart | static_cast<uint8_t>(Role::assistant);
         }
         return file_of(state);
     }},
    {"long texts of the best logits", 300,
     [](size_t n) {
         State state = state_of(
             n, [](size_t) { return 7U; }, kTextBytesMax);
         for (size_t i = 0; i < kTopMax; ++i) {
             state.top.emplace_back(7, -static_cast<float>(i));
         }
         state.top.erase(state.top.begin(), state.top.end() - kTopMax);
         return file_of(state);
     }},
    {"many settings", 2000,
     [](size_t n) {
         State state = state_of(n, [](size_t) { return 7U; });
         state.samplings.resize(n);
         state.sampling = 0;
         for (size_t i = 0; i < n; ++i) {
             state.samplings[i].temperature = 1.17549435e-38F * static_cast<float>(i + 1);
             state.log[i].source = TokenSource::sampled;
             state.log[i].sampling = static_cast<uint16_t>(i);
         }
         return file_of(state);
     }},
    {"many sets of tokens", 1000,
     [](size_t n) {
         State state = state_of(n, [](size_t) { return 7U; });
         state.samplings.resize(n);
         state.sampling = 0;
         state.contract.sampling = 3;
         state.vocabulary = kSettingsVocabularyMax;
         const uint32_t first = state.vocabulary - 4000;
         TokenRuns runs;
         for (uint32_t token = first; token < state.vocabulary; token += 2) {
             runs.insert(runs.end(), {token, token + 1});
         }
         std::string set = encode_tokens(runs, state.vocabulary);
         for (uint32_t i = 0; i < n; ++i) { // each told in a few bytes, as long as that may be
             const uint32_t token = first + i * 7919 % 4000 / 2 * 2 + 1;
             set = changed_tokens(set, {token, token + 1}, state.vocabulary);
             state.samplings[i].bias = {{1, 0.1F}, {2, -3e-30F}};
             state.samplings[i].v3.allowed.value = std::make_shared<const std::string>(set);
             state.log[i].source = TokenSource::sampled;
             state.log[i].sampling = static_cast<uint16_t>(i);
         }
         return file_of(state);
     }},
    {"many layer groups and evictions", 30,
     [](size_t n) {
         State state = state_of(64 * n, [](size_t i) { return static_cast<uint32_t>(i % 50); });
         state.layers = static_cast<uint32_t>(n);
         state.groups.resize(n);
         state.model.attention.assign(n, {});
         state.model.mlp.assign(n, {});
         for (uint32_t layer = 0; layer < n; ++layer) {
             state.groups[layer] = {0, {layer}};
         }
         for (uint64_t i = 0; i < 16 * n; ++i) {
             state.evictions.push_back(
                 {4 * i + 4, {{4 * i, 4 * i + 1}, {4 * i + 2, 4 * i + 3}}, {0x3F80}});
         }
         return file_of(state);
     }},
    {"many layer groups of other sizes, and layers that share", 100,
     [](size_t n) {
         State state = state_of(64, [](size_t i) { return static_cast<uint32_t>(i % 50); });
         state.layers = static_cast<uint32_t>(2 * n);
         state.groups.resize(n);
         state.model.attention.assign(2 * n, {});
         state.model.mlp.assign(2 * n, {});
         for (uint32_t i = 0; i < n; ++i) { // the last allocate nothing by their sizes
             state.groups[i] = {0, {2 * i}, 1U << i % 17, 65536};
             state.sharing.push_back(2 * i + 1);
         }
         return file_of(state);
     }},
    {"a recurrent state at each position", 1000,
     [](size_t n) {
         State state = state_of(n, [](size_t i) { return static_cast<uint32_t>(i % 50); });
         state.contract.recurrent = 1;
         state.groups.clear();
         state.recurrent = {{0}, 1, 1, 1, 1, 1};
         for (uint64_t position = 1; position <= n; ++position) {
             state.states.push_back({position, {}, nullptr});
         }
         return file_of(state);
     }},
    {"many names in the config", 2000,
     [](size_t n) {
         State state = state_of(10, [](size_t) { return 7U; });
         for (size_t i = 0; i < n; ++i) {
             state.model.config.emplace_back(std::string(20, '\x02') + std::to_string(i), "\x01");
         }
         return file_of(state);
     }},
    {"many biases", 5000, [](size_t n) {
         State state = state_of(10, [](size_t) { return 7U; });
         for (uint32_t i = 0; i < n; ++i) {
             state.samplings[1].bias.emplace_back(100 + 1000 * i, 0.1F);
         }
         state.samplings[1].v2.dry_breakers.resize(n);
         for (uint32_t i = 0; i < n; ++i) {
             state.samplings[1].v2.dry_breakers[i] = 1000 * i;
         }
         state.contract.sampling = 2;
         return file_of(state);
     }}};

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of several times, for others use the machine too.
double seconds_to_open(const Bytes &bytes) {
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
        const double begin = cpu_seconds();
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        for (uint32_t element = 1; element <= 12; ++element) {
            element_json(*snapshot, element, {});
        }
        least = std::min(least, cpu_seconds() - begin);
    }
    return least;
}

} // namespace

TEST_CASE("Snapshot::open: files of every shape open in time that is proportional to their size") {
    for (const Grown &shape : kGrown) {
        CAPTURE(std::string(shape.name));
        const Bytes small = shape.make(shape.size), large = shape.make(4 * shape.size);
        const double growth = static_cast<double>(large.size()) / static_cast<double>(small.size());
        const double before = seconds_to_open(small), after = seconds_to_open(large);
        CAPTURE(before);
        CAPTURE(after);
        CHECK(after < 2.5 * growth * before + 0.02);
    }
}

TEST_CASE("element_json: no element unfolds to more than a few times its file, nor is it built to "
          "be measured") {
    for (const Grown &shape : kGrown) {
        for (const size_t size : {size_t{1}, shape.size / 10, shape.size}) {
            CAPTURE(std::string(shape.name));
            CAPTURE(size);
            const Bytes bytes = shape.make(size);
            const auto snapshot = Snapshot::open("memory", memory_files(bytes));
            for (uint32_t element = 1; element <= 12; ++element) {
                CAPTURE(element);
                largest_allocation();
                const size_t length = element_json(*snapshot, element, {});
                CHECK(length <= 64 * bytes.size() + 65536);
                CHECK(largest_allocation() <= bytes.size() + 4096);
                const std::string text = element_text(*snapshot, element);
                REQUIRE(text.size() == length);
                for (const size_t room : {size_t{0}, size_t{1}, length / 2, length - 1}) {
                    std::string part(room + 1, '#'); // what fits, and nothing after it
                    CHECK(element_json(*snapshot, element, std::span(part).first(room)) == length);
                    CHECK(part == text.substr(0, room) + "#");
                }
            }
        }
    }
}

TEST_CASE(
    "element_json: texts of the log are cut where they would be more than four times the file") {
    for (const size_t text_bytes : {size_t{1}, size_t{300}, kTextBytesMax}) {
        for (const size_t positions : {size_t{1}, size_t{100}, size_t{3000}}) {
            State state = state_of(
                positions, [](size_t) { return 7U; }, text_bytes);
            state.token_texts[0].second.assign(text_bytes, 'a');
            const Bytes bytes = file_of(state);
            const auto snapshot = Snapshot::open("memory", memory_files(bytes));
            const std::string json = element_text(*snapshot, 4);
            const size_t begin = json.rfind("\"text\":\"") + 8, end = json.rfind('"');
            const std::string shown = json.substr(begin, end - begin);
            const size_t fits = 4 * bytes.size() / text_bytes;
            CHECK(shown == (positions <= fits ? std::string(positions * text_bytes, 'a')
                                              : std::string(fits * text_bytes, 'a') + "\u2026"));
        }
    }
}

namespace {

uint64_t bytes_since_look = 0; // since the watch was looked at

ssize_t read_counted(int descriptor, void *data, size_t size_bytes, off_t offset) {
    bytes_since_look += size_bytes;
    return read_memory(descriptor, data, size_bytes, offset);
}

struct Looks {
    uint64_t count = 0, last = UINT64_MAX, most = 0; // bytes between two looks

    static bool look(void *user, uint64_t, uint64_t) {
        auto &looks = *static_cast<Looks *>(user);
        looks.most = std::max(looks.most, bytes_since_look);
        bytes_since_look = 0;
        return ++looks.count <= looks.last;
    }
};

} // namespace

TEST_CASE(
    "Snapshot::open: opening looks at the watch in every phase, and ends where it is told to") {
    const Shape shape{.position = 2000, .layers = 3};
    const std::vector<float> row = sample_row(shape);
    const Bytes bytes = saved(sample_state(shape), {.logits_row = row});
    FileOperations files = memory_files(bytes);
    files.read_at = read_counted;
    const auto open = [&](Looks &looks) {
        bytes_since_look = 0;
        memory_files(bytes);
        return Snapshot::open("memory", files, {nullptr, Looks::look, &looks});
    };
    Looks all;
    open(all);
    CHECK(all.count > 20);
    CHECK(all.most <= size_t{5} << 20);
    for (uint64_t last = 0; last < all.count; ++last) {
        Looks looks;
        looks.last = last;
        try {
            open(looks);
            FAIL("it went on");
        } catch (const Error &error) {
            CHECK(error.status() == Status::stopped);
        }
        CHECK(looks.count == last + 1);
    }
    std::atomic<bool> cancel = true;
    CHECK_THROWS_AS(Snapshot::open("memory", files, {&cancel, nullptr, nullptr}), Error);
}

TEST_CASE(
    "compare: comparing files takes memory by what is stored, not by what a page could hold") {
    const Shape shape{.position = 3,
                      .layers = 1,
                      .kv_heads = 8,
                      .head_dim = 1024,
                      .hidden_size = 1,
                      .page_positions = 256};
    State state = sample_state(shape);
    const Page page = state.pages[0][0];
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        for (const Keep keep : {Keep::full, Keep::none}) {
            state.pages[0][0] = page;
            const Bytes a = saved(state, {.codec = codec});
            std::vector<uint16_t> changed(page.data, page.data + page_elements(state, 0));
            changed[5 * 256 * 1024 + 2 * 1024 + 7] ^= 1; // the keys of head 5 at position 2
            state.pages[0][0].data = changed.data();
            seal(state);
            const Bytes b = saved(state, {.keep = keep, .codec = codec});
            const auto x = Snapshot::open_input(Input(a)), y = Snapshot::open_input(Input(b));
            largest_allocation();
            const Difference difference = compare(*x, *y, {});
            CHECK(largest_allocation() < 4 * a.size());
            CHECK(difference.position == 2);
            CHECK(difference.layer == 0);
            CHECK(difference.head == (keep == Keep::full ? 5 : kNowhere));
            state.pages[0][0] = page;
            seal(state);
        }
    }
}

TEST_CASE("Snapshot::open: texts chosen by sorting are those of the log, whatever its tokens are") {
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        std::vector<TokenEntry> log(random() % 40);
        for (TokenEntry &entry : log) {
            entry.token = random() % 4 == 0 ? random() % 1000000 : random() % 10;
        }
        TokenTexts wanted; // every second token of the log
        for (const TokenEntry &entry : log) {
            wanted.emplace_back(entry.token, "t" + std::to_string(entry.token));
        }
        std::sort(wanted.begin(), wanted.end());
        wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        TokenTexts file = continued_texts({}, wanted, log);
        CHECK(file.size() == wanted.size());
        size_t next = 0; // in the order of first use
        for (const TokenEntry &entry : log) {
            const auto found = std::find_if(file.begin(), file.end(), [&](const auto &text) {
                return text.first == entry.token;
            });
            const auto place = static_cast<size_t>(found - file.begin());
            CHECK(place <= next);
            next += place == next ? 1 : 0;
        }
        CHECK(next == file.size());
        CHECK(texts_of_log(file, log, 1000000) == wanted);
        CHECK(continued_texts(file, wanted, log) == file);
        file.emplace_back(2000000, "elsewhere"); // stays, and is no part of the state
        CHECK(continued_texts(file, wanted, log) == file);
        CHECK(texts_of_log(file, log, 3000000) == wanted);
        CHECK_THROWS_AS(texts_of_log(file, log, 2000000), Error);
        file.push_back(file[random() % file.size()]);
        CHECK_THROWS_AS(texts_of_log(file, log, 3000000), Error);
    }
}
