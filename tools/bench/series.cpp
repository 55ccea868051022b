// See series.h.
#include "tools/bench/series.h"

#include <algorithm>
#include <iterator>

#include "tools/cli/generation.h"

namespace command::bench {

Against of_meter(const Bench &bench, const std::string &ceiling) {
    if (!bench.meter.knows(ceiling)) {
        return {};
    }
    return {ceiling, [&meter = bench.meter, ceiling] { return meter.now(ceiling); }};
}

Series repeat(Bench &bench, const std::string &name, const Against &against,
              const std::function<double(bool warm_up)> &once) {
    Series series{against.ceiling, {}, {}};
    Progress progress(name);
    const auto now = [&] { return against.ceiling.empty() ? 0 : against.now(); };
    if (bench.warm.insert(name).second) {
        once(true);
    }
    for (double before = now(); series.values.size() < bench.repetitions;) {
        Progress::report(&progress, series.values.size(), bench.repetitions);
        series.values.push_back(once(false));
        const double after = now();
        series.ceilings.push_back((before + after) / 2);
        before = after;
    }
    return series;
}

Result &add(Bench &bench, const std::string &name, const std::vector<double> &values,
            const char *unit) {
    bench.results.push_back(summarise(name, values, unit));
    return bench.results.back();
}

void set_rate(Result &result, Work work, const Series &series,
              const std::function<double(double)> &rate) {
    std::vector<double> shares;
    for (size_t i = 0; i < series.values.size() && !series.ceiling.empty(); ++i) {
        shares.push_back(rate(series.values[i]) / series.ceilings[i]);
    }
    result.work = work;
    result.rate = rate(result.median);
    result.ceiling = series.ceiling;
    if (!shares.empty()) {
        result.share = median_of(shares);
        result.ceiling_rate = median_of(series.ceilings);
    }
}

Result &add_speed(Bench &bench, const std::string &name, const Series &series, Work work,
                  double work_of_token) {
    Result &result = add(bench, name, series.values, "tokens/s");
    set_rate(result, work, series, [&](double value) { return value * work_of_token; });
    return result;
}

Result &add_time(Bench &bench, const std::string &name, const Series &series, Work work,
                 double work_of_call) {
    Result &result = add(bench, name, series.values, "ms");
    set_rate(result, work, series, [&](double value) { return work_of_call / (value / kMilli); });
    return result;
}

Session create_alone(stasis_model *model) {
    return create_session(model, STASIS_DOMAIN_PRIVATE);
}

// Calls add(positions, KV heads, size of a head) for each layer with attention at a position.
template <typename Add> void each_layer(const Bench &bench, uint64_t position, const Add &add) {
    const stasis_model_info &info = bench.info;
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        const uint64_t window = info.layer_windows[layer];
        if (info.layer_recurrent[layer] != 0) {
            continue;
        }
        if (window == 0) {
            add(position + 1, info.global_kv_heads, info.global_head_dim);
        } else {
            add(std::min(position + 1, window), info.kv_heads, info.head_dim);
        }
    }
}

double kv_bytes(const Bench &bench, uint64_t position) {
    uint64_t numbers = 0;
    each_layer(bench, position, [&](uint64_t positions, uint64_t kv_heads, uint64_t head_dim) {
        numbers += 2 * positions * kv_heads * head_dim;
    });
    return static_cast<double>(numbers * sizeof(uint16_t));
}

double attention_numbers(const Bench &bench, uint64_t position) {
    uint64_t numbers = 0;
    each_layer(bench, position, [&](uint64_t positions, uint64_t, uint64_t head_dim) {
        numbers += 2 * positions * bench.info.heads * head_dim;
    });
    return static_cast<double>(numbers);
}

Session fork(const Session &session) {
    stasis_session *child = nullptr;
    stasis_error error{};
    check(stasis_session_fork(session.get(), &child, &error), error, "fork");
    return Session(child);
}

void append(const Bench &bench, const Session &session, uint64_t begin, uint64_t count) {
    Progress progress("appending " + std::to_string(count) + " tokens");
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.cancel = bench.cancel;
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    check(
        stasis_session_append(session.get(), bench.tokens.data() + begin, count, &options, &error),
        error, "append");
}

const Session &live_at(Bench &bench, uint64_t position) {
    const auto next = bench.live.upper_bound(position);
    const bool shorter = next != bench.live.begin();
    const uint64_t from = shorter ? std::prev(next)->first : 0;
    if (from != position || !shorter) {
        Session session = shorter ? fork(std::prev(next)->second) : create_alone(bench.model);
        append(bench, session, from, position - from);
        bench.live.emplace(position, std::move(session));
    }
    return bench.live.at(position);
}

} // namespace command::bench
