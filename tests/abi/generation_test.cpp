// Generations that are asked for their tokens: what stasis_session_generate calls back with, event
// by event, and again after a cancel or a failure.
#include <cstddef>
#include <string>
#include <vector>

#include "tests/abi/pulled.h"

using namespace abi_test;

namespace {

// Options that end a generation in every way, with the texts of one that ran before.
std::vector<stasis_generate_options> endings(const std::vector<PulledEvent> &before,
                                             std::vector<std::string> &strings,
                                             std::vector<const char *> &pointers) {
    std::string text;
    for (const PulledEvent &event : before) {
        text += event.text;
    }
    strings = {"nothing like it", text.substr(text.size() / 2, 3), text + " and more"};
    for (const std::string &string : strings) {
        pointers.push_back(string.c_str());
    }
    static const stasis_token kNever = 1;
    std::vector<stasis_generate_options> all(6, on_and_on(30));
    all[1].flags = 0;
    all[2].log_probability_count = 3;
    all[3].stop_tokens = &before[7].token;
    all[3].stop_token_count = 1;
    all[4].stop_tokens = &kNever;
    all[4].stop_token_count = 1;
    all[5].tokens_max = 1;
    if (text.size() >= 6 && text.find('\0') == text.npos) {
        for (const size_t first : {0U, 2U}) { // one that comes, one held back to the end
            all.push_back(on_and_on(30));
            all.back().stop_strings = pointers.data() + first;
            all.back().stop_string_count = first == 0 ? 2 : 1;
        }
    }
    return all;
}

} // namespace

TEST_CASE("stasis_generation_next: what stasis_session_generate calls back with, event by event") {
    size_t held_back = 0, found = 0;
    for (stasis_model *model : {gemma(), shared_model("recall-llama")}) {
        for (const Drafter drafter : {Drafter::none, Drafter::lookup, Drafter::model}) {
            for (const float temperature : {0.0F, 2.0F}) {
                const Session start = prepared(model, drafter, temperature);
                std::vector<std::string> strings;
                std::vector<const char *> pointers;
                const Outcome before = told(fork(start.get()).get(), on_and_on(30));
                for (const stasis_generate_options &options :
                     endings(before.events, strings, pointers)) {
                    const Session a = fork(start.get()), b = fork(start.get());
                    const Outcome expected = told(a.get(), options);
                    const Outcome got = pulled(b.get(), options);
                    CHECK(got == expected);
                    CHECK(digest(b.get()) == digest(a.get()));
                    held_back += got.events.back().last;
                    found += got.result.stop_reason == STASIS_STOP_STRING ? 1 : 0;
                }
            }
        }
    }
    CHECK(held_back >= 6);
    CHECK(found >= 6);
}

TEST_CASE("stasis_generation_next: CANCELLED draws nothing, shows what is held back, and goes on "
          "after a reset") {
    for (const Drafter drafter : {Drafter::none, Drafter::model}) {
        const Session start = prepared(shared_model("recall-llama"), drafter, 2.0F);
        const Outcome plain = told(fork(start.get()).get(), on_and_on(12));
        std::string text;
        for (const PulledEvent &event : plain.events) {
            text += event.text;
        }
        const std::string never = text + "and more"; // holds all of it back
        const char *const stops[] = {never.c_str()};
        auto options = on_and_on(12);
        options.stop_strings = stops;
        options.stop_string_count = 1;
        const Session expected = fork(start.get());
        const Outcome whole = told(expected.get(), options);

        Cancel cancel = make_cancel();
        options.cancel = cancel.get();
        const Session session = fork(start.get());
        const Generation generation = begin(session.get(), options);
        Outcome got;
        std::string shown;
        for (size_t i = 0; i < 12; ++i) {
            stasis_cancel_request(cancel.get());
            for (int twice = 0; twice < 2; ++twice) {
                PulledEvent event;
                CHECK(try_next(generation.get(), event) == STASIS_CANCELLED);
                CHECK((event.last == 1 && event.text == shown && event.count == 0));
            }
            CHECK(result_of(generation.get()).stop_reason == STASIS_STOP_CANCELLED);
            CHECK(result_of(generation.get()).count == i);
            CHECK(position(session.get()) == 40 + i);
            stasis_cancel_reset(cancel.get());
            got.events.push_back(next(generation.get()));
            CHECK(result_of(generation.get()).stop_reason == STASIS_STOP_CALLBACK);
            shown += plain.events[i].text;
        }
        cancel.reset(); // the generation keeps it
        got.events.push_back(next(generation.get()));
        CHECK((got.events.back().last == 1 && got.events.back().text == text));
        CHECK(got.events == whole.events);
        CHECK(digest(session.get()) == digest(expected.get()));
    }
}

