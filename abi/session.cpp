// Sessions: each function checks its arguments, holds the session and calls the runtime; see
// stasis.h and stasis_generate.h. Must not know files.
#include "runtime/session/session.h"

#include <algorithm>

#include "abi/generation.h"
#include "abi/run.h"
#include "abi/scheduler.h"
#include "abi/tokens.h"
#include "abi/trace.h"
#include "runtime/kernels/received.h"

stasis_session::stasis_session(std::unique_ptr<stasis::Session> given,
                               std::shared_ptr<const stasis::format::Contents> from)
    : session(std::move(given)), saved(std::move(from)) {}
stasis_session::~stasis_session() = default;

namespace stasis::abi {

static_assert(static_cast<uint32_t>(TokenSource::prompt) == STASIS_SOURCE_PROMPT);
static_assert(static_cast<uint32_t>(TokenSource::templated) == STASIS_SOURCE_TEMPLATE);
static_assert(static_cast<uint32_t>(TokenSource::text) == STASIS_SOURCE_TEXT);
static_assert(static_cast<uint32_t>(TokenSource::sampled) == STASIS_SOURCE_SAMPLED);
static_assert(static_cast<uint32_t>(Tracking::total) == STASIS_TRACK_TOTAL);
static_assert(static_cast<uint32_t>(Tracking::by_head) == STASIS_TRACK_BY_HEAD);
static_assert(TimelineOptions::kPrivate == STASIS_DOMAIN_PRIVATE);

TimelineOptions read_session_options(const stasis_session_options *given, const char *name) {
    const stasis_session_options options = read_struct(given, name);
    require_zero(options.reserved, name);
    require_zero(options.reserved_1, name);
    if (options.track_attention > STASIS_TRACK_BY_HEAD) {
        fail(Status::unsupported, "%s.track_attention is %u: expected 0, 1 (total) or 2 (by head)",
             name, options.track_attention);
    }
    TimelineOptions result;
    result.capacity = options.capacity;
    result.reserve = options.reserve;
    if (options.window_retain == STASIS_WINDOW_RETAIN_NONE) {
        result.window_retain = 0;
    } else if (options.window_retain != 0) {
        result.window_retain = options.window_retain;
    }
    result.tracking = static_cast<Tracking>(options.track_attention);
    result.domain = options.domain;
    return result;
}

namespace {

// Runs the body with the runtime's session while the call holds it. A call that is given the
// session as const looks at it, unless it says otherwise; any other changes it.
template <typename Held, typename Body>
stasis_status with(Held *session, stasis_error *error, const Body &body,
                   Use as = std::is_const_v<Held> ? Use::looks : Use::changes) noexcept {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, as);
        if constexpr (std::is_invocable_v<const Body &, Session &, const Caller &>) {
            body(*session->session, caller);
        } else {
            body(*session->session);
        }
    });
}

// Throws Error(invalid_argument) unless [begin, end) is a range of the session's positions.
void require_range(uint64_t begin, uint64_t end, uint64_t position) {
    if (begin > end || end > position) {
        fail(Status::invalid_argument,
             "positions [%llu, %llu): expected a range within the session's %llu positions",
             static_cast<Number>(begin), static_cast<Number>(end), static_cast<Number>(position));
    }
}

// Returns `given`, or `usual` if it is 0: a field of the ABI that is 0 means its default.
template <typename Number> Number given_or(Number given, Number usual) {
    return given == Number{} ? usual : given;
}

SamplingV2 read_sampling_v2(const stasis_sampling &sampling) {
    require_array(sampling.dry_breakers, sampling.dry_breaker_count, "sampling.dry_breakers");
    SamplingV2 result;
    result.typical_p = given_or(sampling.typical_p, result.typical_p);
    result.top_n_sigma = sampling.top_n_sigma;
    result.xtc_probability = sampling.xtc_probability;
    result.xtc_threshold = given_or(sampling.xtc_threshold, result.xtc_threshold);
    result.dry_multiplier = sampling.dry_multiplier;
    result.dry_base = given_or(sampling.dry_base, result.dry_base);
    result.dry_allowed_length = given_or(sampling.dry_allowed_length, result.dry_allowed_length);
    result.dry_range = sampling.dry_range;
    result.min_keep = given_or(sampling.min_keep, result.min_keep);

    std::vector<uint32_t> &breakers = result.dry_breakers;
    breakers.assign(sampling.dry_breakers, sampling.dry_breakers + sampling.dry_breaker_count);
    std::sort(breakers.begin(), breakers.end());
    breakers.erase(std::unique(breakers.begin(), breakers.end()), breakers.end());
    return result;
}

