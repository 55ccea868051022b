// Sampling settings: a session may draw under as many as it likes as long as its log names no more
// than a file can hold; what was rewound counts no more, whatever history led there.
#include <doctest/doctest.h>

#include "tests/abi/changed_files.h"
#include "tests/abi/pulled.h"

using namespace abi_test;
using stasis::State;

namespace {

constexpr size_t kMost = 65535; // settings that a log may name
constexpr uint64_t kBefore = 20;

stasis_status set_seed(stasis_session *session, uint64_t seed) {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 1.5F;
    sampling.seed = seed;
    return stasis_session_set_sampling(session, &sampling, nullptr);
}

stasis_status draw_seeded(stasis_session *session, uint64_t seed, stasis_error *error = nullptr) {
    REQUIRE(set_seed(session, seed) == STASIS_OK);
    stasis_token token = 0;
    return stasis_session_decode(session, &token, error);
}

stasis::Sampling seeded_settings(uint64_t seed) {
    stasis::Sampling sampling;
    sampling.temperature = 1.5F;
    sampling.seed = seed;
    return sampling;
}

// Two sessions are the same from this position on: digest, file and draws, by old settings and new.
void check_same(const Session &a, const Session &b, const Folder &folder) {
    REQUIRE(set_seed(a.get(), 1) == STASIS_OK); // in force, which both may have of their own
    REQUIRE(set_seed(b.get(), 1) == STASIS_OK);
    CHECK(digest(a.get()) == digest(b.get()));
    REQUIRE(save(a.get(), folder.file("a"), STASIS_SAVE_REPLACE) == STASIS_OK);
    REQUIRE(save(b.get(), folder.file("b"), STASIS_SAVE_REPLACE) == STASIS_OK);
    CHECK(read_file(folder.file("a")) == read_file(folder.file("b")));
    for (const uint64_t seed : {uint64_t{70003}, uint64_t{1000000}, uint64_t{1000001}}) {
        stasis_error x, y;
        CHECK(draw_seeded(a.get(), seed, &x) == draw_seeded(b.get(), seed, &y));
        CHECK(std::string(x.message) == y.message);
        CHECK(digest(a.get()) == digest(b.get()));
    }
}

} // namespace

TEST_CASE("stasis_session_set_sampling: settings that drew what was rewound do not count, however "
          "many they were") {
    const Folder folder;
    const std::string plain = folder.file("plain"), full = folder.file("full");
    REQUIRE(save(session_of(llama(), some_tokens(kBefore)).get(), plain) == STASIS_OK);
    for (const size_t before : {kMost - 40, kMost - 1, kMost, kMost + 1}) {
        CAPTURE(before);
        // As the session has become that drew so many times before it was rewound.
        forge_state(plain, full, [&](State &state) {
            state.samplings.clear();
            for (size_t i = 0; i < before; ++i) {
                state.samplings.push_back(seeded_settings(i));
            }
            state.sampling = 0;
        });
        const Session long_lived = load(llama(), full), fresh = load(llama(), plain);
        for (uint64_t seed = 70000; seed < 70100; ++seed) {
            stasis_error error;
            const stasis_status status = draw_seeded(long_lived.get(), seed, &error);
            REQUIRE_MESSAGE(status == STASIS_OK, error.message);
            const bool back = seed % 7 == 0;
            if (back) {
                REQUIRE(stasis_session_rewind(long_lived.get(), kBefore + seed % 3, 0, nullptr,
                                              nullptr) == STASIS_OK);
            }
        }
        // The other one draws only what the first one has kept.
        const Session forked = fork(long_lived.get());
        REQUIRE(stasis_session_rewind(long_lived.get(), kBefore, 0, nullptr, nullptr) == STASIS_OK);
        check_same(long_lived, fresh, folder);
        REQUIRE(save(forked.get(), folder.file("fork"), STASIS_SAVE_REPLACE) == STASIS_OK);
        check_same(forked, load(llama(), folder.file("fork")), folder);
    }
}

