// See tasks.h. Names and meaning of pp and tg are llama-bench's (github.com/ggml-org/llama.cpp,
// tools/llama-bench): pp512 appends 512 tokens to nothing and computes the logits after the last,
// tg128@1024 generates 128 tokens one by one behind 1024.
#include "tools/bench/tasks.h"

#include <algorithm>
#include <fstream>

#include "tools/bench/drafts.h"
#include "tools/bench/series.h"
#include "tools/bench/snapshots.h"
#include "tools/bench/steps.h"
#include "tools/cli/generation.h"

namespace command::bench {

namespace {

constexpr uint64_t kPrompt = 512, kGenerated = 128, kShortPrompt = 64;
constexpr uint64_t kLive = 1024;
constexpr uint64_t kTokens = 32768; // that the deepest session needs
constexpr double kMicro = 1e6;

void compute_logits(const Bench &bench, const Session &session) {
    std::vector<float> logits(bench.info.vocabulary);
    size_t count = 0;
    stasis_error error{};
    check(stasis_session_logits(session.get(), logits.data(), logits.size(), &count, &error), error,
          "logits");
}

void decode(const Session &session) {
    stasis_token token = 0;
    stasis_error error{};
    check(stasis_session_decode(session.get(), &token, &error), error, "decode");
}

void generate_tokens(const Bench &bench, const Session &session, uint64_t count) {
    GenerationChoice choice;
    choice.tokens_max = count;
    choice.ignore_end = true;
    const Reply reply = generate(session.get(), choice, bench.cancel, false);
    if (reply.stop_reason == STASIS_STOP_CANCELLED) {
        throw Failure("interrupted");
    }
}

// The work of `tokens` tokens in all matrices of the layers. The head and attention are left out:
// they come on top.
double flops_of(const Bench &bench, uint64_t tokens) {
    return 2.0 * static_cast<double>(bench.matrices.layers * tokens);
}

// The mean over the generated tokens of what lying `depth` further back adds.
double kv_bytes_added(const Bench &bench, uint64_t depth) {
    double sum = 0;
    for (uint64_t i = 0; i < kGenerated; ++i) {
        sum += kv_bytes(bench, depth + i) - kv_bytes(bench, i);
    }
    return sum / kGenerated;
}

const Result *find_result(const Bench &bench, const std::string &name) {
    for (const Result &result : bench.results) {
        if (result.name == name) {
            return &result;
        }
    }
    return nullptr;
}

// The work of attention in `tokens` tokens from position `begin` on: a multiplication and an
// addition for each value of a key and of a value, and for each query head.
double attention_flops(const Bench &bench, uint64_t begin, uint64_t tokens) {
    double numbers = 0; // that query heads meet
    for (uint64_t i = begin; i < begin + tokens; ++i) {
        numbers += attention_numbers(bench, i);
    }
    return 2 * numbers;
}

// What `tokens` tokens cost more behind a context than the figure `at_zero` says, if it was taken;
// against the work that the context adds to them.
void add_cost_of_depth(Bench &bench, const char *at_zero, const std::string &name, const char *unit,
                       double tokens, Work work, double work_added, const Series &series) {
    const Result *found = find_result(bench, at_zero);
    if (found == nullptr) {
        return;
    }
    const double zero = found->median;
    std::vector<double> added;
    for (const double value : series.values) {
        added.push_back(kMilli * tokens * (1 / value - 1 / zero));
    }
    Result &result = add(bench, name, added, unit);
    if (result.median > 0) { // some of the differences may not be
        const Series middle{series.ceiling, {result.median}, {median_of(series.ceilings)}};
        set_rate(result, work, middle, [&](double value) { return work_added * kMilli / value; });
    }
}

void prompt(Bench &bench, const std::string &name, uint64_t depth) {
    const Session *start = depth == 0 ? nullptr : &live_at(bench, depth);
    const Series series = repeat(bench, name, of_meter(bench, bench.meter.matrix()), [&](bool) {
        const Session session = start == nullptr ? create_alone(bench.model) : fork(*start);
        const Stopwatch watch;
        append(bench, session, depth, kPrompt);
        compute_logits(bench, session);
        return kPrompt / watch.seconds();
    });
    add_speed(bench, name, series, Work::flops, flops_of(bench, 1));
    if (depth != 0) {
        add_cost_of_depth(
            bench, "pp512", "attention@" + std::to_string(depth), "ms", kPrompt, Work::flops,
            attention_flops(bench, depth, kPrompt) - attention_flops(bench, 0, kPrompt), series);
    }
}

void generation(Bench &bench, const std::string &name, uint64_t depth) {
    const Session &start = live_at(bench, std::max<uint64_t>(depth, 1)); // nothing has no logits
    // A device records graphs of its steps as they come up, so all of them do before it is timed.
    const bool records = !bench.choice.device.empty() && bench.choice.device != "cpu";
    const Series series = repeat(bench, name, of_meter(bench, "read"), [&](bool warm_up) {
        const Session session = fork(start);
        const uint64_t count = warm_up && !records ? 4 : kGenerated;
        const Stopwatch watch;
        generate_tokens(bench, session, count);
        return static_cast<double>(count) / watch.seconds();
    });
    const auto weight_bytes =
        static_cast<double>(bench.matrices.token_bytes + bench.matrices.state_bytes);
    add_speed(bench, name, series, Work::bytes, weight_bytes + kv_bytes_added(bench, depth));
    if (depth != 0) {
        add_cost_of_depth(bench, "tg128", "added@" + std::to_string(depth), "ms/token", 1,
                          Work::bytes, kv_bytes_added(bench, depth), series);
    }
}

void first_token(Bench &bench, const std::string &name, uint64_t) {
    const Series series = repeat(bench, name, of_meter(bench, bench.meter.matrix()), [&](bool) {
        const Stopwatch watch;
        const Session session = create_alone(bench.model);
        append(bench, session, 0, kShortPrompt);
        decode(session);
        return kMilli * watch.seconds();
    });
    add_time(bench, name, series, Work::flops, flops_of(bench, kShortPrompt));
}

// From the user's tokens to the first of the reply, on `live` positions and after all that came
// before is processed again.
void turn(Bench &bench, const std::string &name, uint64_t live) {
    const Session nothing = create_alone(bench.model);
    const Session &start = live == 0 ? nothing : live_at(bench, live);
    const uint64_t tokens = kLive + kTurn - live;
    const Series series = repeat(bench, name, of_meter(bench, bench.meter.matrix()), [&](bool) {
        const Session session = fork(start);
        const Stopwatch watch;
        append(bench, session, live, tokens);
        decode(session);
        return kMilli * watch.seconds();
    });
    add_time(bench, name, series, Work::flops, flops_of(bench, tokens));
}

void forks(Bench &bench, const std::string &name, uint64_t depth) {
    constexpr size_t kForksTimed = 100;
    const Session &start = live_at(bench, depth);
    const Series series = repeat(bench, name, {}, [&](bool) {
        std::vector<double> seconds;
        while (seconds.size() < kForksTimed) {
            const Stopwatch watch;
            const Session child = fork(start);
            seconds.push_back(watch.seconds());
        }
        return kMicro * median_of(seconds);
    });
    add(bench, name, series.values, "us");
}

// A new session whose tokens another one holds, in full pages.
void start_shared(Bench &bench, const std::string &name, uint64_t depth) {
    constexpr int kStarts = 100;
    const Session first = create_session(bench.model);
    append(bench, first, 0, depth);
    const Series series = repeat(bench, name, {}, [&](bool) {
        std::vector<double> seconds;
        while (seconds.size() < kStarts) {
            const Stopwatch watch;
            const Session session = create_session(bench.model);
            stasis_error error{};
            check(stasis_session_append(session.get(), bench.tokens.data(), depth, nullptr, &error),
                  error, "append");
            seconds.push_back(watch.seconds());
        }
        return kMicro * median_of(seconds);
    });
    add(bench, name, series.values, "us");
}

// `again`: with the digests that an earlier process left, if it did.
void open(Bench &bench, const std::string &name, uint64_t again) {
    const Series series = repeat(bench, name, of_meter(bench, "read"), [&](bool) {
        const Stopwatch watch;
        const Model model = again != 0 ? open_model(bench.choice, bench.cancel)
                                       : open_verified(bench.choice, bench.cancel);
        const Session session = create_alone(model.get());
        append(bench, session, 0, 1);
        compute_logits(bench, session);
        return kMilli * watch.seconds();
    });
    add_time(bench, name, series, Work::bytes, static_cast<double>(bench.matrices.file_bytes));
}

// What the process holds for itself, files that it maps not counted.
double anonymous_bytes() {
    std::ifstream smaps("/proc/self/smaps_rollup");
    for (std::string word; smaps >> word;) {
        double kilobytes = 0;
        if (word == "Anonymous:" && smaps >> kilobytes) {
            return kilobytes * 1024;
        }
    }
    throw Failure("/proc/self/smaps_rollup: no line 'Anonymous:'");
}

void memory(Bench &bench, const std::string &name, uint64_t depth) {
    const Session session = create_alone(bench.model);
    append(bench, session, 0, depth);
    compute_logits(bench, session);
    auto stats = sized<stasis_model_stats>();
    stasis_error error{};
    check(stasis_model_get_stats(bench.model, &stats, &error), error, "model");
    const double rest =
        anonymous_bytes() - static_cast<double>(stats.kv_used_bytes + stats.kv_cached_bytes +
                                                bench.matrices.copied + ceilings::kHeldBytes);
    add(bench, name, {rest / 1e6}, "MB");
}

struct Task {
    const char *name;
    uint64_t positions; // that the context must have
    uint64_t depth;     // where it begins
    void (*run)(Bench &bench, const std::string &name, uint64_t depth);
    bool on_request = false;
};

// In the order in which they are run: what the process has in memory is asked before others filled
// it, and what is deep after what is not.
constexpr Task kTasks[] = {
    {"memory@2048", 2048, 2048, memory},
    {"open", 1, 0, open},
    {"reopen", 1, 1, open},
    {"first_token", kShortPrompt + 1, 0, first_token},
    {"pp512", kPrompt, 0, prompt},
    {"pp512@4096", kPrompt + 4096, 4096, prompt},
    {"pp512@16384", kPrompt + 16384, 16384, prompt},
    {"tg128", kGenerated + 1, 0, generation},
    {"tg128@1024", kGenerated + 1024, 1024, generation},
    {"tg128@4096", kGenerated + 4096, 4096, generation},
    {"tg128@16384", kGenerated + 16384, 16384, generation},
    {"batch@512", 512 + kStepTokens, 512, steps},
    {"turn", kLive + kTurn + 1, kLive, turn},
    {"turn_afresh", kLive + kTurn + 1, 0, turn},
    {"fork@64", 64, 64, forks},
    {"fork@4096", 4096, 4096, forks},
    {"start@64", 64, 64, start_shared},
    {"start@4096", 4096, 4096, start_shared},
    {"save", 1, 0, snapshot_save},
    {"load", 1, 0, snapshot_load},
    {"save@16384", 16384, 16384, snapshot_save, true},
    {"load@16384", 16384, 16384, snapshot_load, true},
    {"save_zstd", 1, 0, snapshot_save_zstd},
    {"load_zstd", 1, 0, snapshot_load_zstd},
    {"commit@1024", kTurns + 1024, 1024, snapshot_commit},
    {"commit@16384", kTurns + 16384, 16384, snapshot_commit},
    {"bytes_per_token", 128, 0, snapshot_bytes},
    {"lookup_repeat", kDraftPrompt + kDraftTokens, kRepeating, drafts_by_lookup, true},
    {"lookup_drawn", kDraftPrompt + kDraftTokens, kDrawn, drafts_by_lookup, true},
    {"lookup_chance", kDraftPrompt + kDraftTokens, kByChance, drafts_by_lookup, true},
    {"draft_repeat", kDraftPrompt + kDraftTokens, kRepeating, drafts_by_model, true},
    {"draft_drawn", kDraftPrompt + kDraftTokens, kDrawn, drafts_by_model, true},
};

std::vector<Task> chosen(const std::vector<std::string> &names, uint64_t context) {
    std::vector<Task> tasks;
    for (const Task &task : kTasks) {
        const bool named = std::find(names.begin(), names.end(), task.name) != names.end();
        if (((names.empty() && !task.on_request) || named) && task.positions <= context) {
            tasks.push_back(task);
        }
    }
    return tasks;
}

// Any ids will do; the generator is Knuth's MMIX.
std::vector<stasis_token> random_tokens(uint64_t count, uint32_t vocabulary) {
    std::vector<stasis_token> tokens;
    uint64_t state = 1;
    while (tokens.size() < count) {
        state = state * 6364136223846793005 + 1442695040888963407;
        tokens.push_back(static_cast<stasis_token>((state >> 33) % vocabulary));
    }
    return tokens;
}

} // namespace

std::string task_names() {
    std::string names;
    for (const Task &task : kTasks) {
        names += (names.empty() ? "" : ", ") + std::string(task.name);
    }
    return names;
}

void check_names(const std::vector<std::string> &names, const std::string &where) {
    for (const std::string &name : names) {
        if (std::none_of(std::begin(kTasks), std::end(kTasks),
                         [&](const Task &task) { return task.name == name; })) {
            throw Failure(where + ": '" + name + "' is not one of " + task_names());
        }
    }
}

void check_room(const std::vector<std::string> &names, uint64_t context) {
    if (chosen(names, context).empty()) {
        throw Failure("nothing to measure: the model's context has only " +
                      std::to_string(context) + " positions");
    }
}

void run_tasks(Bench &bench, const std::vector<std::string> &names) {
    bench.tokens = random_tokens(kTokens, bench.info.vocabulary);
    for (const Task &task : chosen(names, bench.info.context)) {
        task.run(bench, task.name, task.depth);
    }
}

} // namespace command::bench