Sampling read_sampling(const stasis_sampling *given) {
    const stasis_sampling sampling = read_struct(given, "sampling");
    require_array(sampling.bias_tokens, sampling.bias_count, "sampling.bias_tokens");
    require_array(sampling.bias, sampling.bias_count, "sampling.bias");
    Sampling result;
    result.seed = sampling.seed;
    result.temperature = sampling.temperature;
    result.top_k = sampling.top_k;
    result.top_p = given_or(sampling.top_p, result.top_p);
    result.min_p = sampling.min_p;
    result.repetition_penalty = given_or(sampling.repetition_penalty, result.repetition_penalty);
    result.frequency_penalty = sampling.frequency_penalty;
    result.presence_penalty = sampling.presence_penalty;

    // The ABI's UINT32_MAX is the whole log, which the runtime writes as 0.
    if (sampling.penalty_window != 0) {
        result.penalty_window = sampling.penalty_window == UINT32_MAX ? 0 : sampling.penalty_window;
    }
    for (uint32_t i = 0; i < sampling.bias_count; ++i) {
        result.bias.emplace_back(sampling.bias_tokens[i], sampling.bias[i]);
    }
    // The order is by token alone: an order over the pairs would compare biases, which may be NaN.
    std::stable_sort(result.bias.begin(), result.bias.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    result.v2 = read_sampling_v2(sampling);
    return result;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::Session;

void stasis_session_options_init(stasis_session_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_run_options_init(stasis_run_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_sampling_init(stasis_sampling *sampling, size_t size) {
    init_struct(sampling, size);
}

stasis_status stasis_session_create(stasis_model *model, const stasis_session_options *options,
                                    stasis_session **session, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(session, "session");
        const stasis::TimelineOptions given = read_session_options(options, "options");
        *session = new stasis_session(std::make_unique<Session>(model->model, given));
    });
}

void stasis_session_free(stasis_session *session) {
    enter(nullptr, [&](const Caller &caller) {
        if (session != nullptr) {
            if (const auto scheduler = session->scheduler.lock()) {
                scheduler->forget(*session, caller);
            }
            session->caller = &caller; // in whose environment `release` of the trace runs
            if (stasis_generation *const open = session->generation; open != nullptr) {
                const bool ended = session->gate.owner() == Gate::Owner::none;
                open->leave();
                if (ended) {
                    delete open;
                }
            }
        }
        delete session;
    });
}

stasis_status stasis_session_append(stasis_session *session, const stasis_token *tokens,
                                    size_t count, const stasis_run_options *options,
                                    stasis_error *error) {
    return with(session, error, [&](Session &own, const Caller &caller) {
        require_array(tokens, count, "tokens");
        Run run(caller, options);
        own.append({tokens, count}, run.options());
    });
}

stasis_status stasis_session_append_message(stasis_session *session, const char *role,
                                            const char *text, size_t length, uint32_t flags,
                                            const stasis_run_options *options,
                                            stasis_error *error) {
    return with(session, error, [&](Session &own, const Caller &caller) {
        require(role, "role");
        require_array(text, length, "text");
        require_flags(flags, STASIS_MESSAGE_REPLY);
        Run run(caller, options);
        own.append_message(role, {text, length}, (flags & STASIS_MESSAGE_REPLY) != 0,
                           run.options());
    });
}

stasis_status stasis_session_logits(const stasis_session *session, float *logits, size_t capacity,
                                    size_t *count, stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(count, "count");
        if (own.position() == 0) {
            fail(stasis::Status::not_found, "no logits before the first position");
        }
        require_room(own.model()->config.vocabulary, capacity, count, "logits");
        require(logits, "logits");
        std::copy_n(own.logits().data(), *count, logits);
    });
}

stasis_status stasis_session_top(const stasis_session *session, size_t n, stasis_token *tokens,
                                 float *log_probabilities, stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require_array(tokens, n, "tokens");
        if (n > own.model()->config.vocabulary) {
            fail(stasis::Status::invalid_argument, "n is %zu: the vocabulary has %u tokens", n,
                 own.model()->config.vocabulary);
        }
        const std::vector<std::pair<uint32_t, float>> best = own.top(n);
        for (size_t i = 0; i < best.size(); ++i) {
            tokens[i] = best[i].first;
            if (log_probabilities != nullptr) {
                log_probabilities[i] = best[i].second;
            }
        }
    });
}

stasis_status stasis_session_score(stasis_session *session, const stasis_token *tokens,
                                   size_t count, double *log_probabilities,
                                   const stasis_run_options *options, stasis_error *error) {
    const auto score = [&](Session &own, const Caller &caller) {
        require_array(tokens, count, "tokens");
        require_array(log_probabilities, count, "log_probabilities");
        Run run(caller, options);
        const std::vector<double> scores = own.score({tokens, count}, run.options());
        std::copy(scores.begin(), scores.end(), log_probabilities);
    };
    return with(session, error, score, Use::reads);
}

stasis_status stasis_session_set_sampling(stasis_session *session, const stasis_sampling *sampling,
                                          stasis_error *error) {
    return with(session, error, [&](Session &own) { own.set_sampling(read_sampling(sampling)); });
}

