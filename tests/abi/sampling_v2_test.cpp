// Sampling of version 2 of C7 through the ABI: what is drawn under it can be drawn again, by the
// session, by steps, after a load, and by verification; and snapshots say when they need it.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

const stasis_token kBreakers[] = {50, 7, 7, 100};

stasis_sampling warm() {
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 2.0F;
    sampling.seed = 5;
    return sampling;
}

struct Processor {
    const char *name;
    void (*use)(stasis_sampling &sampling);
};

const Processor kProcessors[] = {
    {"typical_p", [](stasis_sampling &s) { s.typical_p = 0.5F; }},
    {"top_n_sigma", [](stasis_sampling &s) { s.top_n_sigma = 1.0F; }},
    {"xtc",
     [](stasis_sampling &s) {
         s.xtc_probability = 0.5F;
         s.xtc_threshold = 0.005F;
     }},
    {"dry",
     [](stasis_sampling &s) {
         s.dry_multiplier = 20;
         s.dry_allowed_length = 1;
         s.dry_breakers = kBreakers;
         s.dry_breaker_count = 4;
     }},
    {"min_keep",
     [](stasis_sampling &s) {
         s.top_p = 0.01F;
         s.min_keep = 10;
     }},
};

void set(stasis_session *session, const stasis_sampling &sampling) {
    stasis_error error;
    const stasis_status status = stasis_session_set_sampling(session, &sampling, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

Tokens decode_by_steps(stasis_session *session, size_t count) {
    Tokens tokens;
    for (size_t i = 0; i < count; ++i) {
        auto item = sized<stasis_step_item>();
        item.session = session;
        item.flags = STASIS_STEP_SAMPLE;
        REQUIRE(stasis_sessions_step(&item, sizeof item, 1, nullptr, 0, nullptr, nullptr) ==
                STASIS_OK);
        REQUIRE(item.status == STASIS_OK);
        tokens.push_back(item.token);
    }
    return tokens;
}

stasis_verify_report verify(const std::string &path) {
    auto report = sized<stasis_verify_report>();
    stasis_error error;
    const stasis_status status =
        stasis_snapshot_verify(open_snapshot(path).get(), gemma(), nullptr, &report, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return report;
}

} // namespace

TEST_CASE("stasis_session_set_sampling: sampling of version 2: drawn again after a load, in steps "
          "and by verification") {
    const Folder folder;
    Tokens prompt = some_tokens(40);
    prompt.insert(prompt.end(), prompt.begin(), prompt.end()); // there is something to repeat
    const Session plain = session_of(gemma(), prompt);
    set(plain.get(), warm());
    const Tokens usual = draw(fork(plain.get()).get(), 60);
    for (const Processor &processor : kProcessors) {
        CAPTURE(processor.name);
        const Session session = fork(plain.get()), stepped = fork(plain.get());
        stasis_sampling sampling = warm();
        processor.use(sampling);
        set(session.get(), sampling);
        set(stepped.get(), sampling);
        const Tokens drawn = draw(session.get(), 60);
        CHECK(drawn != usual); // it does something
        CHECK(decode_by_steps(stepped.get(), 60) == drawn);
        const std::string path = folder.file(processor.name);
        REQUIRE(save(session.get(), path) == STASIS_OK);
        const stasis_verify_report report = verify(path);
        CHECK(report.verified == 1);
        CHECK(report.drawn == 60);
        CHECK(report.drawn_otherwise == 0);
        const Session loaded = load(gemma(), path);
        CHECK(draw(loaded.get(), 20) == draw(session.get(), 20));
        CHECK(snapshot_info(path).contract[2] == 2);
    }
}

TEST_CASE(
    "stasis_session_set_sampling: sampling of version 2: its defaults are those of no version 2") {
    const Session session = session_of(gemma(), some_tokens(30));
    stasis_sampling sampling = warm();
    sampling.typical_p = 1;
    sampling.xtc_threshold = 0.1F;
    sampling.dry_base = 1.75F;
    sampling.dry_allowed_length = 2;
    sampling.min_keep = 1;
    const Session other = fork(session.get());
    set(session.get(), warm());
    set(other.get(), sampling);
    CHECK(draw(session.get(), 10) == draw(other.get(), 10));
    const Folder folder;
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    REQUIRE(save(other.get(), folder.file("b")) == STASIS_OK);
    CHECK(read_file(folder.file("a")) == read_file(folder.file("b")));
    CHECK(snapshot_info(folder.file("b")).contract[2] == 1);
    // Once used, and no more since.
    sampling.min_keep = 2;
    set(other.get(), sampling);
    REQUIRE(save(other.get(), folder.file("b")) == STASIS_OK);
    CHECK(snapshot_info(folder.file("b")).contract[2] == 2);
    set(other.get(), warm());
    REQUIRE(save(other.get(), folder.file("b")) == STASIS_OK);
    CHECK(snapshot_info(folder.file("b")).contract[2] == 1);
}

TEST_CASE("stasis_session_set_sampling: sampling of version 2: bad values are refused by name, and "
          "an older struct has none") {
    const Session session = session_of(gemma(), some_tokens(20));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const stasis_token outside[] = {3, 100000};
    const std::vector<std::pair<const char *, std::function<void(stasis_sampling &)>>> bad{
        {"typical_p", [](stasis_sampling &s) { s.typical_p = 1.5F; }},
        {"typical_p", [&](stasis_sampling &s) { s.typical_p = nan; }},
        {"top_n_sigma", [](stasis_sampling &s) { s.top_n_sigma = -1; }},
        {"xtc_probability", [](stasis_sampling &s) { s.xtc_probability = 2; }},
        {"xtc_threshold", [](stasis_sampling &s) { s.xtc_threshold = 0.6F; }},
        {"dry_multiplier", [](stasis_sampling &s) { s.dry_multiplier = -1; }},
        {"dry_base", [](stasis_sampling &s) { s.dry_base = 0.9F; }},
        {"dry_breakers", [](stasis_sampling &s) { s.dry_breaker_count = 1; }},
        {"dry_breakers",
         [&](stasis_sampling &s) {
             s.dry_breakers = outside;
             s.dry_breaker_count = 2;
         }},
    };
    for (const auto &[name, change] : bad) {
        stasis_sampling sampling = warm();
        change(sampling);
        stasis_error error;
        CHECK(stasis_session_set_sampling(session.get(), &sampling, &error) ==
              STASIS_INVALID_ARGUMENT);
        const bool named = contains(error, name);
        CHECK_MESSAGE(named, error.message);
    }
    stasis_sampling older = warm();
    older.typical_p = nan; // beyond what the caller states: not read
    older.struct_size = offsetof(stasis_sampling, typical_p);
    CHECK(stasis_session_set_sampling(session.get(), &older, nullptr) == STASIS_OK);
}
