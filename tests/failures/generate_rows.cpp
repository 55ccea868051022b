// Failing calls that draw tokens: one by one, in a row, with a drafter, and several sessions' at
// once.
#include "tests/failures/memory.h"
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

stasis_model *drafting_model() {
    static auto &model = *new Model(open_path(path_of(kGemma))); // as in fixture.h
    return model.get();
}

stasis_status set_sampling(stasis_session *session, stasis_error *error) {
    static constexpr stasis_token kTokens[] = {3, 5};
    static constexpr float kBias[] = {1, -1};
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 3.0F;
    sampling.top_k = 100;
    sampling.top_p = 0.9F;
    sampling.repetition_penalty = 1.1F;
    sampling.typical_p = 0.99F;
    sampling.top_n_sigma = 4;
    sampling.xtc_probability = 0.5F;
    sampling.dry_multiplier = 0.8F;
    sampling.dry_breakers = kTokens;
    sampling.dry_breaker_count = 2;
    sampling.bias_tokens = kTokens;
    sampling.bias = kBias;
    sampling.bias_count = 2;
    return stasis_session_set_sampling(session, &sampling, error);
}

std::shared_ptr<stasis_session> make(stasis_model *model, const Tokens &tokens) {
    const std::shared_ptr<stasis_session> session(create(model).release(), stasis_session_free);
    append(session.get(), tokens);
    return session;
}

Row row(const char *function, const char *detail, Needs needs,
        std::function<stasis_status(stasis_session *, stasis_token &, stasis_error *)> call,
        bool widely) {
    return {function, detail, needs, kGemma, [=](stasis_model *model) {
                const std::shared_ptr<stasis_session> session = make(model, some_tokens(63));
                if (widely) {
                    REQUIRE(set_sampling(session.get(), nullptr) == STASIS_OK);
                }
                const auto token = std::make_shared<stasis_token>(4711);
                const std::string whole = outcome_of(session.get());
                return Trial{
                    [=](stasis_error *error) { return call(session.get(), *token, error); },
                    [=] {
                        CHECK(*token == 4711);
                        CHECK(outcome_of(session.get()) == whole);
                    },
                    [=] {
                        stasis_token next = 0; // under the settings, whatever they are now
                        REQUIRE(stasis_session_sample(session.get(), &next, nullptr) == STASIS_OK);
                        return std::to_string(*token) + " " + std::to_string(next) +
                               outcome_of(session.get());
                    }};
            }};
}

// Events that a generation's callback was called with.
struct Told {
    std::string text;
    Tokens tokens;
    std::vector<float> likely;
};

int32_t tell(void *user, const stasis_generated *event) {
    const Quiet quiet;
    auto &told = *static_cast<Told *>(user);
    told.text.append(event->text, event->length);
    if (event->last == 0) {
        told.tokens.push_back(event->token);
        told.likely.push_back(event->log_probability);
    }
    return 0;
}

