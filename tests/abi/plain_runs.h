// The state that a session's log must give, computed the plain way: every token and eviction in its
// order, one decode for each drawn token, by one thread and the reference kernels, alone and
// without drafts.
#pragma once

#include <cmath>
#include <random>

#include "tests/abi/fixture.h"

namespace abi_test {

constexpr uint64_t kWalkPositions = 220;      // more than three pages
constexpr uint64_t kRecurrentPositions = 600; // with checkpoints of recurrent layers at 256 and 512

// A token that was given or drawn, or an eviction.
struct LogEvent {
    enum class Kind { given, drawn, evicted } kind;
    stasis_token token = 0;
    uint32_t settings = 0;       // that it was drawn under
    uint64_t begin = 0, end = 0; // of the eviction

    bool operator==(const LogEvent &) const = default;
};
using Log = std::vector<LogEvent>;

inline Tokens tokens_in(const Log &log) {
    Tokens tokens;
    for (const LogEvent &event : log) {
        if (event.kind != LogEvent::Kind::evicted) {
            tokens.push_back(event.token);
        }
    }
    return tokens;
}

// Cuts a log at a position; evictions there stay.
inline void cut_log(Log &log, uint64_t position) {
    size_t kept = 0;
    uint64_t tokens = 0;
    for (; kept < log.size(); ++kept) {
        const bool token = log[kept].kind != LogEvent::Kind::evicted;
        if (token && tokens == position) {
            break;
        }
        tokens += token ? 1 : 0;
    }
    log.resize(kept);
}

// Sampling settings of a number: 0 is greedy, and of the others each processor is on in some.
struct Settings {
    stasis_token biased[2] = {3, 5}, breakers[2] = {7, 100};
    float bias[2] = {-INFINITY, 1.5F};
    stasis_sampling sampling = sized<stasis_sampling>();

    explicit Settings(uint32_t number) {
        std::mt19937 dice(number);
        const auto any = [&dice](std::initializer_list<float> choices) {
            return choices.begin()[dice() % choices.size()];
        };
        sampling.seed = number;
        sampling.temperature = number == 0 ? 0.0F : any({0.0F, 0.5F, 1.0F, 1.5F, 2.5F});
        sampling.top_k = static_cast<uint32_t>(any({0, 0, 5, 40}));
        sampling.top_p = any({1, 1, 0.9F, 0.5F});
        sampling.min_p = any({0, 0, 0.05F});
        sampling.repetition_penalty = any({1, 1, 1.2F});
        sampling.frequency_penalty = any({0, 0, 0.3F});
        sampling.presence_penalty = any({0, 0, 0.4F});
        sampling.penalty_window = static_cast<uint32_t>(any({0, 20}));
        sampling.bias_count = static_cast<uint32_t>(any({0, 0, 2}));
        sampling.typical_p = any({0, 0, 0.7F});
        sampling.top_n_sigma = any({0, 0, 1.5F});
        sampling.xtc_probability = any({0, 0, 0.5F});
        sampling.xtc_threshold = any({0, 0.02F});
        sampling.dry_multiplier = any({0, 0, 3});
        sampling.dry_allowed_length = static_cast<uint32_t>(any({0, 1}));
        sampling.dry_range = static_cast<uint32_t>(any({0, 50}));
        sampling.dry_breaker_count = static_cast<uint32_t>(any({0, 2}));
        sampling.min_keep = static_cast<uint32_t>(any({0, 0, 3}));
    }

    void put_into(stasis_session *session) {
        sampling.bias_tokens = biased;
        sampling.bias = bias;
        sampling.dry_breakers = breakers;
        stasis_error error;
        const stasis_status status = stasis_session_set_sampling(session, &sampling, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    }
};

// Sessions that ran some log. Each is used again only for logs that continue it: a plain run
// neither forks nor rewinds.
class PlainRuns {
  public:
    explicit PlainRuns(const std::string &path, uint64_t positions = kWalkPositions)
        : positions_(positions) {
        auto options = sized<stasis_model_options>();
        options.threads = 1;
        options.kernels = "reference";
        model_ = open_path(path, &options);
    }

    // Returns the digest after the log. Requires that its drawn tokens are those of a plain run.
    Digest digest_of(const Log &log) {
        Run *longest = nullptr;
        for (Run &run : runs_) {
            if (run.done.size() <= log.size() &&
                std::equal(run.done.begin(), run.done.end(), log.begin()) &&
                (longest == nullptr || run.done.size() > longest->done.size())) {
                longest = &run;
            }
        }
        if (longest == nullptr) {
            if (runs_.size() == kRuns) {
                runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(oldest()));
            }
            runs_.push_back({create(model_.get(), positions_)});
            longest = &runs_.back();
        }
        advance(*longest, log);
        longest->used = ++uses_;
        return digest(longest->session.get());
    }

    // Returns the accumulated attention of each position, from a run of its own.
    std::vector<double> attention_of(const Log &log) const {
        auto options = sized<stasis_session_options>();
        options.capacity = positions_;
        options.domain = STASIS_DOMAIN_PRIVATE;
        options.track_attention = STASIS_TRACK_TOTAL;
        stasis_session *session = nullptr;
        REQUIRE(stasis_session_create(model_.get(), &options, &session, nullptr) == STASIS_OK);
        Run run{Session(session)};
        advance(run, log);
        std::vector<double> weights(position(session));
        size_t count = 0;
        REQUIRE(stasis_session_attention(session, 0, weights.data(), weights.size(), &count,
                                         nullptr) == STASIS_OK);
        return weights;
    }

  private:
    static constexpr size_t kRuns = 12;
    struct Run {
        Session session;
        Log done = {};
        uint32_t settings = UINT32_MAX; // none of the numbers
        uint64_t used = 0;
    };

    size_t oldest() const {
        size_t found = 0;
        for (size_t i = 1; i < runs_.size(); ++i) {
            found = runs_[i].used < runs_[found].used ? i : found;
        }
        return found;
    }

    static void advance(Run &run, const Log &log) {
        stasis_session *session = run.session.get();
        for (size_t i = run.done.size(); i < log.size(); i = run.done.size()) {
            const LogEvent &event = log[i];
            if (event.kind == LogEvent::Kind::evicted) {
                REQUIRE(stasis_session_evict(session, event.begin, event.end, nullptr) ==
                        STASIS_OK);
            } else if (event.kind == LogEvent::Kind::drawn) {
                if (run.settings != event.settings) {
                    Settings(event.settings).put_into(session);
                    run.settings = event.settings;
                }
                stasis_token token = 0;
                REQUIRE(stasis_session_decode(session, &token, nullptr) == STASIS_OK);
                REQUIRE(token == event.token);
            } else {
                Tokens given;
                for (; i < log.size() && log[i].kind == LogEvent::Kind::given; ++i) {
                    given.push_back(log[i].token);
                    run.done.push_back(log[i]);
                }
                append(session, given);
                continue;
            }
            run.done.push_back(event);
        }
    }

    uint64_t positions_;
    Model model_;
    std::vector<Run> runs_ = {};
    uint64_t uses_ = 0;
};

} // namespace abi_test
