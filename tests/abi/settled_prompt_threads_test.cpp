// Sessions that are read while a scheduler appends their prompt, slice by slice: every call that
// reads answers for the position before it, with the bits of a session that is in no scheduler.
#include "tests/abi/scheduled.h"
#include "tests/abi/settled.h"
#include "tests/abi/stored.h"
#include "tests/abi/trace_model.h"
#include "tests/share.h"

using namespace abi_test;

namespace {

// A scheduler with a session that draws a token in every pass, so that a thread can ask for one
// pass after the other.
struct Passes {
    explicit Passes(stasis_model *model)
        : scheduler(make_scheduler(model, limits(0, 16, 1))),
          ticking(session_of(model, some_tokens(3, 99))) {
        submit(scheduler, ticking, {.tokens_max = 0});
    }
    void run_one() const { CHECK(next(scheduler, ticking)->end == 0); }
    uint64_t prompt_positions() const { return stats_of(scheduler).prompt_positions; }

    Scheduler scheduler;
    Session ticking;
};

Session tracking(stasis_model *model, uint32_t track, const Tokens &tokens) {
    auto options = sized<stasis_session_options>();
    options.domain = STASIS_DOMAIN_PRIVATE;
    options.track_attention = track;
    stasis_session *made = nullptr;
    REQUIRE(stasis_session_create(model, &options, &made, nullptr) == STASIS_OK);
    append(made, tokens);
    return Session(made);
}

template <typename Value> std::string raw_bytes(const std::vector<Value> &values) {
    return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Value)};
}

std::string answer(stasis_status status, const std::string &bytes) {
    return std::to_string(status) + " " + (status == STASIS_OK ? bytes : "");
}

std::string listed(stasis_session *own) {
    Tokens tokens(64), best(5);
    std::vector<float> likely(5);
    std::vector<uint8_t> sources(64);
    std::vector<double> score(3);
    std::vector<stasis_turn> turns(16, sized<stasis_turn>());
    std::string text(1024, ' '), reply(1024, ' ');
    size_t count = 0, length = 0, replied = 0, turned = 0;
    const Tokens more = some_tokens(3, 7);
    std::string all;
    all += answer(stasis_session_tokens(own, 0, tokens.data(), sources.data(), 64, &count, nullptr),
                  raw_bytes(tokens) + raw_bytes(sources));
    all += answer(stasis_session_text(own, 0, count, text.data(), text.size(), &length, nullptr),
                  text);
    all += answer(
        stasis_session_turns(own, 0, turns.data(), sizeof turns[0], turns.size(), &turned, nullptr),
        raw_bytes(turns));
    all += answer(
        stasis_session_reply(own, nullptr, 0, 0, reply.data(), reply.size(), &replied, nullptr),
        reply);
    all += answer(stasis_session_top(own, 5, best.data(), likely.data(), nullptr),
                  raw_bytes(best) + raw_bytes(likely));
    all += answer(stasis_session_sample(own, best.data(), nullptr), raw_bytes(best));
    all += answer(stasis_session_score(own, more.data(), 3, score.data(), nullptr, nullptr),
                  raw_bytes(score));
    return all + raw_bytes(logits_of(own));
}

std::string keys_of(stasis_session *own) {
    std::string all;
    for (uint32_t layer = 0; layer < 4; ++layer) {
        std::vector<uint16_t> keys(40 * 4096), values(40 * 4096);
        size_t count = 0;
        all += answer(stasis_session_kv(own, layer, 0, 40, keys.data(), values.data(), keys.size(),
                                        &count, nullptr),
                      raw_bytes(keys) + raw_bytes(values));
    }
    std::vector<double> weights(4096);
    size_t count = 0;
    return all +
           answer(stasis_session_attention(own, 0, weights.data(), weights.size(), &count, nullptr),
                  raw_bytes(weights));
}

// Reads a session in every way, and compares with one that is in no scheduler.
void check_readable(stasis_model *model, const Session &session, const Session &plain,
                    const Folder &folder, const Store &store) {
    stasis_session *const own = session.get();
    const Digest expected = digest(plain.get());
    CHECK(digest(own) == expected);
    const stasis_session_info info = info_of(own), other = info_of(plain);
    CHECK(info.position == other.position);
    CHECK(info.kv_bytes == other.kv_bytes);
    CHECK(info.pages_own + info.pages_shared == other.pages_own + other.pages_shared);
    CHECK(info.rewind_floor == other.rewind_floor);
    CHECK(info.window_begin == other.window_begin);
    CHECK(info.states == other.states);
    CHECK((listed(own) == listed(plain.get())));
    CHECK((keys_of(own) == keys_of(plain.get())));

    char found[8] = {};
    size_t length = 0, entries = 0;
    CHECK(stasis_session_set_data(own, "title", "sea", 3, nullptr) == STASIS_OK);
    CHECK(stasis_session_get_data(own, "title", found, 8, &length, nullptr) == STASIS_OK);
    CHECK(std::string(found, length) == "sea");
    CHECK(stasis_session_list_data(own, nullptr, sizeof(stasis_data_entry), 0, &entries, nullptr) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(entries == 1);

    const Session child = fork(own), twin = fork(plain.get()); // they go their own way
    CHECK(draw(child.get(), 3) == draw(twin.get(), 3));
    append(child.get(), some_tokens(70, 5));
    append(twin.get(), some_tokens(70, 5));
    CHECK(digest(child.get()) == digest(twin.get()));
    REQUIRE(save(own, folder.file("saved")) == STASIS_OK);
    CHECK(digest(load(model, folder.file("saved")).get()) == expected);
    must_put(store.get(), own, "stored");
    CHECK(digest(get(store.get(), model, "stored").get()) == expected);
    const stasis_token token = 5;
    CHECK(stasis_session_append(own, &token, 1, nullptr, nullptr) == STASIS_BUSY); // a change
}

void check_model(stasis_model *model, uint32_t track) {
    const Folder folder;
    const Store store = open_store("dir:" + folder.file("store"));
    const Passes passes(model);
    const Session session = tracking(model, track, some_tokens(40));
    const Session plain = tracking(model, track, some_tokens(40));
    const Task task{some_tokens(200, 5), 5};
    const uint64_t before = passes.prompt_positions();
    submit(passes.scheduler, session, task);
    int reads = 0;
    while (passes.prompt_positions() < before + 200) {
        check_readable(model, session, plain, folder, store);
        ++reads;
        passes.run_one();
    }
    CHECK(reads == 13); // between any two slices of 16
    Heard heard;
    for (bool over = false; !over;) {
        const Event event = next(passes.scheduler, session);
        heard.hear(*event);
        over = event->end != 0;
    }
    check_as_alone(heard, session, plain, task);
    CHECK(info_of(session).kv_bytes == info_of(plain).kv_bytes);
}

} // namespace