// A generation of 10 tokens, across a page. Tokens that were drawn before a failure stay; the next
// call continues.
Row generating(const char *detail, Needs needs, bool widely,
               std::function<void(stasis_session *, stasis_model *)> prepare,
               const char *name = kChat, uint64_t length = 59) {
    return {"stasis_session_generate", detail, needs, name, [=](stasis_model *model) {
                // Repeats itself, so that there is something to look up.
                const std::shared_ptr<stasis_session> session = make(model, Tokens(length, 5));
                if (widely) {
                    REQUIRE(set_sampling(session.get(), nullptr) == STASIS_OK);
                }
                prepare(session.get(), model);
                const auto told = std::make_shared<Told>();
                const auto call = [=](stasis_error *error) {
                    const char *stops[] = {"no such text", "nor this"};
                    auto options = sized<stasis_generate_options>();
                    options.flags = STASIS_GENERATE_IGNORE_END;
                    options.tokens_max = length + 10 - position(session.get());
                    options.stop_strings = stops;
                    options.stop_string_count = name == kChat ? 2 : 0; // others have no text
                    options.log_probability_count = 3;
                    options.callback = tell;
                    options.callback_user = told.get();
                    auto result = sized<stasis_generate_result>();
                    const uint64_t begin = position(session.get());
                    const stasis_status status =
                        options.tokens_max == 0
                            ? STASIS_OK
                            : stasis_session_generate(session.get(), &options, &result, error);
                    CHECK(position(session.get()) == begin + result.count);
                    return status;
                };
                return Trial{call,
                             [=] { // the log has the reported tokens, and nothing else
                                 const uint64_t drawn = position(session.get()) - length;
                                 REQUIRE(drawn == told->tokens.size());
                                 Tokens all(length, 5);
                                 all.insert(all.end(), told->tokens.begin(), told->tokens.end());
                                 CHECK(digest(session.get()) == digest(make(model, all).get()));
                             },
                             [=] {
                                 const auto &likely = told->likely;
                                 return hex(likely.data(), likely.size() * sizeof likely[0]) +
                                        hex(told->tokens.data(),
                                            told->tokens.size() * sizeof(stasis_token)) +
                                        outcome_of(session.get());
                             }};
            }};
}

// Returns a stop string that holds back all that `asking` generates over kChat, so that memory for
// waiting text is needed. Generated with a model of its own, which leaves the trial's cold.
const std::string &holding_back(const Tokens &prompt) {
    static std::string &stop = *new std::string();
    if (stop.empty()) {
        const Model model = open_path(path_of(kChat));
        Told told;
        auto options = sized<stasis_generate_options>();
        options.flags = STASIS_GENERATE_IGNORE_END;
        options.tokens_max = 10;
        options.callback = tell;
        options.callback_user = &told;
        REQUIRE(stasis_session_generate(make(model.get(), prompt).get(), &options, nullptr,
                                        nullptr) == STASIS_OK);
        REQUIRE(told.text.size() > 15);
        stop = told.text + " and more";
    }
    return stop;
}

// A generation that is asked for 10 tokens, across a page, in one trial. After a failure it is
// asked again, and goes on.
struct Asked {
    std::shared_ptr<stasis_session> session;
    stasis_generation *generation = nullptr;
    Told told;
    uint32_t last = 0;

    ~Asked() { stasis_generation_end(generation); }
    stasis_status ask(stasis_error *error) {
        stasis_status status = STASIS_OK;
        while (status == STASIS_OK && last == 0) {
            auto event = sized<stasis_generated>();
            status = stasis_generation_next(generation, &event, error);
            if (status == STASIS_OK) {
                tell(&told, &event);
                last = event.last;
            }
        }
        return status;
    }
};

