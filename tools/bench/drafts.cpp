// See drafts.h.
#include "tools/bench/drafts.h"

#include "tools/bench/series.h"
#include "tools/cli/generation.h"

namespace command::bench {

namespace {

// Ids for a text of few tokens, the same on every model, whatever its weights.
std::vector<stasis_token> few_tokens(const Bench &bench, uint32_t count) {
    std::vector<stasis_token> tokens;
    for (uint32_t i = 0; i < count; ++i) {
        tokens.push_back(i * (bench.info.vocabulary / count));
    }
    return tokens;
}

void set_sampling(const Session &session, const stasis_sampling &sampling) {
    stasis_error error{};
    check(stasis_session_set_sampling(session.get(), &sampling, &error), error, "sampling");
}

// A session of a few tokens, all others biased away. It goes on repeating its prompt, for a penalty
// leaves the one that came up the longest time ago; or draws any of them by chance.
Session of_few_tokens(const Bench &bench, uint32_t count, bool repeats) {
    Session session = create_alone(bench.model);
    const std::vector<stasis_token> period = few_tokens(bench, count);
    const std::vector<float> bias(period.size(), 1e7F);
    stasis_sampling sampling;
    stasis_sampling_init(&sampling, sizeof sampling);
    sampling.bias_count = count;
    sampling.bias_tokens = period.data();
    sampling.bias = bias.data();
    if (repeats) {
        sampling.presence_penalty = 1e5F;
        sampling.penalty_window = count - 1;
    } else {
        sampling.temperature = 1e5F; // of logits that lie within a few units of each other
        sampling.seed = 7;
    }
    set_sampling(session, sampling);
    std::vector<stasis_token> prompt;
    while (prompt.size() < kDraftPrompt) {
        prompt.push_back(period[prompt.size() % count]);
    }
    stasis_error error{};
    check(stasis_session_append(session.get(), prompt.data(), prompt.size(), nullptr, &error),
          error, "append");
    return session;
}

Session drawn(const Bench &bench) {
    Session session = create_alone(bench.model);
    append(bench, session, 0, kDraftPrompt);
    stasis_sampling sampling;
    stasis_sampling_init(&sampling, sizeof sampling);
    sampling.temperature = 1;
    sampling.seed = 7;
    set_sampling(session, sampling);
    return session;
}

struct Timed {
    double tokens_per_second;
    Reply reply;
};

Timed generate_from(const Bench &bench, const Session &start, bool drafts, stasis_model *draft) {
    const Session session = fork(start);
    if (drafts) {
        stasis_draft_options options;
        stasis_draft_options_init(&options, sizeof options);
        stasis_error error{};
        check(stasis_session_set_draft(session.get(), draft, &options, &error), error, "--draft");
    }
    GenerationChoice choice;
    choice.tokens_max = kDraftTokens;
    choice.ignore_end = true;
    const Stopwatch watch;
    Reply reply = generate(session.get(), choice, bench.cancel, false);
    const double seconds = watch.seconds();
    if (reply.stop_reason == STASIS_STOP_CANCELLED) {
        throw Failure("interrupted");
    }
    return {kDraftTokens / seconds, std::move(reply)};
}

void compare(Bench &bench, const std::string &name, uint64_t text, stasis_model *draft) {
    const Session start = text == kDrawn       ? drawn(bench)
                          : text == kRepeating ? of_few_tokens(bench, 16, true)
                                               : of_few_tokens(bench, 4, false);
    generate_from(bench, start, false, nullptr);
    generate_from(bench, start, true, draft);
    std::vector<double> plain, ahead, gain;
    Timed with{}, without{};
    Progress progress(name);
    while (gain.size() < bench.repetitions) {
        Progress::report(&progress, gain.size(), bench.repetitions);
        without = generate_from(bench, start, false, nullptr);
        with = generate_from(bench, start, true, draft);
        plain.push_back(without.tokens_per_second);
        ahead.push_back(with.tokens_per_second);
        gain.push_back(ahead.back() / plain.back());
    }
    if (with.reply.tokens != without.reply.tokens) {
        throw Failure(name + ": other tokens than without a draft");
    }
    add(bench, name + ":plain", plain, "tokens/s");
    add(bench, name, ahead, "tokens/s");
    add(bench, name + ":gain", gain, "x plain");
    add(bench, name + ":drafted", {static_cast<double>(with.reply.drafted)}, "tokens");
    add(bench, name + ":accepted", {static_cast<double>(with.reply.accepted)}, "tokens");
}

} // namespace

void drafts_by_lookup(Bench &bench, const std::string &name, uint64_t text) {
    compare(bench, name, text, nullptr);
}

void drafts_by_model(Bench &bench, const std::string &name, uint64_t text) {
    if (bench.draft.empty()) {
        throw Failure(name + ": needs --draft MODEL");
    }
    ModelChoice choice = bench.choice;
    choice.path = bench.draft;
    const Model draft = open_model(choice, bench.cancel);
    compare(bench, name, text, draft.get());
}

} // namespace command::bench