TEST_CASE("stasis_scheduler_next: between the slices of a prompt every call that reads a session "
          "answers for the position before it") {
    const char *const kModels[] = {"recall-gemma3", "recall-llama", "zoo/gemma3-text", "zoo/lfm2",
                                   "zoo/qwen3_5-dense"};
    for (const char *model : kModels) {
        CAPTURE(model);
        check_model(shared_model(model), 0);
    }
    check_model(shared_model("zoo/gemma3-text"), STASIS_TRACK_TOTAL);
}

TEST_CASE("stasis_scheduler_next: other threads read sessions while their prompts are computed") {
    constexpr uint32_t kCount = 3;
    const Scheduler scheduler = make_scheduler(gemma(), limits(0, 16));
    std::vector<Session> sessions;
    std::vector<std::vector<Digest>> settled(kCount); // before the prompt, after it, and so on
    for (uint32_t i = 0; i < kCount; ++i) {
        sessions.push_back(session_of(gemma(), some_tokens(30 + i, i)));
        const Session plain = session_of(gemma(), some_tokens(30 + i, i));
        settled[i].push_back(digest(plain.get()));
        append(plain.get(), some_tokens(150, 5 + i));
        for (int token = 0; token < 4; ++token) {
            settled[i].push_back(digest(plain.get()));
            draw(plain.get());
        }
        settled[i].push_back(digest(plain.get()));
    }
    std::atomic<bool> over{false};
    std::atomic<uint64_t> early{0}, wrong{0}, refused{0};
    const auto read = [&](uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<size_t> at(kCount, 0); // of `settled`, which a reader sees in its order
        while (!over) {
            const uint32_t i = random() % kCount;
            stasis_digest value{};
            const stasis_status status = stasis_session_digest(sessions[i].get(), &value, nullptr);
            refused += status == STASIS_OK ? 0 : 1;
            const auto same = [&](const Digest &digest) {
                return std::memcmp(digest.data(), value.bytes, sizeof value.bytes) == 0;
            };
            while (at[i] < settled[i].size() && !same(settled[i][at[i]])) {
                ++at[i];
            }
            wrong += at[i] == settled[i].size() ? 1 : 0;
            early += at[i] == 0 ? 1 : 0;
        }
    };
    for (uint32_t i = 0; i < kCount; ++i) {
        submit(scheduler, sessions[i], {some_tokens(150, 5 + i), 4});
    }
    std::thread one(read, 1), other(read, 2);
    wait_until([&] { return early > 20; });
    AllHeard heard = hear_all(scheduler, kCount);
    over = true;
    one.join();
    other.join();
    CHECK(wrong == 0);
    CHECK(refused == 0);
    for (uint32_t i = 0; i < kCount; ++i) {
        CHECK(heard[sessions[i].get()].count == 4);
        CHECK(digest(sessions[i].get()) == settled[i].back());
    }
}

TEST_CASE("stasis_session_set_trace: a prompt's slices are told, and what is undone of them, also "
          "to a trace that is set between two of them") {
    for (const bool cancels : {false, true}) {
        for (const int set_after : {0, 2, 5}) {
            CAPTURE(set_after);
            const Passes passes(gemma());
            const Session session = session_of(gemma(), some_tokens(40));
            const Digest before = digest(session.get());
            TraceModel first, second;
            first.follow(session.get());
            submit(passes.scheduler, session, {some_tokens(200, 5), 5});
            for (int i = 0; i < set_after; ++i) {
                passes.run_one();
            }
            second.follow(session.get());
            CHECK(first.released == 1);
            CHECK(second.differs(session.get()) == ""); // it begins with what can be read
            passes.run_one();
            if (cancels) {
                REQUIRE(stasis_scheduler_cancel(passes.scheduler.get(), session.get(), nullptr) ==
                        STASIS_OK);
            }
            while (next(passes.scheduler, session)->end == 0) {
            }
            CHECK(second.differs(session.get()) == "");
            CHECK(second.counts[STASIS_TRACE_UNDONE] == (cancels ? 1 : 0));
            CHECK((digest(session.get()) == before) == cancels);
            stasis_session_set_trace(session.get(), nullptr, nullptr);
        }
    }
}
