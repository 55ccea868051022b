// Sessions that two threads read while they generate, in every form and of every kind: each answer
// is that of a session which was given the delivered tokens alone, bit for bit.
#include "tests/abi/constrained.h"
#include "tests/abi/device_module.h"
#include "tests/abi/scheduled.h"
#include "tests/abi/settled.h"
#include "tests/sanitizers.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

// Runs `generate` while two threads read, one of them without any pause.
void check_watched(Watched &watched, const std::function<void()> &generate) {
    std::thread hurried([&] { watched.watch(1, 0); });
    std::thread other([&] { watched.watch(2, 500); });
    while (watched.read < 2) { // before it begins
        std::this_thread::yield();
    }
    generate();
    const uint64_t read = watched.read;
    while (watched.read < read + 2) { // and after it
        std::this_thread::yield();
    }
    watched.over = true;
    hurried.join();
    other.join();
    CHECK(watched.wrong == 0);
    CHECK(watched.busy == 0);
    CHECK(digest(watched.session.get()) == watched.answers.digests.back());
}

void tell(Watched &watched, uint64_t count) {
    auto options = on_and_on(count);
    options.callback_user = &watched;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        auto &own = *static_cast<Watched *>(user);
        own.delivered = event->position + 1;
        return own.look(static_cast<uint32_t>(event->position)) ? 0 : 1; // by the same thread
    };
    const stasis_status status =
        stasis_session_generate(watched.session.get(), &options, nullptr, nullptr);
    CHECK(status == STASIS_OK);
}

void pull(Watched &watched, uint64_t count) {
    const Generation generation = begin(watched.session.get(), on_and_on(count));
    for (uint64_t i = 0; i < count; ++i) {
        watched.delivered = next(generation.get()).position + 1; // never BUSY
        const stasis_token token = 0;
        CHECK(stasis_session_append(watched.session.get(), &token, 1, nullptr, nullptr) ==
              STASIS_BUSY);
    }
}

struct WatchedKind {
    const char *model;
    Drafter drafter;
    float temperature;
};

// Windowed models, hybrids of each kind of recurrent layer, experts, attention sinks.
const std::vector<WatchedKind> &watched_kinds() {
    static const std::vector<WatchedKind> kKinds = {
        {"zoo/gemma3-text", Drafter::none, 0},       {"zoo/gemma3-text", Drafter::lookup, 0},
        {"zoo/gemma3-text", Drafter::model, 2.0F},   {"zoo/mistral-window", Drafter::lookup, 2.0F},
        {"zoo/llama-gqa-untied", Drafter::model, 0}, {"zoo/qwen3_5-dense", Drafter::none, 2.0F},
        {"zoo/qwen3_5-dense", Drafter::model, 0},    {"zoo/lfm2", Drafter::lookup, 0},
        {"zoo/granite4-h", Drafter::model, 2.0F},    {"zoo/gemma4-moe", Drafter::lookup, 0},
        {"zoo/gpt-oss", Drafter::model, 0}};
    return kKinds;
}

uint64_t tokens_of_a_run() {
    return stasis::test::kSanitized ? 12 : 30;
}

void check_kind(stasis_model *model, const WatchedKind &kind, uint64_t count) {
    CAPTURE(kind.model);
    const Session plain = prepared(model, Drafter::none, kind.temperature);
    const Answers answers = answers_of(plain, count);
    const Session said = prepared(model, kind.drafter, kind.temperature);
    Watched watched{said, answers};
    check_watched(watched, [&] { tell(watched, count); });
    const Session asked = prepared(model, kind.drafter, kind.temperature);
    Watched again{asked, answers};
    check_watched(again, [&] { pull(again, count); });
}

} // namespace

TEST_CASE("stasis_session_digest: other threads read a session of any kind while it generates") {
    const size_t step = stasis::test::kSanitized ? 3 : 1;
    for (size_t i = stasis::test::test_seed() % step; i < watched_kinds().size(); i += step) {
        check_kind(shared_model(watched_kinds()[i].model), watched_kinds()[i], tokens_of_a_run());
    }
}

TEST_CASE("stasis_session_digest: other threads read a session on a device while it generates") {
    REQUIRE(device_module_loaded);
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    const Model model = open_path(test_data("zoo/gemma3-text"), &options);
    // Greedy without a drafter: the device draws ahead by itself.
    for (const Drafter drafter : {Drafter::none, Drafter::lookup}) {
        check_kind(model.get(), {"on a device", drafter, 0}, 8);
    }
}

TEST_CASE("stasis_session_digest: other threads read a session that draws under a constraint") {
    stasis_model *const model = shared_model("recall-gemma3");
    const char *const schema = R"({"type":"array","items":{"type":"integer"},"minItems":30})";
    const auto constrained = [&](Drafter drafter) {
        Session session = prepared(model, drafter, 1.0F);
        REQUIRE(stasis_session_set_constraint(session.get(), STASIS_CONSTRAINT_JSON_SCHEMA, schema,
                                              std::strlen(schema), nullptr, nullptr) == STASIS_OK);
        return session;
    };
    const Session plain = constrained(Drafter::none);
    const Answers answers = answers_of(plain, tokens_of_a_run());
    for (const Drafter drafter : {Drafter::none, Drafter::lookup}) {
        const Session session = constrained(drafter);
        Watched watched{session, answers};
        check_watched(watched, [&] { tell(watched, tokens_of_a_run()); });
    }
}

TEST_CASE("stasis_session_digest: other threads read sessions that are in a scheduler") {
    constexpr size_t kCount = 3;
    const uint64_t count = tokens_of_a_run();
    const Scheduler scheduler = make_scheduler(gemma(), limits(2, 0, 1)); // two of them in a pass
    std::vector<Session> sessions;
    std::vector<std::unique_ptr<Watched>> watched;
    for (uint32_t i = 0; i < kCount; ++i) {
        sessions.push_back(session_of(gemma(), some_tokens(60 + i, i)));
    }
    for (uint32_t i = 0; i < kCount; ++i) {
        const Session plain = session_of(gemma(), some_tokens(60 + i, i));
        watched.emplace_back(new Watched{sessions[i], answers_of(plain, count)});
    }
    std::atomic<bool> over{false};
    const auto read = [&](uint32_t seed) {
        std::mt19937 random(seed);
        while (!over) {
            watched[random() % kCount]->look(random());
        }
    };
    std::thread one(read, 1), other(read, 2);
    for (const auto &each : watched) {
        wait_until([&] { return each->read > 0; });
    }
    for (uint32_t i = 0; i < kCount; ++i) {
        submit(scheduler, sessions[i], {.tokens_max = count, .user = watched[i].get()});
    }
    for (size_t left = kCount; left > 0;) {
        const Event event = next(scheduler);
        left -= event->end;
        if (event->end == 0) {
            static_cast<Watched *>(event->user)->delivered = event->position + 1;
        }
    }
    over = true;
    one.join();
    other.join();
    for (const auto &each : watched) {
        CHECK(each->wrong == 0);
        CHECK(each->busy == 0);
        CHECK(digest(each->session.get()) == each->answers.digests.back());
    }
}