Row asking(const char *function, const char *detail, Needs needs,
           std::function<void(stasis_session *, stasis_model *)> prepare, const char *name = kChat,
           uint64_t length = 59) {
    const bool begins = std::string(function) == "stasis_generation_begin";
    return {function, detail, needs, name, [=](stasis_model *model) {
                const auto asked = std::make_shared<Asked>();
                const char *const stop =
                    name == kChat ? holding_back(Tokens(length, 5)).c_str() : nullptr;
                asked->session = make(model, Tokens(length, 5));
                prepare(asked->session.get(), model);
                const auto begin = [=](stasis_error *error) {
                    const char *stops[] = {stop, "nor this"};
                    const stasis_token never = 1;
                    auto options = sized<stasis_generate_options>();
                    options.flags = STASIS_GENERATE_IGNORE_END;
                    options.tokens_max = 10;
                    options.stop_strings = stops;
                    options.stop_string_count = name == kChat ? 2 : 0; // others have no text
                    options.stop_tokens = &never;
                    options.stop_token_count = 1;
                    options.log_probability_count = 3;
                    return stasis_generation_begin(asked->session.get(), &options,
                                                   &asked->generation, error);
                };
                if (!begins) {
                    REQUIRE(begin(nullptr) == STASIS_OK);
                }
                return Trial{
                    [=](stasis_error *error) { return begins ? begin(error) : asked->ask(error); },
                    [=] { // the log has the delivered tokens, and nothing else
                        CHECK((asked->generation == nullptr) == begins);
                        Tokens all(length, 5);
                        const Tokens &drawn = asked->told.tokens;
                        all.insert(all.end(), drawn.begin(), drawn.end());
                        if (drawn.size() % 2 == 1) { // else it goes on with what is computed ahead
                            REQUIRE(position(asked->session.get()) == all.size());
                            CHECK(digest(asked->session.get()) == digest(make(model, all).get()));
                        }
                    },
                    [=] {
                        REQUIRE(asked->ask(nullptr) == STASIS_OK);
                        auto result = sized<stasis_generate_result>();
                        REQUIRE(stasis_generation_get_result(asked->generation, &result, nullptr) ==
                                STASIS_OK);
                        CHECK(result.count == 10);
                        CHECK(result.passes + result.accepted == 10);
                        const Told &told = asked->told;
                        return told.text +
                               hex(told.likely.data(), told.likely.size() * sizeof(float)) +
                               hex(told.tokens.data(), told.tokens.size() * sizeof(stasis_token)) +
                               outcome_of(asked->session.get());
                    }};
            }};
}

// Returns the text of so many tokens, as in the middle of another.
std::string spelled(const stasis_model *model, stasis_token count) {
    Tokens tokens;
    for (stasis_token token = 0; token < count; ++token) {
        tokens.push_back(100 + token);
    }
    std::string text(1000, ' ');
    size_t length = 0;
    REQUIRE(stasis_model_detokenize(model, tokens.data(), tokens.size(), STASIS_DETOKENIZE_MIDDLE,
                                    text.data(), text.size(), &length, nullptr) == STASIS_OK);
    return text.substr(0, length);
}

// A text stream: made, or given tokens until its text is complete.
struct Streamed {
    stasis_text_stream *stream = nullptr;
    std::string text;
    stasis_token pushed = 0;

    ~Streamed() { stasis_text_stream_free(stream); }
    stasis_status create(const stasis_model *model, const std::string &stop, stasis_error *error) {
        const char *stops[] = {stop.c_str(), "nor this"};
        auto options = sized<stasis_generate_options>();
        options.stop_strings = stops;
        options.stop_string_count = 2;
        return stasis_text_stream_create(model, &options, &stream, error);
    }
    stasis_status push(stasis_token end, stasis_error *error) {
        auto piece = sized<stasis_text_piece>();
        while (pushed < end) {
            const stasis_status status =
                stasis_text_stream_push(stream, 100 + pushed, &piece, error);
            if (status != STASIS_OK) {
                return status;
            }
            const Quiet quiet;
            text.append(piece.text, piece.length);
            ++pushed;
        }
        return STASIS_OK;
    }
    stasis_status finish(stasis_error *error) {
        auto piece = sized<stasis_text_piece>();
        const stasis_status status = stasis_text_stream_finish(stream, &piece, error);
        if (status == STASIS_OK) {
            const Quiet quiet;
            text.append(piece.text, piece.length);
        }
        return status;
    }
};

Row streaming(const char *function) {
    const bool creates = std::string(function) == "stasis_text_stream_create",
               finishes = std::string(function) == "stasis_text_stream_finish";
    return {function, "", Needs::warm_model, kChat, [=](stasis_model *model) {
                const auto streamed = std::make_shared<Streamed>();
                const std::string stop = spelled(model, 60) + " and more"; // holds all of it back
                if (!creates) {
                    REQUIRE(streamed->create(model, stop, nullptr) == STASIS_OK);
                }
                if (finishes) {
                    REQUIRE(streamed->push(60, nullptr) == STASIS_OK);
                }
                return Trial{[=](stasis_error *error) {
                                 return creates    ? streamed->create(model, stop, error)
                                        : finishes ? streamed->finish(error)
                                                   : streamed->push(60, error);
                             },
                             [=] { CHECK((streamed->stream == nullptr) == creates); },
                             [=] {
                                 REQUIRE(streamed->push(60, nullptr) == STASIS_OK);
                                 REQUIRE(streamed->finish(nullptr) == STASIS_OK);
                                 CHECK(streamed->text.size() > 20);
                                 return streamed->text;
                             }};
            }};
}

