// Speculative decoding through the ABI: the same bytes as without, the numbers in the result, and
// the refusals of set_draft.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/abi/constrained.h"

using namespace abi_test;

namespace {

stasis_status set_draft(stasis_session *session, stasis_model *draft, uint64_t least = 0,
                        uint64_t most = 0, stasis_error *error = nullptr) {
    auto options = sized<stasis_draft_options>();
    options.tokens_min = least;
    options.tokens_max = most;
    return stasis_session_set_draft(session, draft, &options, error);
}

stasis_generate_result generate(stasis_session *session, uint64_t count,
                                std::string *text = nullptr) {
    auto options = sized<stasis_generate_options>();
    options.tokens_max = count;
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.callback_user = text;
    options.callback = [](void *user, const stasis_generated *event) -> int32_t {
        if (user != nullptr) {
            static_cast<std::string *>(user)->append(event->text, event->length);
        }
        return 0;
    };
    auto result = sized<stasis_generate_result>();
    stasis_error error;
    const stasis_status status = stasis_session_generate(session, &options, &result, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return result;
}

// A prompt that repeats itself.
Tokens repeating(size_t count) {
    Tokens tokens;
    const Tokens period = some_tokens(7);
    while (tokens.size() < count) {
        tokens.push_back(period[tokens.size() % period.size()]);
    }
    return tokens;
}

void seed(stasis_session *session, uint64_t value, float temperature) {
    auto sampling = sized<stasis_sampling>();
    sampling.seed = value;
    sampling.temperature = temperature;
    sampling.top_k = 4;
    sampling.repetition_penalty = 1.1F;
    REQUIRE(stasis_session_set_sampling(session, &sampling, nullptr) == STASIS_OK);
}

} // namespace

TEST_CASE("stasis_session_set_draft: drafts change how many passes it takes and nothing else") {
    for (stasis_model *model : {gemma(), llama(), shared_model("recall-llama")}) {
        for (const float temperature : {0.0F, 0.8F}) {
            const Session plain = session_of(model, repeating(40));
            seed(plain.get(), 3, temperature);
            const Session lookup = fork(plain.get()), drafted = fork(plain.get());
            REQUIRE(set_draft(lookup.get(), nullptr) == STASIS_OK);
            REQUIRE(set_draft(drafted.get(), model, 4, 4) == STASIS_OK);
            std::string text, text_lookup, text_drafted;
            const stasis_generate_result result = generate(plain.get(), 70, &text);
            const stasis_generate_result by_lookup = generate(lookup.get(), 70, &text_lookup);
            const stasis_generate_result by_model = generate(drafted.get(), 70, &text_drafted);
            CHECK(digest(lookup.get()) == digest(plain.get()));
            CHECK(digest(drafted.get()) == digest(plain.get()));
            CHECK(tokens_from(lookup.get(), 0) == tokens_from(plain.get(), 0));
            CHECK(text_lookup == text);
            CHECK(text_drafted == text);
            CHECK((result.drafted == 0 && result.accepted == 0 && result.passes == 70));
            CHECK(by_lookup.passes + by_lookup.accepted == 70);
            CHECK((by_model.accepted > 50 && by_model.passes == 14)); // itself: always right
            CHECK((by_lookup.count == 70 && by_model.count == 70 && by_model.begin == 40));
            CHECK(by_model.draft_failures + by_lookup.draft_failures == 0);
        }
    }
}

TEST_CASE("stasis_session_set_draft: under a constraint a draft model draws what it allows") {
    for (const ConstraintCase &each : constraint_cases()) {
        for (const float temperature : {0.0F, 1.0F}) {
            CAPTURE(each.name);
            CAPTURE(temperature);
            const Session plain = constrained(recall(), each);
            set_warm(plain.get(), 5, temperature);
            const Session ahead = fork(plain.get());
            // The model drafts for itself, so that all that it draws is right: texts that end, and
            // others that begin after them, included.
            REQUIRE(set_draft(ahead.get(), recall(), 4, 4) == STASIS_OK);
            std::string text, drafted;
            generate(plain.get(), 60, &text);
            const stasis_generate_result result = generate(ahead.get(), 60, &drafted);
            CHECK(digest(ahead.get()) == digest(plain.get()));
            CHECK(drafted == text);
            CHECK(result.drafted == 48);
            CHECK(result.accepted == 48);
            CHECK(result.passes == 12);
            CHECK(result.draft_failures == 0);
        }
    }
}

TEST_CASE("stasis_session_set_draft: a draft survives what is done between generations, and is in "
          "no file") {
    const Folder folder;
    const Session plain = session_of(llama(), some_tokens(30));
    const Session ahead = fork(plain.get());
    REQUIRE(set_draft(ahead.get(), llama(), 3, 3) == STASIS_OK);
    const auto both = [&](const auto &act) {
        act(plain.get());
        act(ahead.get());
        REQUIRE(digest(plain.get()) == digest(ahead.get()));
    };
    both([](stasis_session *session) { generate(session, 50); });
    both([](stasis_session *session) {
        REQUIRE(stasis_session_rewind(session, 41, 0, nullptr, nullptr) == STASIS_OK);
        append(session, some_tokens(9, 5));
        CHECK(generate(session, 20).draft_failures == 0);
    });
    both([](stasis_session *session) {
        REQUIRE(stasis_session_rewind(session, 0, 0, nullptr, nullptr) == STASIS_OK);
        append(session, some_tokens(9, 7));
        seed(session, 11, 1.2F);
        generate(session, 33);
    });
    // A fork drafts as well, both at the same time.
    const Session child = fork(ahead.get());
    stasis_generate_result of_child{}, of_parent{};
    std::thread other([&] { of_child = generate(child.get(), 40); });
    of_parent = generate(ahead.get(), 40);
    other.join();
    CHECK((of_child.accepted > 25 && of_parent.accepted > 25));
    generate(plain.get(), 40);
    CHECK(digest(child.get()) == digest(plain.get()));
    CHECK(digest(ahead.get()) == digest(plain.get()));
    // The file is that of a session that never drafted, and what is loaded from it drafts not.
    REQUIRE(save(ahead.get(), folder.file("ahead")) == STASIS_OK);
    REQUIRE(save(plain.get(), folder.file("plain")) == STASIS_OK);
    CHECK(read_file(folder.file("ahead")).size() == read_file(folder.file("plain")).size());
    const Session loaded = load(llama(), folder.file("ahead"));
    const stasis_generate_result of_loaded = generate(loaded.get(), 20);
    CHECK((of_loaded.drafted == 0 && of_loaded.passes == 20));
    REQUIRE(set_draft(loaded.get(), llama(), 3, 3) == STASIS_OK);
    CHECK(generate(loaded.get(), 20).accepted > 10);
    generate(plain.get(), 40);
    CHECK(digest(loaded.get()) == digest(plain.get()));
    // Off.
    REQUIRE(stasis_session_set_draft(ahead.get(), nullptr, nullptr, nullptr) == STASIS_OK);
    CHECK(generate(ahead.get(), 40).drafted == 0);
    CHECK(digest(ahead.get()) == digest(plain.get()));
}

TEST_CASE("stasis_session_set_draft: stopped in the middle of what was accepted, a session has the "
          "tokens it told of") {
    for (const uint32_t stop_after : {1U, 2U, 3U, 4U, 5U, 11U}) {
        struct Stop {
            uint32_t after, seen = 0;
            stasis_cancel *cancel = nullptr;
        };
        const Cancel cancel = make_cancel();
        for (const bool cancels : {false, true}) {
            const Session ahead = session_of(gemma(), repeating(60));
            const Session plain = fork(ahead.get());
            REQUIRE(set_draft(ahead.get(), gemma(), 6, 6) == STASIS_OK);
            for (const stasis_session *of : {ahead.get(), plain.get()}) {
                auto *session = const_cast<stasis_session *>(of);
                stasis_cancel_reset(cancel.get());
                Stop stop{stop_after, 0, cancels ? cancel.get() : nullptr};
                auto options = sized<stasis_generate_options>();
                options.flags = STASIS_GENERATE_IGNORE_END;
                options.cancel = cancel.get();
                options.callback_user = &stop;
                options.callback = [](void *user, const stasis_generated *) -> int32_t {
                    auto &self = *static_cast<Stop *>(user);
                    if (++self.seen < self.after) {
                        return 0;
                    }
                    stasis_cancel_request(self.cancel);
                    return self.cancel == nullptr ? 1 : 0;
                };
                auto result = sized<stasis_generate_result>();
                CHECK(stasis_session_generate(session, &options, &result, nullptr) ==
                      (cancels ? STASIS_CANCELLED : STASIS_STOPPED));
                CHECK(result.count == stop_after);
                CHECK(position(session) == 60 + stop_after);
            }
            CHECK(digest(ahead.get()) == digest(plain.get()));
            generate(ahead.get(), 20);
            generate(plain.get(), 20);
            CHECK(digest(ahead.get()) == digest(plain.get()));
        }
    }
}

TEST_CASE("stasis_session_set_draft: set_draft refuses what does not fit and leaves the setting as "
          "it was") {
    const Session session = session_of(llama(), repeating(40));
    stasis_error error;
    CHECK(set_draft(nullptr, nullptr) == STASIS_INVALID_ARGUMENT);
    REQUIRE(set_draft(session.get(), llama(), 5, 5) == STASIS_OK);
    CHECK(set_draft(session.get(), shared_model("recall-llama"), 0, 0, &error) ==
          STASIS_MODEL_MISMATCH);
    CHECK(contains(error, "vocabulary"));
    const Session other = create(shared_model("recall-llama"));
    CHECK(set_draft(other.get(), shared_model("recall-gemma3"), 0, 0, &error) ==
          STASIS_MODEL_MISMATCH);
    CHECK(set_draft(session.get(), nullptr, 33, 0, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "tokens_min is 33"));
    CHECK(set_draft(session.get(), nullptr, 0, 33, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(set_draft(session.get(), nullptr, 6, 5, &error) == STASIS_INVALID_ARGUMENT);
    auto options = sized<stasis_draft_options>();
    options.reserved = 1;
    CHECK(stasis_session_set_draft(session.get(), nullptr, &options, nullptr) ==
          STASIS_UNSUPPORTED);
    CHECK(generate(session.get(), 30).passes == 5); // five of the draft model's with each
    CHECK(set_draft(session.get(), nullptr, 12) == STASIS_OK); // more than 8: the most as well
    CHECK(set_draft(session.get(), nullptr, 0, 1) == STASIS_OK);

    struct Inside {
        stasis_session *session;
        stasis_status status;
    } inside{session.get(), STASIS_OK};
    auto generation = sized<stasis_generate_options>();
    generation.tokens_max = 1;
    generation.callback_user = &inside;
    generation.callback = [](void *user, const stasis_generated *) -> int32_t {
        auto &self = *static_cast<Inside *>(user);
        self.status = stasis_session_set_draft(self.session, nullptr, nullptr, nullptr);
        return 0;
    };
    REQUIRE(stasis_session_generate(session.get(), &generation, nullptr, nullptr) == STASIS_OK);
    CHECK(inside.status == STASIS_BUSY);
}

TEST_CASE("stasis_session_set_draft: a session keeps its draft model alive, and an older caller's "
          "result is not overrun") {
    Session session = session_of(llama(), repeating(40));
    {
        const Model draft = open_path(test_data("zoo/llama-gqa-untied"));
        REQUIRE(set_draft(session.get(), draft.get(), 4, 4) == STASIS_OK);
    }
    CHECK(generate(session.get(), 30).accepted == 24);
    auto options = sized<stasis_generate_options>();
    options.tokens_max = 5;
    auto result = sized<stasis_generate_result>();
    result.struct_size = offsetof(stasis_generate_result, drafted);
    result.drafted = 77;
    REQUIRE(stasis_session_generate(session.get(), &options, &result, nullptr) == STASIS_OK);
    CHECK((result.count == 5 && result.drafted == 77));
}

TEST_CASE("stasis_session_set_draft: where the drafter's pages run out, the generation goes on "
          "without it and says so") {
    const Session session = session_of(llama(), repeating(60));
    const Session plain = fork(session.get());
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 70000; // some positions' worth, of pages that hold 64
    const Model draft = open_path(test_data("zoo/llama-gqa-untied"), &options);
    REQUIRE(set_draft(session.get(), draft.get(), 4, 4) == STASIS_OK);
    const stasis_generate_result result = generate(session.get(), 300);
    generate(plain.get(), 300);
    CHECK(digest(session.get()) == digest(plain.get()));
    CHECK((result.count == 300 && result.draft_failures == 1));
    CHECK(result.passes + result.accepted == 300);
}

TEST_CASE("stasis_session_set_draft: after a rewind as well a drafter of the same pool gives way") {
    auto options = sized<stasis_model_options>();
    options.kv_budget_bytes = 3 * info_of(session_of(llama(), some_tokens(5))).kv_bytes;
    std::vector<Digest> digests;
    for (const bool drafts : {false, true}) {
        const Model model = open_path(test_data("zoo/llama-gqa-untied"), &options);
        const Session session = session_of(model.get(), Tokens(10, 9));
        const Session other = create(model.get());
        auto draft = sized<stasis_draft_options>();
        draft.tokens_min = draft.tokens_max = 4;
        if (drafts) {
            REQUIRE(stasis_session_set_draft(session.get(), model.get(), &draft, nullptr) ==
                    STASIS_OK);
        }
        auto generate = sized<stasis_generate_options>();
        generate.tokens_max = 5;
        generate.flags = STASIS_GENERATE_IGNORE_END;
        stasis_error error;
        REQUIRE(stasis_session_generate(session.get(), &generate, nullptr, nullptr) == STASIS_OK);
        append(other.get(), Tokens(64, 9));
        REQUIRE(stasis_session_rewind(session.get(), 12, 0, nullptr, nullptr) == STASIS_OK);
        const stasis_status status =
            stasis_session_generate(session.get(), &generate, nullptr, &error);
        CHECK_MESSAGE(status == STASIS_OK, error.message);
        digests.push_back(digest(session.get()));
    }
    CHECK(digests[0] == digests[1]);
}
