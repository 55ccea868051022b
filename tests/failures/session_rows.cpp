// Failing calls on sessions: making, growing, going back, and what one can ask of them.
#include "tests/abi/trace_model.h"
#include "tests/failures/memory.h"
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

using Call = std::function<stasis_status(stasis_session *session, stasis_error *error)>;

// A session before the call.
struct Before {
    size_t tokens = 60; // one append more crosses a page
    uint32_t tracking = 0;
    uint64_t domain = STASIS_DOMAIN_PRIVATE;
    size_t appended = 0; // after those, so that a rewind removes something
};

std::shared_ptr<stasis_session> session_after(stasis_model *model, const Before &before) {
    auto options = sized<stasis_session_options>();
    options.track_attention = before.tracking;
    options.domain = before.domain;
    stasis_session *session = nullptr;
    REQUIRE(stasis_session_create(model, &options, &session, nullptr) == STASIS_OK);
    std::shared_ptr<stasis_session> owner(session, stasis_session_free);
    if (before.tokens != 0) {
        append(session, some_tokens(before.tokens));
    }
    if (before.appended != 0) {
        append(session, some_tokens(before.appended, 2));
    }
    return owner;
}

// A call that changes a session, or asks it for something that `out` then holds.
Row changing(const char *function, const char *detail, Needs needs, const Before &before, Call call,
             std::function<void(stasis_session *)> prepare = nullptr, const char *model = kGemma) {
    return {function, detail, needs, model, [=](stasis_model *opened) {
                const std::shared_ptr<stasis_session> session = session_after(opened, before);
                if (prepare) {
                    prepare(session.get());
                }
                const std::string whole = outcome_of(session.get());
                return Trial{[=](stasis_error *error) { return call(session.get(), error); },
                             [=] { CHECK(outcome_of(session.get()) == whole); },
                             [=] { return outcome_of(session.get()); }};
            }};
}

// A call that fills `out` and leaves the session as it is.
template <typename Out>
Row asking(const char *function, const char *detail, Needs needs, const Before &before,
           std::function<stasis_status(stasis_session *, Out &, stasis_error *)> call,
           std::function<void(stasis_session *)> prepare = nullptr, const char *model = kGemma) {
    return {function, detail, needs, model, [=](stasis_model *opened) {
                const std::shared_ptr<stasis_session> session = session_after(opened, before);
                if (prepare) {
                    prepare(session.get());
                }
                const auto out = std::make_shared<Out>();
                return Trial{[=](stasis_error *error) { return call(session.get(), *out, error); },
                             [=] { CHECK(*out == Out{}); },
                             [=] {
                                 return hex(out->data(), out->size() * sizeof *out->data()) +
                                        outcome_of(session.get());
                             }};
            }};
}

stasis_status append_more(stasis_session *session, stasis_error *error) {
    static const Tokens more = some_tokens(10, 2);
    return stasis_session_append(session, more.data(), more.size(), nullptr, error);
}