Row asking_for_result() {
    return {"stasis_generation_get_result", "", Needs::warm_model, kChat, [](stasis_model *model) {
                const auto asked = std::make_shared<Asked>();
                asked->session = make(model, Tokens(59, 5));
                REQUIRE(stasis_generation_begin(asked->session.get(), nullptr, &asked->generation,
                                                nullptr) == STASIS_OK);
                return Trial{[=](stasis_error *error) {
                                 auto result = sized<stasis_generate_result>();
                                 return stasis_generation_get_result(asked->generation, &result,
                                                                     error);
                             },
                             [] {}, [=] { return outcome_of(asked->session.get()); }};
            }};
}

// Three sessions, of which one appends, one draws and one does both.
struct Stepping {
    std::vector<std::shared_ptr<stasis_session>> sessions;
    std::vector<uint64_t> begins, ends;
    std::vector<Digest> before;
    Tokens drawn{0, 0, 0};

    stasis_status step(stasis_error *error) {
        static const Tokens tokens = some_tokens(7, 3);
        const size_t counts[] = {7, 0, 3};
        stasis_step_item items[3] = {};
        stasis_error errors[3];
        for (size_t i = 0; i < 3; ++i) { // what an earlier, failed call left to do
            const uint64_t at = position(sessions[i].get());
            stasis_step_item &item = items[i];
            item.struct_size = sizeof item;
            item.session = sessions[i].get();
            item.count = at == begins[i] ? counts[i] : 0;
            item.flags = i != 0 && at != ends[i] ? STASIS_STEP_SAMPLE : 0;
            item.error = &errors[i];
        }
        const stasis_status status = stasis_sessions_step(items, sizeof items[0], 3, tokens.data(),
                                                          tokens.size(), nullptr, error);
        stasis_status worst = status;
        const auto fails = [&](size_t i) {
            *error = errors[i];
            return items[i].status;
        };
        for (size_t i = 0; i < 3; ++i) {
            if (status == STASIS_OK && items[i].status == STASIS_OK) {
                drawn[i] = items[i].flags != 0 ? items[i].token : drawn[i];
                CHECK(position(sessions[i].get()) == ends[i]);
            } else if (status == STASIS_OK) {
                worst = fails(i);
            }
        }
        if (status != STASIS_OK) { // of the whole step: nothing was done
            for (size_t i = 0; i < 3; ++i) {
                CHECK(position(sessions[i].get()) == begins[i]);
            }
        }
        return worst;
    }
};

Row stepping(Needs needs) {
    return {"stasis_sessions_step", "append, draw, both", needs, kGemma, [](stasis_model *model) {
                const auto all = std::make_shared<Stepping>();
                for (const size_t length : {60U, 63U, 62U}) {
                    all->sessions.push_back(make(model, some_tokens(length, length)));
                    all->begins.push_back(length);
                    all->before.push_back(digest(all->sessions.back().get()));
                }
                all->ends = {67, 64, 66};
                return Trial{[=](stasis_error *error) { return all->step(error); },
                             [=] {
                                 for (size_t i = 0; i < 3; ++i) {
                                     if (position(all->sessions[i].get()) == all->begins[i]) {
                                         CHECK(digest(all->sessions[i].get()) == all->before[i]);
                                     }
                                 }
                             },
                             [=] {
                                 std::string outcome;
                                 for (size_t i = 0; i < 3; ++i) {
                                     outcome += outcome_of(all->sessions[i].get()) +
                                                std::to_string(all->drawn[i]) + " ";
                                 }
                                 return outcome;
                             }};
            }};
}

