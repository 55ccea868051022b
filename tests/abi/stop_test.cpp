// Callbacks that stop a call: what generate produced stays, everything else is as if the call had
// never been made, whichever of its reports it is that stops.
#include <functional>
#include <utility>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// A progress callback that stops the call at one of its reports.
struct Stopper {
    int64_t left;

    template <typename Options> void put_into(Options &options) {
        options.progress_user = this;
        options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
            return static_cast<Stopper *>(user)->left-- == 0 ? 1 : 0;
        };
    }
};

// Makes the call, stopped at its first report, at its second, and so on until none does; `before`
// prepares each, `stopped` looks at what it left. Returns how many were stopped.
int64_t stop_at_each(const std::function<void()> &before,
                     const std::function<stasis_status(Stopper &)> &call,
                     const std::function<void()> &stopped) {
    for (int64_t n = 0;; ++n) {
        before();
        Stopper stopper{n};
        const stasis_status status = call(stopper);
        if (status == STASIS_OK) {
            CHECK(stopper.left >= 0);
            return n;
        }
        REQUIRE(status == STASIS_STOPPED);
        stopped();
    }
}

} // namespace

TEST_CASE("stasis_progress_fn: stopped at any report: append and a rewind that recomputes leave "
          "the session as before") {
    const Tokens begin = some_tokens(100), more = some_tokens(150, 2);
    Session session;
    Digest before;
    auto options = sized<stasis_run_options>();
    options.chunk = 16;
    const auto unharmed = [&] { CHECK(digest(session.get()) == before); };
    CHECK(stop_at_each(
              [&] {
                  session = session_of(gemma(), begin);
                  before = digest(session.get());
              },
              [&](Stopper &stopper) {
                  stopper.put_into(options);
                  return stasis_session_append(session.get(), more.data(), more.size(), &options,
                                               nullptr);
              },
              unharmed) > 5);
    CHECK(stop_at_each(
              [&] {
                  session = session_of(gemma(), more);
                  before = digest(session.get());
              },
              [&](Stopper &stopper) {
                  stopper.put_into(options);
                  return stasis_session_rewind(session.get(), 70, STASIS_REWIND_RECOMPUTE, &options,
                                               nullptr);
              },
              unharmed) > 3);
}

TEST_CASE("stasis_session_append: stopped by the logits callback at any position: append leaves "
          "the session as before") {
    const Tokens begin = some_tokens(60), more = some_tokens(20, 2);
    Digest after[2];
    for (const size_t chunk : {1, 7, 0}) {
        for (uint64_t at = 0; at <= more.size(); ++at) {
            const Session session = session_of(gemma(), begin);
            const Digest before = digest(session.get());
            auto options = sized<stasis_run_options>();
            options.chunk = static_cast<uint32_t>(chunk);
            uint64_t position = begin.size() + at;
            options.logits_user = &position;
            options.logits = [](void *user, uint64_t now, const float *, size_t) -> int32_t {
                return now == *static_cast<uint64_t *>(user) ? 1 : 0;
            };
            const stasis_status status =
                stasis_session_append(session.get(), more.data(), more.size(), &options, nullptr);
            CHECK(status == (at < more.size() ? STASIS_STOPPED : STASIS_OK));
            CHECK((digest(session.get()) == before) == (at < more.size()));
            after[chunk == 1 ? 0 : 1] = digest(session.get());
        }
    }
    CHECK(after[0] == after[1]);
}

TEST_CASE("stasis_session_generate: stopped by its callback at any token: generate keeps what it "
          "told of") {
    const Session parent = session_of(gemma(), some_tokens(60));
    const Session alone = fork(parent.get());
    for (uint64_t count = 1; count <= 12; ++count) {
        stasis_token token = 0;
        REQUIRE(stasis_session_decode(alone.get(), &token, nullptr) == STASIS_OK);
        const Session session = fork(parent.get());
        auto options = sized<stasis_generate_options>();
        options.flags = STASIS_GENERATE_IGNORE_END;
        uint64_t left = count;
        options.callback_user = &left;
        options.callback = [](void *user, const stasis_generated *) -> int32_t {
            return --*static_cast<uint64_t *>(user) == 0 ? 1 : 0;
        };
        auto result = sized<stasis_generate_result>();
        CHECK(stasis_session_generate(session.get(), &options, &result, nullptr) == STASIS_STOPPED);
        CHECK(result.stop_reason == STASIS_STOP_CALLBACK);
        CHECK(result.count == count);
        CHECK(digest(session.get()) == digest(alone.get()));
    }
}

