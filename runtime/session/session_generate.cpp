// Logits, sampling and generation of a session; see session.h.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/compute/forward.h"
#include "runtime/host/utf8.h"
#include "runtime/session/session_run.h"
#include "runtime/session/session_speculate.h"
#include "runtime/text/stop_strings.h"

namespace stasis {

void Session::next_logits(Workspace &work, std::span<float> row) {
    require_hidden(work);
    work.fit(model_->config, model_->weights.groups, 1);
    project_logits(*model_, work, hidden_.data(), 1, row.data());
    check_stored(row);
}

// What the kept hidden state gives must be finite, and what a file said of it.
void Session::check_stored(std::span<const float> row) {
    check_logits(*model_, row);
    if (stored_logits_ &&
        Sha256().bytes(row.data(), row.size_bytes()).finish() != *stored_logits_) {
        fail(Status::diverged, "logits: the kept hidden state gives other logits than stored");
    }
    stored_logits_.reset();
}

const std::vector<float> &Session::logits() {
    if (!row_valid_) {
        if (row_ == nullptr || row_.use_count() > 1) { // a fork's as well
            row_ = std::make_shared<std::vector<float>>(model_->config.vocabulary);
        }
        // A fork in another thread may just have let go of it: what it read, it has read.
        std::atomic_thread_fence(std::memory_order_acquire);
        WorkspaceLease work(*model_);
        next_logits(*work, *row_);
        row_valid_ = true;
    }
    return *row_;
}

std::vector<std::pair<uint32_t, float>> Session::top(size_t n) {
    LogProbabilities found;
    log_probabilities(logits(), n, 0, found);
    std::vector<std::pair<uint32_t, float>> result;
    for (size_t i = 0; i < found.best.size(); ++i) {
        result.emplace_back(found.best_tokens[i], found.best[i]);
    }
    return result;
}

std::vector<double> Session::score(std::span<const uint32_t> tokens, const RunOptions &options) {
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
    const std::vector<float> &row = logits();
    add(&scores, position(), row.data(), row.size());
    if (tokens.size() > 1) { // the last token's successor is not asked for
        const std::unique_ptr<Session> child = fork();
        RunOptions run = options;
        run.logits = add;
        run.logits_user = &scores;
        child->append(tokens.first(tokens.size() - 1), run);
    }
    return std::move(scores.values);
}

void Session::set_sampling(const Sampling &sampling) {
    check_sampling(sampling, model_->config.vocabulary);
    Sampling copy = sampling; // what can fail comes first
    sampling_ = std::move(copy);
}

// Forgets settings that no entry of the log names, as a save does, so that what was rewound leaves
// nothing behind. Strong guarantee.
void Session::drop_unnamed_samplings() {
    std::vector<bool> named(samplings_.size());
    for (uint64_t i = 0; i < log_.size(); ++i) {
        if (const TokenEntry entry = log_[i]; entry.source == TokenSource::sampled) {
            named[entry.sampling] = true;
        }
    }
    std::vector<Sampling> kept;
    std::vector<uint16_t> places(samplings_.size()); // in `kept`
    for (size_t i = 0; i < samplings_.size(); ++i) {
        if (named[i]) {
            places[i] = static_cast<uint16_t>(kept.size());
            kept.push_back(samplings_[i]);
        }
    }
    TokenLog log = log_;
    for (uint64_t i = 0; i < log.size(); ++i) {
        const TokenEntry entry = log[i];
        if (entry.source == TokenSource::sampled && places[entry.sampling] != entry.sampling) {
            log.mutate(i).sampling = places[entry.sampling];
        }
    }
    log_ = std::move(log);
    samplings_ = std::move(kept);
}

// Index of the settings in force in the table that the log's entries refer to. Expects that no
// entry waits to be added, for the table may be made anew.
uint16_t Session::sampling_index() {
    constexpr size_t most = UINT16_MAX; // one is left for settings that have not drawn yet
    const auto find = [&] {
        const auto latest = std::find(samplings_.rbegin(), samplings_.rend(), sampling_);
        return latest == samplings_.rend() ? samplings_.size()
                                           : static_cast<size_t>(samplings_.rend() - latest) - 1;
    };
    size_t index = find();
    if (index >= most) {
        drop_unnamed_samplings();
        index = find();
    }
    if (index == samplings_.size()) {
        if (index >= most) {
            fail(Status::full,
                 "session full: its tokens were drawn with %zu different sampling settings", index);
        }
        samplings_.push_back(sampling_);
    }
    return static_cast<uint16_t>(index);
}

uint32_t Session::draw(Workspace &work) {
    work.fit(model_->config, model_->weights.groups, 1);
    next_logits(work, {work.logits, model_->config.vocabulary});
    return draw_from(work, {work.logits, model_->config.vocabulary});
}

uint32_t Session::draw_from(Workspace &work, std::span<const float> row) {
    const uint64_t end = log_.size();
    work.tokens.clear();
    if (const uint64_t length = history_length(sampling_, end); length > 0) {
        work.tokens.reserve((end / kPage + 1) * kPage);
        for (uint64_t i = end - length; i < end; ++i) {
            work.tokens.push_back(log_[i].token);
        }
    }
    return stasis::sample(row, sampling_, end, work.tokens, work.sampling);
}

uint32_t Session::sample() {
    WorkspaceLease work(*model_);
    return draw(*work);
}

TokenEntry Session::drawn_entry(uint32_t token) {
    return {token, sampling_index(), TokenSource::sampled, next_turn(true)};
}

uint32_t Session::decode() {
    LogProbabilities unasked;
    return decode_with(0, unasked);
}

uint32_t Session::decode_with(size_t count, LogProbabilities &likely) {
    uint32_t token = 0;
    {
        WorkspaceLease work(*model_);
        token = draw(*work);
        if (count > 0) {
            log_probabilities({work->logits, model_->config.vocabulary}, count, token, likely);
        }
    }
    const TokenEntry entry = drawn_entry(token);
    extend({&entry, 1}, RunOptions());
    return token;
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

// Text on its way to the caller: whole characters, nothing that may become a stop string.
struct Stream {
    const GenerateOptions &options;
    StopStrings stops;
    std::string waiting;
    uint64_t shown = 0;      // bytes already delivered
    LogProbabilities likely; // of the last token, if asked for

    // Delivers what has become certain; false if the callback asked to stop.
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
    result.begin = log_.size();
    if (!options.stop_strings.empty() && model_->tokenizer == nullptr) {
        fail(Status::unsupported, "stop strings need a tokenizer, which the model does not have");
    }
    if (options.log_probabilities > model_->config.vocabulary) {
        fail(Status::invalid_argument,
             "log-probabilities of %zu tokens are asked for: the vocabulary has %u tokens",
             options.log_probabilities, model_->config.vocabulary);
    }
    Stream stream{options, StopStrings(options.stop_strings), {}, 0, {}};
    if (log_.empty()) {
        fail(Status::not_found, "no logits before the first position");
    }
    std::optional<Speculation> ahead;
    if (Drafting *drafting = begin_drafting(result)) {
        ahead.emplace(*this, *drafting, options.watch, result);
    }
    std::optional<TokenRun> run;
    if (!ahead && TokenRun::possible(*this, options)) {
        run.emplace(*this);
    }
    uint32_t token = 0;
    uint64_t certain = 0;
    const uint64_t most = std::min(options.tokens_max == 0 ? UINT64_MAX : options.tokens_max,
                                   capacity_ - log_.size());
    while (result.count < most) {
        if (options.watch.cancel != nullptr && options.watch.cancel->load()) {
            result.reason = StopReason::cancelled;
            break;
        }
        token = ahead ? ahead->decode(most - result.count, options.log_probabilities, stream.likely)
                : run ? run->decode(most - result.count)
                      : decode_with(options.log_probabilities, stream.likely);
        ++result.count;
        result.passes += ahead ? 0 : 1;
        const bool stop = is_stop(token, options);
        if (!stop && model_->tokenizer != nullptr) {
            const std::string bytes = model_->tokenizer->decode({&token, 1}, false, false);
            stream.waiting += bytes;
            certain = stream.stops.add(bytes);
        }
        if (!stream.deliver(token, log_.size() - 1, certain, false)) {
            result.reason = StopReason::callback;
            return;
        }
        if (stop || stream.stops.stopped()) {
            result.reason = stop ? StopReason::end_token : StopReason::stop_string;
            break;
        }
    }
    if (result.count != 0 && !stream.deliver(token, log_.size() - 1, stream.stops.finish(), true)) {
        result.reason = StopReason::callback;
    }
}

} // namespace stasis
