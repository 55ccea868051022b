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
    copy.v3 = settings_.sampling.v3;
    settings_.sampling = std::move(copy);
}

void Session::set_constraint(const Constraint &constraint, const Watch &watch) {
    if (constraint.kind == 0) {
        settings_.sampling.v3.constraint = {};
        text_.reset();
        return;
    }
    if (text_ && *text_->constraint().value == constraint) {
        return; // as it is
    }
    Sampling changed;
    changed.v3.constraint.value = std::make_shared<const Constraint>(constraint);
    check_sampling(changed, model_->config.vocabulary);
    ConstrainedText text = text_of(constraint, watch);
    settings_.sampling.v3.constraint = text.constraint();
    text_ = std::move(text);
}

void Session::set_allowed(Shared<std::string> tokens) {
    Sampling changed;
    changed.v3.allowed = tokens;
    check_sampling(changed, model_->config.vocabulary);
    settings_.sampling.v3.allowed = std::move(tokens);
}

ConstrainedText Session::text_of(const Constraint &constraint, const Watch &watch) const {
    const Config &config = model_->config;
    return ConstrainedText(model_->constraints.compile(
        constraint, model_->tokenizer.get(), config.end_tokens, config.vocabulary, watch));
}

std::shared_ptr<const constraint::Mask> Session::mask(const Watch &watch) {
    const SamplingV3 &v3 = settings_.sampling.v3;
    std::shared_ptr<const constraint::Mask> mask;
    if (v3.constraint.value != nullptr) {
        if (!text_) { // of a session that was loaded
            text_ = text_of(*v3.constraint.value, watch);
        }
        mask = text_->mask_at(timeline_.log, position(), settings_.samplings, watch);
    }
    return allowed_tokens(std::move(mask), v3, model_->config.vocabulary);
}

std::optional<DraftedText> Session::drafted_text() const {
    const bool constrained = settings_.sampling.v3.constraint.value != nullptr && text_;
    return constrained ? std::optional(text_->drafted()) : std::nullopt;
}

void Session::check_constraint(const Watch &watch) {
    const Constraint *constraint = settings_.sampling.v3.constraint.value.get();
    if (constraint == nullptr) {
        return;
    }
    try {
        text_ = text_of(*constraint, watch);
    } catch (const Error &error) {
        const bool stored =
            error.status() == Status::invalid_argument || error.status() == Status::unsupported;
        fail(stored ? Status::corrupt : error.status(), "the stored constraint: %s", error.what());
    }
    try {
        mask(watch);
    } catch (const Error &error) { // where no token can follow, a session may still be continued
        if (error.status() != Status::no_token && error.status() != Status::unsupported) {
            throw;
        }
    }
}

uint32_t Session::sample() {
    const std::shared_ptr<const constraint::Mask> allowed = mask({});
    PassLease pass(*model_);
    return draw_next(timeline_, settings_.sampling, bits_of(allowed), *pass);
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