// A call that makes a session.
Row making(const char *function, const char *detail, Needs needs,
           std::function<stasis_status(stasis_model *, stasis_session *, stasis_session **,
                                       stasis_error *)>
               call) {
    return {function, detail, needs, kGemma, [=](stasis_model *model) {
                const std::shared_ptr<stasis_session> parent = session_after(model, {});
                const auto out = std::make_shared<Session>();
                const std::string whole = outcome_of(parent.get());
                return Trial{[=](stasis_error *error) {
                                 stasis_session *made = nullptr;
                                 const stasis_status status =
                                     call(model, parent.get(), &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [=] { CHECK(outcome_of(parent.get()) == whole); },
                             [=] { return outcome_of(out->get()) + outcome_of(parent.get()); }};
            }};
}

void rewind_to(stasis_session *session, uint64_t position) {
    REQUIRE(stasis_session_rewind(session, position, STASIS_REWIND_RECOMPUTE, nullptr, nullptr) ==
            STASIS_OK);
}

// Tokens that some other session of the domain had appended: their pages are known.
void know_more(stasis_session *session) {
    const Session other = fork(session);
    REQUIRE(append_more(other.get(), nullptr) == STASIS_OK);
}

void set_queue(stasis_session *session) {
    auto options = sized<stasis_trace_options>();
    options.queue_events = 1000;
    options.flags = STASIS_TRACE_READS;
    REQUIRE(stasis_session_set_trace(session, &options, nullptr) == STASIS_OK);
}

// An append whose trace must keep agreeing with the session's table, whatever fails.
Row traced_append() {
    return {"stasis_session_append", "traced", Needs::fresh_model, kGemma, [](stasis_model *model) {
                const auto traced = std::make_shared<TraceModel>();
                const std::shared_ptr<stasis_session> session = session_after(model, {});
                auto options = traced->options();
                options.callback = [](void *user, const stasis_trace_event *event) {
                    const Quiet quiet; // the listener's own memory is none of the library's
                    TraceModel::hear(user, event);
                };
                traced->position = position(session.get());
                REQUIRE(stasis_session_set_trace(session.get(), &options, nullptr) == STASIS_OK);
                const Digest before = digest(session.get());
                const auto agrees = [=] {
                    const std::string differs = traced->differs(session.get());
                    CHECK_MESSAGE(differs.empty(), differs);
                };
                return Trial{[=](stasis_error *error) { return append_more(session.get(), error); },
                             [=] {
                                 agrees();
                                 CHECK(digest(session.get()) == before);
                             },
                             [=] {
                                 agrees();
                                 const std::string state = outcome_of(session.get());
                                 stasis_session_set_trace(session.get(), nullptr, nullptr);
                                 return state;
                             }};
            }};
}

stasis_status append_chat(stasis_session *session, stasis_error *error) {
    return stasis_session_append_chat(session, kConversation.data(), kConversation.size(),
                                      STASIS_CHAT_REPLY, nullptr, nullptr, error);
}

std::vector<Row> growing_rows() {
    const auto message = [](stasis_session *session, stasis_error *error) {
        return stasis_session_append_message(session, "user", "what is it?", 11,
                                             STASIS_MESSAGE_REPLY, nullptr, error);
    };
    const auto system = [](stasis_session *session, stasis_error *error) {
        return stasis_session_append_message(session, "system", "be brief", 8, 0, nullptr, error);
    };
    const auto answered = [message](stasis_session *session) {
        REQUIRE(message(session, nullptr) == STASIS_OK);
        append(session, {5, 6});
    };
    const auto recompute = [](stasis_session *session, stasis_error *error) {
        return stasis_session_rewind(session, 60, STASIS_REWIND_RECOMPUTE, nullptr, error);
    };
    const auto evict = [](stasis_session *session, stasis_error *error) {
        return stasis_session_evict(session, 3, 70, error);
    };
    const char *const append = "stasis_session_append";
    return {
        changing(append, "the first", Needs::fresh_model, {.tokens = 0}, append_more),
        changing(append, "across a page", Needs::fresh_model, {}, append_more),
        changing(append, "makes pages known", Needs::fresh_model, {.domain = 7}, append_more),
        changing(append, "takes known pages", Needs::fresh_model, {.domain = 7}, append_more,
                 know_more),
        changing(append, "tracked attention", Needs::fresh_model,
                 {.tracking = STASIS_TRACK_BY_HEAD}, append_more),
        changing(append, "behind an eviction", Needs::warm_model, {.tokens = 150}, append_more,
                 [evict](stasis_session *session) { REQUIRE(evict(session, nullptr) == 0); }),
        traced_append(),
        changing(append, "traced by a queue", Needs::fresh_model, {}, append_more, set_queue),
        changing(append, "over a checkpoint", Needs::fresh_model, {.tokens = 250, .domain = 7},
                 append_more, nullptr, kRecurrent),
        changing(append, "takes a known state", Needs::fresh_model, {.tokens = 250, .domain = 7},
                 append_more, know_more, kRecurrent),
        changing("stasis_session_append_message", "the first", Needs::fresh_model, {.tokens = 0},
                 message, nullptr, kChat),
        changing("stasis_session_append_message", "system, which waits", Needs::warm_model,
                 {.tokens = 0}, system, nullptr, kChat),
        changing("stasis_session_append_message", "behind a reply", Needs::warm_model,
                 {.tokens = 0}, message, answered, kChat),
        changing("stasis_session_append_chat", "", Needs::warm_model, {.tokens = 0}, append_chat,
                 nullptr, kChat),
        changing("stasis_session_rewind", "", Needs::fresh_model, {.appended = 2}, recompute),
        changing("stasis_session_rewind", "computes again", Needs::fresh_model, {.appended = 150},
                 recompute),
        changing("stasis_session_evict", "", Needs::fresh_model, {.tokens = 150}, evict),
        changing("stasis_session_evict", "again", Needs::warm_model, {.tokens = 150}, evict,
                 [](stasis_session *session) {
                     REQUIRE(stasis_session_evict(session, 60, 90, nullptr) == STASIS_OK);
                 }),
        making(
            "stasis_session_create", "", Needs::fresh_model,
            [](stasis_model *model, stasis_session *, stasis_session **out, stasis_error *error) {
                auto options = sized<stasis_session_options>();
                options.reserve = 100;
                return stasis_session_create(model, &options, out, error);
            }),
        making("stasis_session_fork", "", Needs::fresh_model,
               [](stasis_model *, stasis_session *parent, stasis_session **out,
                  stasis_error *error) { return stasis_session_fork(parent, out, error); }),
    };
}

std::vector<Row> asking_rows() {
    const auto back = [](stasis_session *session) { rewind_to(session, 60); };
    const auto attention = [](stasis_session *session, std::vector<double> &out,
                              stasis_error *error) {
        static double weights[10000];
        size_t count = 0;
        const stasis_status status = stasis_session_attention(session, STASIS_ATTENTION_BY_HEAD,
                                                              weights, 10000, &count, error);
        if (status == STASIS_OK) {
            const Quiet quiet;
            out.assign(weights, weights + count);
        }
        return status;
    };
    const auto logits = [](stasis_session *session, std::vector<float> &out, stasis_error *error) {
        float numbers[1000];
        size_t count = 0;
        const stasis_status status = stasis_session_logits(session, numbers, 1000, &count, error);
        if (status == STASIS_OK) {
            const Quiet quiet;
            out.assign(numbers, numbers + count);
        }
        return status;
    };
    return {
        asking<std::vector<double>>(
            "stasis_session_attention", "computed again", Needs::fresh_model,
            {.tracking = STASIS_TRACK_BY_HEAD, .appended = 2}, attention, back),
        asking<std::vector<double>>("stasis_session_attention", "", Needs::warm_model,
                                    {.tracking = STASIS_TRACK_BY_HEAD}, attention),
        asking<std::vector<float>>("stasis_session_logits", "behind a rewind", Needs::fresh_model,
                                   {.appended = 2}, logits, back),
        asking<std::vector<float>>(
            "stasis_session_logits", "from a checkpoint", Needs::fresh_model,
            {.tokens = 260, .appended = 60}, logits,
            [](stasis_session *session) { rewind_to(session, 270); }, kRecurrent),
        asking<std::vector<stasis_token>>(
            "stasis_session_top", "behind a rewind", Needs::fresh_model, {.appended = 2},
            [](stasis_session *session, std::vector<stasis_token> &out, stasis_error *error) {
                stasis_token tokens[5] = {};
                float likely[5] = {};
                const stasis_status status = stasis_session_top(session, 5, tokens, likely, error);
                if (status == STASIS_OK) {
                    const Quiet quiet;
                    out.assign(tokens, tokens + 5);
                }
                return status;
            },
            back),
    };
}

std::vector<Row> computing_rows() {
    return {
        asking<std::vector<double>>(
            "stasis_session_score", "", Needs::fresh_model, {},
            [](stasis_session *session, std::vector<double> &out, stasis_error *error) {
                static const Tokens more = some_tokens(10, 2);
                double scores[10] = {};
                const stasis_status status =
                    stasis_session_score(session, more.data(), 10, scores, nullptr, error);
                if (status == STASIS_OK) {
                    const Quiet quiet;
                    out.assign(scores, scores + 10);
                }
                return status;
            }),
        asking<std::vector<uint8_t>>(
            "stasis_session_digest", "behind a rewind", Needs::fresh_model, {.appended = 70},
            [](stasis_session *session, std::vector<uint8_t> &out, stasis_error *error) {
                stasis_digest value;
                const stasis_status status = stasis_session_digest(session, &value, error);
                if (status == STASIS_OK) {
                    const Quiet quiet;
                    out.assign(value.bytes, value.bytes + sizeof value.bytes);
                }
                return status;
            },
            [](stasis_session *session) { rewind_to(session, 127); }),
    };
}

Row chat_tokens_row() {
    return asking<Tokens>(
        "stasis_session_chat_tokens", "", Needs::warm_model, {.tokens = 0},
        [](stasis_session *session, Tokens &out, stasis_error *error) {
            stasis_token tokens[1000];
            size_t count = 0;
            const stasis_status status =
                stasis_session_chat_tokens(session, kConversation.data(), kConversation.size(),
                                           STASIS_CHAT_REPLY, nullptr, tokens, 1000, &count, error);
            if (status == STASIS_OK) {
                const Quiet quiet;
                out.assign(tokens, tokens + count);
            }
            return status;
        },
        nullptr, kChat);
}

Row reply_row() {
    return asking<std::string>(
        "stasis_session_reply", "", Needs::warm_model, {.tokens = 0},
        [](stasis_session *session, std::string &out, stasis_error *error) {
            char message[1000];
            size_t length = 0;
            const stasis_status status =
                stasis_session_reply(session, nullptr, 0, STASIS_REPLY_COMPLETE, message,
                                     sizeof message, &length, error);
            if (status == STASIS_OK) {
                const Quiet quiet;
                out.assign(message, length);
            }
            return status;
        },
        [](stasis_session *session) {
            REQUIRE(append_chat(session, nullptr) == STASIS_OK);
            append(session, {5, 6});
        },
        kChat);
}

std::vector<Row> copying_rows() {
    const auto take = [](stasis_session *session, std::vector<uint64_t> &out, stasis_error *error) {
        stasis_trace_event events[1000];
        size_t count = 0;
        const stasis_status status = stasis_session_take_trace(session, events, sizeof events[0],
                                                               1000, &count, nullptr, error);
        const Quiet quiet;
        out = {count};
        CHECK(count > 0);
        return status;
    };
    return {
        asking<std::vector<uint16_t>>(
            "stasis_session_kv", "", Needs::warm_model, {},
            [](stasis_session *session, std::vector<uint16_t> &out, stasis_error *error) {
                static uint16_t keys[10 * 1024], values[10 * 1024];
                size_t count = 0;
                const stasis_status status =
                    stasis_session_kv(session, 0, 50, 60, keys, values, 10 * 1024, &count, error);
                if (status == STASIS_OK) {
                    const Quiet quiet;
                    out.assign(keys, keys + count);
                }
                return status;
            }),
        asking<std::vector<stasis_token>>(
            "stasis_session_tokens", "", Needs::warm_model, {},
            [](stasis_session *session, std::vector<stasis_token> &out, stasis_error *error) {
                stasis_token tokens[60];
                uint8_t sources[60];
                size_t count = 0;
                const stasis_status status =
                    stasis_session_tokens(session, 0, tokens, sources, 60, &count, error);
                const Quiet quiet;
                out.assign(tokens, tokens + count);
                return status;
            }),
        asking<std::string>(
            "stasis_session_text", "", Needs::warm_model, {},
            [](stasis_session *session, std::string &out, stasis_error *error) {
                char text[1000];
                size_t length = 0;
                const stasis_status status =
                    stasis_session_text(session, 0, 60, text, sizeof text, &length, error);
                if (status == STASIS_OK) {
                    const Quiet quiet;
                    out.assign(text, length);
                }
                return status;
            },
            nullptr, kChat),
        chat_tokens_row(),
        reply_row(),
        asking<std::vector<uint64_t>>(
            "stasis_session_get_info", "", Needs::warm_model, {},
            [](stasis_session *session, std::vector<uint64_t> &out, stasis_error *error) {
                auto info = sized<stasis_session_info>();
                const stasis_status status = stasis_session_get_info(session, &info, error);
                const Quiet quiet;
                out = {info.position, info.kv_bytes};
                return status;
            }),
        asking<std::vector<uint64_t>>("stasis_session_take_trace", "", Needs::warm_model, {}, take,
                                      set_queue),
    };
}

std::vector<Row> setting_rows() {
    const auto callback = [](stasis_session *session, stasis_error *error) {
        auto options = sized<stasis_trace_options>();
        options.callback = [](void *, const stasis_trace_event *) {};
        return stasis_session_set_trace(session, &options, error);
    };
    const auto queue = [](stasis_session *session, stasis_error *error) {
        auto options = sized<stasis_trace_options>();
        options.queue_events = 100;
        return stasis_session_set_trace(session, &options, error);
    };
    return {
        changing("stasis_session_set_trace", "a callback", Needs::warm_model, {.tokens = 150},
                 callback),
        changing("stasis_session_set_trace", "a queue", Needs::warm_model, {.tokens = 150}, queue),
        changing("stasis_session_set_trace", "a queue in a callback's place", Needs::warm_model,
                 {.tokens = 150}, queue,
                 [callback](stasis_session *session) { REQUIRE(callback(session, nullptr) == 0); }),
        changing(
            "stasis_session_set_trace", "none", Needs::warm_model, {},
            [](stasis_session *session, stasis_error *error) {
                return stasis_session_set_trace(session, nullptr, error);
            },
            set_queue),
    };
}

} // namespace

std::vector<Row> session_rows() {
    std::vector<Row> rows = growing_rows();
    for (const std::vector<Row> &more :
         {asking_rows(), computing_rows(), copying_rows(), setting_rows()}) {
        rows.insert(rows.end(), more.begin(), more.end());
    }
    return rows;
}

} // namespace failures
