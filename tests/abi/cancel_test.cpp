// A request to cancel that comes from another thread at any moment of any long call: the call ends
// as if it had never been made, or was over before the request. And callbacks that stop a call.
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tests/abi/fixture.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

using Clock = std::chrono::steady_clock;

const int kMoments = stasis::test::kSanitized ? 12 : stasis::test::whole_sweeps() ? 60 : 20;
constexpr int kMomentsMax = 2000;

// A long call with objects of its own, and what to look at afterwards.
struct LongCall {
    std::function<stasis_status()> run;
    std::function<void(stasis_status)> check;
};
using Make = std::function<LongCall(stasis_cancel *)>;

double seconds_of(const LongCall &call) {
    const auto begin = Clock::now();
    const stasis_status status = call.run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    REQUIRE(status == STASIS_OK);
    call.check(status);
    return seconds;
}

stasis_status run_with_request(const LongCall &call, stasis_cancel *cancel, double after_seconds) {
    std::atomic<bool> running{false};
    std::thread other([&] {
        while (!running) {
            std::this_thread::yield();
        }
        const auto moment = Clock::now() + std::chrono::duration<double>(after_seconds);
        if (after_seconds > 1e-4) { // shorter ones sleep takes longer than
            std::this_thread::sleep_until(moment);
        }
        while (Clock::now() < moment) {
        }
        stasis_cancel_request(cancel);
    });
    running = true;
    const stasis_status status = call.run();
    other.join();
    stasis_cancel_reset(cancel);
    return status;
}

// Makes the call over and over, each time anew and with a request at a random moment of it.
void cancel_at_random_moments(const Make &make) {
    const Cancel cancel = make_cancel();
    double longest = 0;
    for (int i = 0; i < 3; ++i) {
        longest = std::max(longest, seconds_of(make(cancel.get())));
    }
    std::mt19937 random(7);
    int cancelled = 0, done = 0;
    // On a busy machine requests may come too late, and then more of them are made.
    for (int i = 0; i < kMoments || (cancelled == 0 && i < kMomentsMax); ++i) {
        CAPTURE(i);
        const LongCall call = make(cancel.get());
        // More often early: a call may have nothing to be cancelled in its second half.
        const double part = static_cast<double>(random() % 1000) / 1000;
        const double moment = longest * part * part * part;
        const stasis_status status = run_with_request(call, cancel.get(), moment);
        REQUIRE((status == STASIS_OK || status == STASIS_CANCELLED));
        ++(status == STASIS_OK ? done : cancelled);
        call.check(status);
    }
    CHECK(cancelled > 0); // how many are done depends on the machine
}

// A session that a call owns, shared by the two functions of it.
std::shared_ptr<stasis_session> shared(Session session) {
    return {session.release(), stasis_session_free};
}

const char *const kWindowedModel = "recall-gemma3"; // has windows

} // namespace

TEST_CASE("stasis_cancel_request: cancelled at any moment: append leaves the session as before") {
    stasis_model *model = shared_model(kWindowedModel);
    const Tokens begin = some_tokens(100), more = some_tokens(900, 2);
    const Session parent = session_of(model, begin);
    const Digest before = digest(parent.get());
    const Digest after = digest(session_of(model, joined(begin, more)).get());
    bool of_fork = false;
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        of_fork = !of_fork; // shares its last page, or has it for itself
        const auto session = shared(of_fork ? fork(parent.get()) : session_of(model, begin));
        const auto run = [=, &more] {
            auto options = sized<stasis_run_options>();
            options.cancel = cancel;
            return stasis_session_append(session.get(), more.data(), more.size(), &options,
                                         nullptr);
        };
        const auto check = [&, session, run](stasis_status status) {
            CHECK(digest(session.get()) == (status == STASIS_OK ? after : before));
            if (status != STASIS_OK) { // and takes the same tokens as if nothing had been
                CHECK(run() == STASIS_OK);
                CHECK(digest(session.get()) == after);
            }
            CHECK(digest(parent.get()) == before);
        };
        return LongCall{run, check};
    });
}

