// See steps.h.
#include "tools/bench/steps.h"

#include <algorithm>

#include "tools/bench/series.h"
#include "tools/cli/generation.h"

namespace command::bench {

namespace {

constexpr size_t kTogether[] = {1, 2, 4, 8, 16};
constexpr size_t kForks = 8;

// Sessions of a step, and what each repetition measured.
struct Batch {
    std::string name;
    std::vector<Session> starts; // forked anew for each repetition
    bool one_prompt;
    Series series;
};

// Decodes with forks of the batch's sessions in one step each; tokens a second.
double decode_together(const Batch &batch, uint64_t count) {
    std::vector<Session> sessions;
    std::vector<stasis_step_item> items;
    for (const Session &start : batch.starts) {
        sessions.push_back(fork(start));
        auto item = sized<stasis_step_item>();
        item.session = sessions.back().get();
        item.flags = STASIS_STEP_SAMPLE;
        items.push_back(item);
    }
    stasis_error error{};
    const Stopwatch watch;
    for (uint64_t i = 0; i < count; ++i) {
        check(stasis_sessions_step(items.data(), sizeof items[0], items.size(), nullptr, 0, nullptr,
                                   &error),
              error, "step");
        for (const stasis_step_item &item : items) {
            if (item.status != STASIS_OK) {
                throw Failure(std::string("step: ") + stasis_status_name(item.status));
            }
        }
    }
    return static_cast<double>(count * items.size()) / watch.seconds();
}

std::vector<Batch> batches(const Bench &bench, uint64_t depth, const std::string &ceiling) {
    std::vector<Session> sessions;
    while (sessions.size() < std::max(kForks, kTogether[std::size(kTogether) - 1])) {
        sessions.push_back(create_alone(bench.model));
        append(bench, sessions.back(), (sessions.size() - 1) * depth, depth);
    }
    const std::string behind = "@" + std::to_string(depth);
    std::vector<Batch> all;
    for (const size_t count : kTogether) {
        Batch batch{"batch" + std::to_string(count) + behind, {}, false, {ceiling, {}, {}}};
        for (size_t i = 0; i < count; ++i) {
            batch.starts.push_back(fork(sessions[i]));
        }
        all.push_back(std::move(batch));
    }
    Batch forks{"forks" + std::to_string(kForks) + behind, {}, true, {ceiling, {}, {}}};
    while (forks.starts.size() < kForks) {
        forks.starts.push_back(fork(sessions[0]));
    }
    all.push_back(std::move(forks));
    return all;
}

// Bytes that a step reads for each of its tokens: weights once for all, and keys and values.
double bytes_of_token(const Bench &bench, const Batch &batch, uint64_t depth) {
    double own = 0, common = 0; // the mean over the tokens
    for (uint64_t i = 0; i < kStepTokens; ++i) {
        own += kv_bytes(bench, depth + i) / kStepTokens;
    }
    if (batch.one_prompt) {
        common = kv_bytes(bench, depth - 1);
        own -= common;
    }
    const auto count = static_cast<double>(batch.starts.size());
    own += static_cast<double>(bench.matrices.state_bytes);
    return own + (common + bench.matrices.step_bytes(batch.starts.size())) / count;
}

} // namespace

void steps(Bench &bench, const std::string &name, uint64_t depth) {
    const Against against = of_meter(bench, "read");
    const auto now = [&] { return against.ceiling.empty() ? 0 : against.now(); };
    std::vector<Batch> all = batches(bench, depth, against.ceiling);
    Progress progress(name);
    for (Batch &batch : all) {
        decode_together(batch, 2);
    }
    // In turn, so that each is held against the same minute's one session.
    for (unsigned repetition = 0; repetition < bench.repetitions; ++repetition) {
        Progress::report(&progress, repetition, bench.repetitions);
        for (Batch &batch : all) {
            const double before = now();
            batch.series.values.push_back(decode_together(batch, kStepTokens));
            batch.series.ceilings.push_back((before + now()) / 2);
        }
    }
    for (const Batch &batch : all) {
        add_speed(bench, batch.name, batch.series, Work::bytes,
                  bytes_of_token(bench, batch, depth));
    }
    for (const Batch &batch : all) {
        std::vector<double> gains;
        for (size_t i = 0; i < batch.series.values.size(); ++i) {
            gains.push_back(batch.series.values[i] / all[0].series.values[i]);
        }
        if (&batch != &all[0]) {
            add(bench, "x" + batch.name, gains, "x one");
        }
    }
}

} // namespace command::bench