TEST_CASE(
    "stasis_progress_fn: stopped at any report: a step leaves what is not complete as before") {
    const Tokens tokens = some_tokens(70, 2);
    const Session parent = session_of(gemma(), some_tokens(30)), appended = fork(parent.get()),
                  drawn = fork(parent.get());
    append(appended.get(), tokens);
    stasis_token token = 0;
    REQUIRE(stasis_session_decode(drawn.get(), &token, nullptr) == STASIS_OK);
    const Digest before = digest(parent.get()),
                 ends[] = {digest(drawn.get()), digest(appended.get())};
    Session sessions[2];
    stasis_step_item items[2];
    const auto look = [&] {
        for (size_t i = 0; i < 2; ++i) {
            CHECK((items[i].status == STASIS_OK || items[i].status == STASIS_STOPPED));
            CHECK(digest(sessions[i].get()) == (items[i].status == STASIS_OK ? ends[i] : before));
        }
    };
    CHECK(stop_at_each(
              [&] {
                  for (size_t i = 0; i < 2; ++i) {
                      sessions[i] = fork(parent.get());
                      items[i] = sized<stasis_step_item>();
                      items[i].session = sessions[i].get();
                      items[i].count = i == 0 ? 0 : tokens.size();
                      items[i].flags = i == 0 ? STASIS_STEP_SAMPLE : 0;
                  }
              },
              [&](Stopper &stopper) {
                  auto options = sized<stasis_run_options>();
                  options.chunk = 16;
                  stopper.put_into(options);
                  return stasis_sessions_step(items, sizeof items[0], 2, tokens.data(),
                                              tokens.size(), &options, nullptr);
              },
              look) > 3);
    look();
}

TEST_CASE(
    "stasis_progress_fn: stopped at any report: files and models are as before, or not there") {
    const Folder folder;
    const std::string path = folder.file("a"), other = folder.file("b");
    const Session session = session_of(gemma(), some_tokens(300));
    const Digest before = digest(session.get());
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const std::string bytes = read_file(path);
    stasis_session *loaded = nullptr;
    CHECK(stop_at_each([&] { stasis_session_free(std::exchange(loaded, nullptr)); },
                       [&](Stopper &stopper) {
                           auto options = sized<stasis_load_options>();
                           stopper.put_into(options);
                           return stasis_session_load(gemma(), path.c_str(), &options, &loaded,
                                                      nullptr);
                       },
                       [&] { CHECK(loaded == nullptr); }) > 0);
    CHECK(digest(loaded) == before);
    stasis_session_free(loaded);
    CHECK(stop_at_each([] {},
                       [&](Stopper &stopper) {
                           auto options = sized<stasis_save_options>();
                           stopper.put_into(options);
                           return stasis_session_save(session.get(), other.c_str(), &options,
                                                      nullptr);
                       },
                       [&] {
                           CHECK(!std::filesystem::exists(other));
                           CHECK(digest(session.get()) == before);
                       }) > 0);
    const Snapshot snapshot = open_snapshot(path);
    auto report = sized<stasis_verify_report>();
    CHECK(stop_at_each([] {},
                       [&](Stopper &stopper) {
                           auto options = sized<stasis_verify_options>();
                           options.chunk = 64;
                           stopper.put_into(options);
                           return stasis_snapshot_verify(snapshot.get(), gemma(), &options, &report,
                                                         nullptr);
                       },
                       [&] { CHECK(report.verified == 0); }) > 3);
    CHECK(report.verified == 1);
    CHECK(read_file(path) == bytes);
    stasis_model *model = nullptr;
    CHECK(stop_at_each([&] { stasis_model_close(std::exchange(model, nullptr)); },
                       [&](Stopper &stopper) {
                           auto options = sized<stasis_model_options>();
                           stopper.put_into(options);
                           return stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options,
                                                    &model, nullptr);
                       },
                       [&] { CHECK(model == nullptr); }) > 0);
    stasis_model_close(model);
}