TEST_CASE("stasis_cancel_request: cancelled at any moment: a step leaves what is not complete as "
          "before") {
    stasis_model *model = shared_model(kWindowedModel);
    const Tokens begin = some_tokens(70), more = some_tokens(500, 2);
    const Session parent = session_of(model, begin);
    const Digest before = digest(parent.get());
    const Session appended = session_of(model, joined(begin, more)), drawn = fork(parent.get()),
                  both = fork(appended.get());
    stasis_token token = 0;
    REQUIRE(stasis_session_decode(drawn.get(), &token, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_decode(both.get(), &token, nullptr) == STASIS_OK);
    const Digest ends[] = {digest(drawn.get()), digest(appended.get()), digest(both.get())};
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        const auto sessions = std::make_shared<std::vector<Session>>();
        const auto items =
            std::make_shared<std::vector<stasis_step_item>>(3, sized<stasis_step_item>());
        for (size_t i = 0; i < 3; ++i) { // draws, appends, does both
            sessions->push_back(fork(parent.get()));
            (*items)[i] = sized<stasis_step_item>();
            (*items)[i].session = sessions->back().get();
            (*items)[i].count = i == 0 ? 0 : more.size();
            (*items)[i].flags = i == 1 ? 0 : STASIS_STEP_SAMPLE;
        }
        const auto run = [=, &more] {
            auto options = sized<stasis_run_options>();
            options.cancel = cancel;
            return stasis_sessions_step(items->data(), sizeof(stasis_step_item), 3, more.data(),
                                        more.size(), &options, nullptr);
        };
        const auto check = [&, sessions, items](stasis_status status) {
            for (size_t i = 0; i < 3; ++i) {
                const stasis_status own = (*items)[i].status;
                CHECK((own == STASIS_OK || (own == STASIS_CANCELLED && own == status)));
                const Digest now = digest((*sessions)[i].get());
                const bool lacks_draw = i == 2 && now == ends[1];
                CHECK((own == STASIS_OK ? now == ends[i] : now == before || lacks_draw));
            }
        };
        return LongCall{run, check};
    });
}

TEST_CASE(
    "stasis_cancel_request: cancelled at any moment: generate keeps the tokens that it told of") {
    stasis_model *model = shared_model(kWindowedModel);
    const Session parent = session_of(model, some_tokens(40));
    std::vector<Digest> after = {digest(parent.get())}; // of so many tokens
    const Session alone = fork(parent.get());
    constexpr uint64_t kTokens = 80;
    while (after.size() <= kTokens) {
        stasis_token token = 0;
        REQUIRE(stasis_session_decode(alone.get(), &token, nullptr) == STASIS_OK);
        after.push_back(digest(alone.get()));
    }
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        const auto session = shared(fork(parent.get()));
        const auto result = std::make_shared<stasis_generate_result>();
        result->struct_size = sizeof *result;
        const auto run = [=] {
            auto options = sized<stasis_generate_options>();
            options.tokens_max = kTokens;
            options.flags = STASIS_GENERATE_IGNORE_END;
            options.cancel = cancel;
            return stasis_session_generate(session.get(), &options, result.get(), nullptr);
        };
        const auto check = [&, session, result](stasis_status status) {
            CHECK(result->begin == 40);
            REQUIRE(result->count <= kTokens);
            CHECK((status != STASIS_OK || result->count == kTokens));
            CHECK(digest(session.get()) == after[result->count]);
        };
        return LongCall{run, check};
    });
}

TEST_CASE("stasis_cancel_request: cancelled at any moment: rewind that recomputes, and score, "
          "leave the session as before") {
    stasis_model *model = shared_model(kWindowedModel);
    const Tokens all = some_tokens(1100), kept(all.begin(), all.begin() + 800);
    const Session parent = session_of(model, all, STASIS_WINDOW_RETAIN_NONE);
    const Digest before = digest(parent.get()), shorter = digest(session_of(model, kept).get());
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        const auto session = shared(fork(parent.get()));
        const auto run = [=] {
            auto options = sized<stasis_run_options>();
            options.cancel = cancel;
            return stasis_session_rewind(session.get(), 800, STASIS_REWIND_RECOMPUTE, &options,
                                         nullptr);
        };
        const auto check = [&, session](stasis_status status) {
            CHECK(digest(session.get()) == (status == STASIS_OK ? shorter : before));
        };
        return LongCall{run, check};
    });
    std::vector<double> scores(kept.size());
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        const auto run = [&, cancel] {
            auto options = sized<stasis_run_options>();
            options.cancel = cancel;
            return stasis_session_score(parent.get(), kept.data(), 200, scores.data(), &options,
                                        nullptr);
        };
        return LongCall{run, [&](stasis_status) { CHECK(digest(parent.get()) == before); }};
    });
}