stasis_status draft_by(stasis_session *session, stasis_model *model, stasis_error *error) {
    auto options = sized<stasis_draft_options>();
    options.tokens_min = options.tokens_max = 4;
    return stasis_session_set_draft(session, model, &options, error);
}

} // namespace

std::vector<Row> generate_rows() {
    drafting_model(); // not inside a call
    const auto sample = [](stasis_session *session, stasis_token &token, stasis_error *error) {
        return stasis_session_sample(session, &token, error);
    };
    const auto decode = [](stasis_session *session, stasis_token &token, stasis_error *error) {
        return stasis_session_decode(session, &token, error);
    };
    const auto set = [](stasis_session *session, stasis_token &, stasis_error *error) {
        return set_sampling(session, error);
    };
    const auto draft = [](stasis_session *session, stasis_token &, stasis_error *error) {
        return draft_by(session, drafting_model(), error);
    };
    const auto look_up = [](stasis_session *session, stasis_token &, stasis_error *error) {
        return draft_by(session, nullptr, error);
    };
    const auto look_up_next = [](stasis_session *session, stasis_model *) {
        REQUIRE(draft_by(session, nullptr, nullptr) == STASIS_OK);
    };
    const auto draft_next = [](stasis_session *session, stasis_model *model) {
        REQUIRE(draft_by(session, model, nullptr) == STASIS_OK);
    };
    return {
        row("stasis_session_sample", "greedy", Needs::fresh_model, sample, false),
        row("stasis_session_sample", "every step", Needs::fresh_model, sample, true),
        row("stasis_session_decode", "fills a page", Needs::fresh_model, decode, true),
        row("stasis_session_set_sampling", "", Needs::warm_model, set, false),
        row("stasis_session_set_sampling", "again", Needs::warm_model, set, true),
        row("stasis_session_set_draft", "a model", Needs::warm_model, draft, false),
        row("stasis_session_set_draft", "a search", Needs::warm_model, look_up, false),
        generating("greedy", Needs::fresh_model, false, [](stasis_session *, stasis_model *) {}),
        generating("every step", Needs::warm_model, true, [](stasis_session *, stasis_model *) {}),
        generating("drafts by a search", Needs::warm_model, false, look_up_next),
        generating("drafts by a model", Needs::warm_model, false, draft_next),
        // From a checkpoint, which stays beside the states that follow.
        generating("hybrid, drafts by a search", Needs::warm_model, false, look_up_next, kRecurrent,
                   256),
        generating("short convolutions, drafts by a search", Needs::warm_model, false, look_up_next,
                   kConvolving, 256),
        generating(
            "hybrid, drafts by its MTP head", Needs::fresh_model, false,
            [](stasis_session *session, stasis_model *model) {
                auto info = sized<stasis_model_info>();
                REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
                REQUIRE(info.mtp_bytes != 0);
                REQUIRE(draft_by(session, model, nullptr) == STASIS_OK);
            },
            kMtp, 256),
        asking("stasis_generation_begin", "drafts by a search", Needs::warm_model, look_up_next),
        asking("stasis_generation_next", "plain", Needs::fresh_model,
               [](stasis_session *, stasis_model *) {}),
        asking("stasis_generation_next", "drafts by a search", Needs::warm_model, look_up_next),
        asking("stasis_generation_next", "drafts by a model", Needs::warm_model, draft_next),
        asking("stasis_generation_next", "hybrid, drafts by its MTP head", Needs::fresh_model,
               draft_next, kMtp, 256),
        asking_for_result(),
        streaming("stasis_text_stream_create"),
        streaming("stasis_text_stream_push"),
        streaming("stasis_text_stream_finish"),
        stepping(Needs::fresh_model),
        stepping(Needs::warm_model),
    };
}

} // namespace failures
