// Log-probabilities and single draws of a session; see session.h.
#include "runtime/session/draw.h"
#include "runtime/session/lookahead.h"
#include "runtime/session/session.h"

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
    GenerateResult unused;
    LogProbabilities unasked;
    Lookahead next(*this, nullptr, 0, unused);
    const uint32_t token = next.draw({}, unasked);
    next.append(token, 1, {});
    return token;
}

} // namespace stasis