TEST_CASE("stasis_session_set_sampling: settings of drawn tokens stay those that drew them when "
          "others are dropped") {
    const Folder folder;
    const std::string plain = folder.file("plain"), full = folder.file("full");
    const Session drawn = session_of(llama(), some_tokens(kBefore));
    for (const uint64_t seed : {5, 5, 9, 7, 5, 70003}) {
        REQUIRE(draw_seeded(drawn.get(), seed) == STASIS_OK);
    }
    REQUIRE(save(drawn.get(), plain) == STASIS_OK);
    forge_state(plain, full, [&](State &state) { // every entry names another place than before
        std::vector<stasis::Sampling> all;
        for (size_t i = 0; all.size() < kMost - state.samplings.size(); ++i) {
            all.push_back(seeded_settings(100000 + i));
        }
        for (stasis::TokenEntry &entry : state.log) {
            if (entry.source == stasis::TokenSource::sampled) {
                entry.sampling = static_cast<uint16_t>(entry.sampling + all.size());
            }
        }
        state.sampling += static_cast<uint32_t>(all.size());
        all.insert(all.end(), state.samplings.begin(), state.samplings.end());
        state.samplings = all;
    });
    const Session crowded = load(llama(), full);
    const Session shares = fork(crowded.get()); // keeps its own places
    check_same(crowded, drawn, folder);
    check_same(shares, load(llama(), plain), folder);
    auto report = sized<stasis_verify_report>();
    stasis_error error;
    const stasis_status status = stasis_snapshot_verify(open_snapshot(folder.file("a")).get(),
                                                        llama(), nullptr, &report, &error);
    CHECK_MESSAGE(status == STASIS_OK, error.message);
    CHECK(report.drawn == 6);
}

TEST_CASE("stasis_session_set_sampling: a log that names as many settings as a file can hold is "
          "full, and says so") {
    const Folder folder;
    const std::string path = folder.file("model");
    std::filesystem::copy(test_data("zoo/mistral-window"), path);
    edit(path + "/config.json", "\"max_position_embeddings\": 2048",
         "\"max_position_embeddings\": 131072");
    const Model model = open_path(path);
    const std::string plain = folder.file("plain"), full = folder.file("full");
    REQUIRE(save(session_of(model.get(), some_tokens(kBefore)).get(), plain) == STASIS_OK);
    std::vector<uint16_t> zeros;
    // In force: the first of the settings, or one that no token was drawn with.
    for (const bool other : {false, true}) {
        forge_state(plain, full, [&](State &state) {
            state.samplings.clear();
            state.log.resize(kBefore);
            for (size_t i = 0; i < kMost; ++i) {
                state.samplings.push_back(seeded_settings(i));
                state.log.push_back({3, static_cast<uint16_t>(i), stasis::TokenSource::sampled});
            }
            state.sampling = 0;
            if (other) {
                state.sampling = static_cast<uint32_t>(state.samplings.size());
                state.samplings.push_back(seeded_settings(2000000));
            }
            const uint64_t position = state.log.size();
            const uint64_t count = stasis::format::page_count(position, state.page_positions);
            zeros.assign(stasis::format::page_elements(state, 0), 0);
            state.pages[0].clear();
            for (uint64_t i = 0; i < count; ++i) {
                state.pages[0].push_back(
                    {stasis::format::page_valid(position, state.page_positions, i),
                     {},
                     i + 4 < count ? nullptr : zeros.data()});
            }
            state.hidden.assign(state.hidden.size(), 0);
            const std::vector<float> row(state.vocabulary);
            state.logits = stasis::Sha256().bytes(row.data(), row.size() * sizeof(float)).finish();
            state.top.clear();
        });
        const Session session = load(model.get(), full);
        REQUIRE(position(session.get()) == kBefore + kMost);
        const Digest before = digest(session.get());
        stasis_error error;
        CHECK(draw_seeded(session.get(), 2000000, &error) == STASIS_FULL);
        CHECK(contains(error, "65535 different sampling settings"));
        CHECK(digest(session.get()) == before);
        if (Generation generation = begin(session.get(), sized<stasis_generate_options>())) {
            PulledEvent event;
            CHECK(try_next(generation.get(), event) == STASIS_FULL);
            CHECK(result_of(generation.get()).count == 0);
            CHECK(digest(session.get()) == before);
        }
        CHECK(draw_seeded(session.get(), 65534) == STASIS_OK); // settings in the log continue
        CHECK(draw_seeded(session.get(), 0) == STASIS_OK);
        REQUIRE(save(session.get(), folder.file("again"), STASIS_SAVE_REPLACE) == STASIS_OK);
        check_same(session, load(model.get(), folder.file("again")), folder);

        // One less is named: one more can be.
        REQUIRE(stasis_session_rewind(session.get(), kBefore + kMost - 1, 0, nullptr, &error) ==
                STASIS_OK);
        append(session.get(), {4});
        CHECK(draw_seeded(session.get(), 2000000, &error) == STASIS_OK);
        CHECK(draw_seeded(session.get(), 2000001, &error) == STASIS_FULL);
        CHECK(draw_seeded(session.get(), 65534, &error) == STASIS_FULL); // the one that was rewound
        REQUIRE(save(session.get(), folder.file("again"), STASIS_SAVE_REPLACE) == STASIS_OK);
        check_same(session, load(model.get(), folder.file("again")), folder);
    }
}