TEST_CASE("stasis_generation_next: a request inside a call ends it before the token, or the next "
          "one after") {
    const Session start = session_of(shared_model("zoo/qwen3_5-dense"), some_tokens(300));
    const Tokens drawn = draw(fork(start.get()).get(), 3);
    const Cancel cancel = make_cancel();
    auto options = on_and_on(3);
    options.cancel = cancel.get();
    // The state that a rewind cut off is computed again first, which can be cancelled.
    REQUIRE(stasis_session_rewind(start.get(), 290, 0, nullptr, nullptr) == STASIS_OK);
    for (const bool recomputes : {true, false}) {
        const Session session = fork(start.get()), plain = fork(start.get());
        if (!recomputes) {
            digest(session.get());
        }
        Acting acting{STASIS_TRACE_APPEND, [&] { stasis_cancel_request(cancel.get()); }};
        acting.listen(session.get());
        const Generation generation = begin(session.get(), options);
        uint64_t cancelled = 0, count = 0;
        for (PulledEvent event; count < 3;) {
            const stasis_status status = try_next(generation.get(), event);
            REQUIRE((status == STASIS_OK || status == STASIS_CANCELLED));
            if (status == STASIS_OK) {
                CHECK(event.token == draw(plain.get()));
                ++count;
            } else {
                ++cancelled;
                stasis_cancel_reset(cancel.get());
            }
            CHECK(position(session.get()) == 290 + count);
            CHECK(digest(session.get()) == digest(plain.get()));
        }
        CHECK(cancelled >= 2);
    }
}

TEST_CASE("stasis_generation_next: where pages run out nothing is lost, and it goes on once there "
          "are some") {
    for (const Drafter drafter : {Drafter::none, Drafter::lookup, Drafter::model}) {
        auto options = sized<stasis_model_options>();
        options.kv_budget_bytes = 3 * info_of(session_of(llama(), some_tokens(5))).kv_bytes;
        const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
        Session other = session_of(model.get(), some_tokens(100, 5)); // two pages of three
        const Session session = prepared(model.get(), drafter, 0);
        const Session plain = prepared(llama(), Drafter::none, 0);
        const Generation generation = begin(session.get(), on_and_on(60));
        size_t failures = 0;
        for (uint64_t i = 0; i < 60;) {
            PulledEvent event;
            const stasis_status status = try_next(generation.get(), event);
            if (status == STASIS_OK) {
                CHECK(event.token == draw(plain.get()));
                ++i;
                continue;
            }
            REQUIRE(status == STASIS_POOL_EXHAUSTED);
            CHECK(i == 24);         // a page is full
            CHECK(event.last == 7); // not written
            CHECK(position(session.get()) == 64);
            CHECK(digest(session.get()) == digest(plain.get()));
            CHECK(result_of(generation.get()).count == i);
            if (++failures == 3) {
                other.reset();
            }
        }
        CHECK(failures == 3);
        CHECK(next(generation.get()).last == 1);
        const stasis_generate_result result = result_of(generation.get());
        CHECK((result.count == 60 && result.stop_reason == STASIS_STOP_LENGTH));
        CHECK(result.passes + result.accepted == 60);
        CHECK(digest(session.get()) == digest(plain.get()));
    }
}

TEST_CASE("stasis_generation_next: a full session ends it, at once or at its last position") {
    for (const uint64_t room : {0U, 3U}) {
        const Session session = create(gemma(), 10 + room);
        append(session.get(), some_tokens(10));
        const Outcome all = pulled(session.get(), on_and_on(0));
        CHECK(all.result.count == room);
        CHECK(all.result.stop_reason == STASIS_STOP_LENGTH);
        CHECK(position(session.get()) == 10 + room);
    }
    const Session full = create(gemma(), 10);
    append(full.get(), some_tokens(10));
    const Generation generation = begin(full.get(), on_and_on(0));
    const PulledEvent event = next(generation.get());
    CHECK((event.last == 1 && event.token == 0 && event.position == 0 && event.text.empty()));
}

TEST_CASE("stasis_generation_begin: what is refused, and callers of other versions") {
    const Session session = prepared(gemma(), Drafter::none, 0), empty = create(gemma());
    stasis_generation *generation = nullptr;
    stasis_error error;
    auto options = on_and_on(3);
    CHECK(stasis_generation_begin(nullptr, &options, &generation, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_generation_begin(session.get(), &options, nullptr, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_generation_begin(empty.get(), &options, &generation, nullptr) == STASIS_NOT_FOUND);
    options.callback_user = &error;
    CHECK(stasis_generation_begin(session.get(), &options, &generation, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK_MESSAGE(contains(error, "callback"), error.message);
    options = on_and_on(3);
    options.log_probability_count = 1U << 20;
    CHECK(stasis_generation_begin(session.get(), &options, &generation, nullptr) ==
          STASIS_INVALID_ARGUMENT);
    const char *const stops[] = {"a"};
    options = on_and_on(3);
    options.stop_strings = stops;
    options.stop_string_count = 1;
    CHECK(stasis_generation_begin(session.get(), &options, &generation, nullptr) ==
          STASIS_UNSUPPORTED); // no tokenizer
    options = on_and_on(3);
    options.flags = 8;
    CHECK(stasis_generation_begin(session.get(), &options, &generation, nullptr) ==
          STASIS_UNSUPPORTED);
    CHECK(generation == nullptr);
    append(session.get(), some_tokens(1)); // and nothing is open

    const Generation open = begin(session.get(), on_and_on(3));
    auto event = sized<stasis_generated>();
    CHECK(stasis_generation_next(nullptr, &event, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_generation_next(open.get(), nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    event.struct_size = 0;
    CHECK(stasis_generation_next(open.get(), &event, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_generation_get_result(open.get(), nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    CHECK(position(session.get()) == 41);
    event.struct_size = offsetof(stasis_generated, log_probability);
    event.log_probability_count = 77;
    REQUIRE(stasis_generation_next(open.get(), &event, nullptr) == STASIS_OK);
    CHECK((event.position == 41 && event.log_probability_count == 77));
    CHECK(event.struct_size == offsetof(stasis_generated, log_probability));
}
