// Logits, sampling and generation of a session; see session.h.
#include <algorithm>

#include "runtime/host/utf8.h"
#include "runtime/session/draw.h"
#include "runtime/session/lookahead.h"
#include "runtime/text/stop_strings.h"

namespace stasis {

std::vector<std::pair<uint32_t, float>> Session::top(size_t n) {
    LogProbabilities found;
    log_probabilities(logits(), n, 0, found);
    std::vector<std::pair<uint32_t, float>> result;
    for (size_t i = 0; i < found.best.size(); ++i) {
        result.emplace_back(found.best_tokens[i], found.best[i]);
    }
    return result;
}

std::vector<double> Session::score(std::span<const uint32_t> tokens, const AppendOptions &options) {
    struct Scores {
        std::span<const uint32_t> tokens;
        std::vector<double> values;
    } scores{tokens, {}};
    const LogitsFunction add = [](void *user, uint64_t, const float *logits, size_t count) {
        auto &into = *static_cast<Scores *>(user);
        if (into.values.size() < into.tokens.size()) {
            const uint32_t token = into.tokens[into.values.size()];
            into.values.push_back(double{logits[token]} - log_sum_exp({logits, count}));
        }
        return true;
    };

    // Checks all tokens before any work.
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= model_->config.vocabulary) {
            fail(Status::invalid_argument,
                 "token %u at index %zu is outside the vocabulary of %u tokens", tokens[i], i,
                 model_->config.vocabulary);
        }
    }
    if (tokens.empty()) {
        return {};
    }

    // The first token is scored by the present logits, the others by those of a copy.
    const std::vector<float> &row = logits(options.watch);
    add(&scores, position(), row.data(), row.size());
    if (tokens.size() > 1) { // no logits after the last token are needed
        std::vector<TokenEntry> entries;
        add_entries(tokens.first(tokens.size() - 1), entries);
        Timeline copy(timeline_); // takes the tokens; this session's own stays as it is
        AppendOptions run = options;
        run.logits = add;
        run.logits_user = &scores;
        stasis::append(copy, entries, run);
    }
    return std::move(scores.values);
}

void Session::set_sampling(const Sampling &sampling) {
    check_sampling(sampling, model_->config.vocabulary);
    Sampling copy = sampling; // the copy can fail, the move cannot
    settings_.sampling = std::move(copy);
}

uint32_t Session::sample() {
    PassLease pass(*model_);
    return draw_next(timeline_, settings_.sampling, *pass);
}

TokenEntry Session::drawn_entry(uint32_t token) {
    return {token, settings_.index_of_sampling(timeline_.log), TokenSource::sampled,
            next_turn(true)};
}

uint32_t Session::decode() {
    const GenerateOptions plain;
    GenerateResult unused;
    LogProbabilities unasked;
    return Lookahead(*this, nullptr, plain, unused).decode(1, unasked);
}

bool Session::is_stop(uint32_t token, const GenerateOptions &options) const {
    const std::vector<uint32_t> &ends = model_->config.end_tokens;
    if (!options.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end()) {
        return true;
    }
    return std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
           options.stop_tokens.end();
}

namespace {

// Text before its delivery: whole characters that cannot become part of a stop string.
struct Stream {
    const GenerateOptions &options;
    StopStrings stops;
    std::string waiting;
    uint64_t shown = 0;      // bytes already delivered
    LogProbabilities likely; // of the last token, if asked for

    // Delivers the text that is certain. Returns false if the callback asked to stop.
    bool deliver(uint32_t token, uint64_t position, uint64_t certain, bool last) {
        const size_t length = complete_utf8(std::string_view(waiting).substr(0, certain - shown));
        if (options.callback == nullptr || (last && length == 0)) {
            return true;
        }
        const bool tells = options.log_probabilities > 0 && !last;
        const Generated event{token, position, std::string_view(waiting).substr(0, length), last,
                              tells ? &likely : nullptr};
        const bool go_on = options.callback(options.callback_user, event);
        waiting.erase(0, length);
        shown += length;
        return go_on;
    }
};

} // namespace

void Session::generate(const GenerateOptions &options, GenerateResult &result) {
    result = GenerateResult();
    result.begin = timeline_.log.size();
    if (!options.stop_strings.empty() && model_->tokenizer == nullptr) {
        fail(Status::unsupported, "stop strings need a tokenizer, which the model does not have");
    }
    if (options.log_probabilities > model_->config.vocabulary) {
        fail(Status::invalid_argument,
             "log-probabilities of %zu tokens are asked for: the vocabulary has %u tokens",
             options.log_probabilities, model_->config.vocabulary);
    }

    // The generation's state: text before delivery, tokens ahead, and the limit.
    Stream stream{options, StopStrings(options.stop_strings), {}, 0, {}};
    if (timeline_.log.empty()) {
        fail(Status::not_found, "no logits before the first position");
    }
    Lookahead ahead(*this, begin_drafting(result), options, result);
    uint32_t token = 0;
    uint64_t certain = 0;
    const uint64_t most = std::min(options.tokens_max == 0 ? UINT64_MAX : options.tokens_max,
                                   timeline_.capacity - timeline_.log.size());

    // One token a round, until the limit, a stop or a cancel.
    while (result.count < most) {
        if (options.watch.cancel != nullptr && options.watch.cancel->load()) {
            result.reason = StopReason::cancelled;
            break;
        }
        try {
            token = ahead.decode(most - result.count, stream.likely);
        } catch (const Error &error) {
            if (error.status() != Status::cancelled) {
                throw;
            }
            result.reason = StopReason::cancelled;
            break;
        }
        ++result.count;
        const bool stop = is_stop(token, options);
        if (!stop && model_->tokenizer != nullptr) {
            const std::string bytes = model_->tokenizer->decode({&token, 1}, false, false);
            stream.waiting += bytes;
            certain = stream.stops.add(bytes);
        }
        if (!stream.deliver(token, timeline_.log.size() - 1, certain, false)) {
            result.reason = StopReason::callback;
            return;
        }
        if (stop || stream.stops.stopped()) {
            result.reason = stop ? StopReason::end_token : StopReason::stop_string;
            break;
        }
    }

    // Text that was withheld as a possible stop string is certain now.
    if (result.count != 0 &&
        !stream.deliver(token, timeline_.log.size() - 1, stream.stops.finish(), true)) {
        result.reason = StopReason::callback;
    }
}

} // namespace stasis