stasis_status stasis_session_sample(const stasis_session *session, stasis_token *token,
                                    stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(token, "token");
        *token = own.sample();
    });
}

stasis_status stasis_session_decode(stasis_session *session, stasis_token *token,
                                    stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(token, "token");
        *token = own.decode();
    });
}

stasis_status stasis_session_fork(const stasis_session *session, stasis_session **child,
                                  stasis_error *error) {
    const auto copy = [&](Session &own) {
        require(child, "child");
        auto made = std::make_unique<stasis_session>(own.fork(), session->saved);
        made->stored = session->stored;
        made->older = session->older;
        *child = made.release();
        own.tell(stasis::TraceKind::fork, 0, own.position());
    };
    return with(session, error, copy, Use::forks);
}

stasis_status stasis_session_rewind(stasis_session *session, uint64_t position, uint32_t flags,
                                    const stasis_run_options *options, stasis_error *error) {
    return with(session, error, [&](Session &own, const Caller &caller) {
        require_flags(flags, STASIS_REWIND_RECOMPUTE);
        Run run(caller, options);
        own.rewind(position, (flags & STASIS_REWIND_RECOMPUTE) != 0, run.options());
    });
}

stasis_status stasis_session_evict(stasis_session *session, uint64_t begin, uint64_t end,
                                   stasis_error *error) {
    return with(session, error, [&](Session &own) { own.evict(begin, end); });
}

stasis_status stasis_session_kv(const stasis_session *session, uint32_t layer, uint64_t begin,
                                uint64_t end, uint16_t *keys, uint16_t *values, size_t capacity,
                                size_t *count, stasis_error *error) {
    return with(session, error, [&](Session &own) {
        const stasis::Config &config = own.model()->config;
        require(count, "count");
        if (layer >= config.layers) {
            fail(stasis::Status::invalid_argument, "layer is %u: the model has %u layers", layer,
                 config.layers);
        }
        require_range(begin, end, own.position());
        const stasis::LayerConfig &kind = config.layer[layer];
        require_room((end - begin) * config.kv_heads_of(kind) * config.head_dim_of(kind), capacity,
                     count, "each buffer");
        require_array(keys, *count, "keys");
        require_array(values, *count, "values");
        own.copy_kv(layer, begin, end, keys, values);
    });
}

stasis_status stasis_session_attention(const stasis_session *session, uint32_t flags,
                                       double *weights, size_t capacity, size_t *count,
                                       stasis_error *error) {
    const auto copy = [&](Session &own) {
        require(count, "count");
        require_flags(flags, STASIS_ATTENTION_BY_HEAD);
        const bool by_head = (flags & STASIS_ATTENTION_BY_HEAD) != 0;
        require_room(own.received_heads(by_head) * own.position(), capacity, count, "weights");
        require_array(weights, *count, "weights");
        std::vector<uint64_t> sums;
        own.received(by_head, sums);
        // Sums are in fixed point; see NUMERICS.md, C10.
        std::transform(sums.begin(), sums.end(), weights, [](uint64_t sum) {
            return static_cast<double>(sum) / stasis::kernels::kReceivedOne;
        });
    };
    return with(session, error, copy, Use::reads); // it may compute the whole log again
}

stasis_status stasis_session_get_info(const stasis_session *session, stasis_session_info *info,
                                      stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(info, "info");
        const stasis::SessionInfo from = own.info();
        stasis_session_info to{};
        to.window = from.window;
        to.position = from.position;
        to.capacity = from.capacity;
        to.rewind_floor = from.rewind_floor;
        to.window_retain = from.window_retain;
        to.window_begin = from.window_begin;
        to.pages_own = from.pages_own;
        to.pages_shared = from.pages_shared;
        to.kv_bytes = from.kv_bytes;
        to.pending_bytes = from.pending_bytes;
        to.positions_evicted = from.evicted;
        to.tokens_reused = from.tokens_reused;
        to.states = from.states;
        to.positions_foreign = from.foreign;
        to.older = session->older ? 1 : 0;
        write_struct(to, info, "info");
    });
}

stasis_status stasis_session_tokens(const stasis_session *session, uint64_t begin,
                                    stasis_token *tokens, uint8_t *sources, size_t capacity,
                                    size_t *count, stasis_error *error) {
    return with(session, error, [&](Session &own) {
        write_tokens(own.position(), begin, tokens, sources, capacity, count,
                     [&](uint64_t position) { return own.entry(position); });
    });
}

stasis_status stasis_session_text(const stasis_session *session, uint64_t begin, uint64_t end,
                                  char *text, size_t capacity, size_t *length,
                                  stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(length, "length");
        require_range(begin, end, own.position());
        write_text(own.text(begin, end), text, capacity, length);
    });
}

stasis_status stasis_session_digest(const stasis_session *session, stasis_digest *digest,
                                    stasis_error *error) {
    return with(session, error, [&](Session &own) {
        require(digest, "digest");
        *digest = to_abi(own.digest());
    });
}
