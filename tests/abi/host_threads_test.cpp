// Eight host threads do everything at once on one model, each with sessions of its own and forks of
// one that all share: every digest is that of the same work done by one thread.
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

constexpr uint32_t kHosts = 8, kRounds = 4;

struct Work {
    const stasis_session *prompt = nullptr; // forked by one thread before the others begin
    std::string file;
    uint32_t seed = 0;
    stasis_status status = STASIS_OK; // of all calls together
    std::vector<stasis_digest> digests;

    void note(stasis_status of_call) { status = status != STASIS_OK ? status : of_call; }
    void tell(const stasis_session *session) {
        digests.emplace_back();
        note(stasis_session_digest(session, &digests.back(), nullptr));
    }
};

// doctest's checks are not made for many threads: failures are recorded, and checked afterwards.
void grow(Work &work, stasis_session *session, uint32_t count, uint32_t seed) {
    const Tokens tokens = some_tokens(count, seed);
    auto options = sized<stasis_run_options>();
    options.chunk = 1 + seed % 40;
    work.note(stasis_session_append(session, tokens.data(), count, &options, nullptr));
}

// A step of three sessions: two draw, one appends beside them.
void step(Work &work, stasis_session *const *sessions, uint32_t seed) {
    const Tokens tokens = some_tokens(9, seed);
    std::vector<stasis_step_item> items(3, sized<stasis_step_item>());
    for (size_t i = 0; i < 3; ++i) {
        items[i].session = sessions[i];
        items[i].count = i == seed % 3 ? tokens.size() : 0;
        items[i].flags = i == seed % 3 ? 0 : STASIS_STEP_SAMPLE;
    }
    work.note(stasis_sessions_step(items.data(), sizeof items[0], 3, tokens.data(), tokens.size(),
                                   nullptr, nullptr));
    for (const stasis_step_item &item : items) {
        work.note(item.status);
    }
}

// Saved, loaded, and gone on with in place of the session that was saved.
stasis_session *through_a_file(Work &work, stasis_model *model, stasis_session *session) {
    auto options = sized<stasis_save_options>();
    options.flags = STASIS_SAVE_REPLACE;
    stasis_session *loaded = nullptr;
    work.note(stasis_session_save(session, work.file.c_str(), &options, nullptr));
    work.note(stasis_session_load(model, work.file.c_str(), nullptr, &loaded, nullptr));
    stasis_session_free(session);
    return loaded;
}

void do_everything(stasis_model *model, Work &work) {
    stasis_session *sessions[3] = {};
    work.note(stasis_session_create(model, nullptr, &sessions[0], nullptr));
    grow(work, sessions[0], 50 + work.seed, work.seed);
    work.note(stasis_session_fork(work.prompt, &sessions[1], nullptr));
    work.note(stasis_session_fork(sessions[0], &sessions[2], nullptr));
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 0.8F;
    sampling.seed = work.seed;
    work.note(stasis_session_set_sampling(sessions[1], &sampling, nullptr));
    for (uint32_t round = 0; round < kRounds && work.status == STASIS_OK; ++round) {
        const uint32_t seed = work.seed * 100 + round;
        grow(work, sessions[round % 3], 20, seed);
        step(work, sessions, seed);
        stasis_token token = 0;
        work.note(stasis_session_decode(sessions[1], &token, nullptr));
        sessions[2] = through_a_file(work, model, sessions[2]);
        stasis_session *child = nullptr;
        work.note(stasis_session_fork(sessions[round % 2], &child, nullptr));
        grow(work, child, 30, seed + 7);
        work.tell(child);
        work.note(stasis_session_rewind(child, 40, STASIS_REWIND_RECOMPUTE, nullptr, nullptr));
        work.tell(child);
        stasis_session_free(child);
        auto stats = sized<stasis_model_stats>();
        work.note(stasis_model_get_stats(model, &stats, nullptr));
    }
    for (stasis_session *session : sessions) {
        work.tell(session);
        stasis_session_free(session);
    }
}

std::vector<Work> works(const Folder &folder, const std::vector<Session> &prompts) {
    std::vector<Work> all(kHosts);
    for (uint32_t i = 0; i < kHosts; ++i) {
        all[i].prompt = prompts[i].get();
        all[i].file = folder.file(std::to_string(i));
        all[i].seed = i;
    }
    return all;
}

} // namespace

TEST_CASE("stasis_session_append: eight host threads append, decode, step, fork, save, load and "
          "free on one model") {
    const Folder folder;
    stasis_model *model = gemma();
    const Session prompt = session_of(model, some_tokens(90));
    std::vector<Session> prompts;
    while (prompts.size() < kHosts) {
        prompts.push_back(fork(prompt.get()));
    }
    std::vector<Work> alone = works(folder, prompts), together = works(folder, prompts);
    for (Work &work : alone) {
        do_everything(model, work);
    }
    std::vector<std::thread> threads;
    for (Work &work : together) {
        threads.emplace_back([&work, model] { do_everything(model, work); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (uint32_t i = 0; i < kHosts; ++i) {
        CAPTURE(i);
        CHECK(alone[i].status == STASIS_OK);
        CHECK(together[i].status == STASIS_OK);
        REQUIRE(alone[i].digests.size() == 2 * kRounds + 3);
        REQUIRE(together[i].digests.size() == alone[i].digests.size());
        CHECK(std::memcmp(together[i].digests.data(), alone[i].digests.data(),
                          alone[i].digests.size() * sizeof(stasis_digest)) == 0);
    }
}
