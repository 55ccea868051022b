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
        generating("drafts by a search", Needs::warm_model, false,
                   [](stasis_session *session, stasis_model *) {
                       REQUIRE(draft_by(session, nullptr, nullptr) == STASIS_OK);
                   }),
        generating("drafts by a model", Needs::warm_model, false,
                   [](stasis_session *session, stasis_model *model) {
                       REQUIRE(draft_by(session, model, nullptr) == STASIS_OK);
                   }),
        generating( // from a checkpoint, which stays beside the states that follow
            "hybrid, drafts by a search", Needs::warm_model, false,
            [](stasis_session *session, stasis_model *) {
                REQUIRE(draft_by(session, nullptr, nullptr) == STASIS_OK);
            },
            kRecurrent, 256),
        generating(
            "short convolutions, drafts by a search", Needs::warm_model, false,
            [](stasis_session *session, stasis_model *) {
                REQUIRE(draft_by(session, nullptr, nullptr) == STASIS_OK);
            },
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
        stepping(Needs::fresh_model),
        stepping(Needs::warm_model),
    };
}

} // namespace failures