TEST_CASE("stasis_cancel_request: cancelled at any moment: save and compact leave a whole file and "
          "nothing else") {
    stasis_model *model = shared_model(kWindowedModel);
    const Folder folder;
    const std::string path = folder.file("a");
    const Session shorter = session_of(model, some_tokens(300));
    const Session longer = fork(shorter.get());
    append(longer.get(), some_tokens(600, 2));
    const Digest ends[] = {digest(shorter.get()), digest(longer.get())};
    for (const bool compacts : {false, true}) {
        for (const uint32_t codec : {STASIS_CODEC_RAW, STASIS_CODEC_ZSTD}) {
            CAPTURE(compacts);
            CAPTURE(codec);
            cancel_at_random_moments([&](stasis_cancel *cancel) {
                std::filesystem::remove(path);
                REQUIRE(save(shorter.get(), path) == STASIS_OK);
                REQUIRE((!compacts || save(longer.get(), path) == STASIS_OK));
                const auto run = [&, compacts, codec, cancel] {
                    auto options = sized<stasis_save_options>();
                    options.codec = codec;
                    options.cancel = cancel;
                    return compacts
                               ? stasis_snapshot_compact(path.c_str(), &options, nullptr)
                               : stasis_session_save(longer.get(), path.c_str(), &options, nullptr);
                };
                const auto check = [&, compacts](stasis_status status) {
                    const bool grown = compacts || status == STASIS_OK;
                    CHECK(digest(load(model, path).get()) == ends[grown ? 1 : 0]);
                    CHECK(digest(longer.get()) == ends[1]);
                    const std::filesystem::directory_iterator entries(
                        std::filesystem::path(path).parent_path());
                    CHECK(std::distance(begin(entries), end(entries)) == 1);
                };
                return LongCall{run, check};
            });
        }
    }
}

TEST_CASE("stasis_cancel_request: cancelled at any moment: load and verify make nothing and change "
          "nothing") {
    stasis_model *model = shared_model(kWindowedModel);
    const Folder folder;
    const Session session = session_of(model, some_tokens(700));
    const Digest expected = digest(session.get());
    for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
        CAPTURE(keep);
        const std::string path = folder.file(std::to_string(keep));
        REQUIRE(save_as(session.get(), path, STASIS_CODEC_ZSTD, keep) == STASIS_OK);
        const std::string bytes = read_file(path);
        cancel_at_random_moments([&](stasis_cancel *cancel) {
            const auto out = std::make_shared<stasis_session *>(nullptr);
            const auto run = [=, &path] {
                auto options = sized<stasis_load_options>();
                options.cancel = cancel;
                return stasis_session_load(model, path.c_str(), &options, out.get(), nullptr);
            };
            const auto check = [&, out](stasis_status status) {
                const Session loaded(*out);
                CHECK((loaded != nullptr) == (status == STASIS_OK));
                CHECK((loaded == nullptr || digest(loaded.get()) == expected));
                CHECK(read_file(path) == bytes);
            };
            return LongCall{run, check};
        });
        const Snapshot snapshot = open_snapshot(path);
        cancel_at_random_moments([&](stasis_cancel *cancel) {
            const auto report = std::make_shared<stasis_verify_report>();
            report->struct_size = sizeof *report;
            const auto run = [=, &snapshot] {
                auto options = sized<stasis_verify_options>();
                options.cancel = cancel;
                return stasis_snapshot_verify(snapshot.get(), model, &options, report.get(),
                                              nullptr);
            };
            const auto check = [&, report](stasis_status status) {
                CHECK(report->verified == (status == STASIS_OK ? 1 : 0));
                CHECK(read_file(path) == bytes);
            };
            return LongCall{run, check};
        });
    }
}

TEST_CASE(
    "stasis_cancel_request: cancelled at any moment: a model that is being opened is not there") {
    cancel_at_random_moments([&](stasis_cancel *cancel) {
        const auto out = std::make_shared<stasis_model *>(nullptr);
        const auto run = [=] {
            auto options = sized<stasis_model_options>();
            options.cancel = cancel;
            return stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options, out.get(),
                                     nullptr);
        };
        const auto check = [out](stasis_status status) {
            const Model model(*out);
            CHECK((model != nullptr) == (status == STASIS_OK));
        };
        return LongCall{run, check};
    });
}
