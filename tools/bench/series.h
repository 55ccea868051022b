// How a figure is taken: repetitions, each between measurements of what it comes up against, and
// the sessions that they begin with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/tasks.h"

namespace command::bench {

inline constexpr double kMilli = 1e3;
inline constexpr uint64_t kTurn = 60; // tokens of a turn of a conversation

// What a figure comes up against: a rate that is measured anew whenever it is asked for.
struct Against {
    std::string ceiling; // "": nothing
    std::function<double()> now;
};
// One of the machine's ceilings; nothing where it was not measured, as for a device.
Against of_meter(const Bench &bench, const std::string &ceiling);

// What was measured, and what the ceiling gave at the same time.
struct Series {
    std::string ceiling;
    std::vector<double> values, ceilings; // of each repetition
};

// `once(warm_up)` gives one value. Before a figure's first it is called to warm up. The machine's
// speed changes from second to second, so the ceiling is measured before and after each.
Series repeat(Bench &bench, const std::string &name, const Against &against,
              const std::function<double(bool warm_up)> &once);

Result &add(Bench &bench, const std::string &name, const std::vector<double> &values,
            const char *unit);
// `rate(value)`: of bytes or operations per second.
void set_rate(Result &result, Work work, const Series &series,
              const std::function<double(double)> &rate);
// Of values in tokens a second.
Result &add_speed(Bench &bench, const std::string &name, const Series &series, Work work,
                  double work_of_token);
// Of values in milliseconds.
Result &add_time(Bench &bench, const std::string &name, const Series &series, Work work,
                 double work_of_call);

// A session that computes all that it is given: it shares pages with its forks alone.
Session create_alone(stasis_model *model);
// Keys and values that the token at `position` sees, itself included.
double kv_bytes(const Bench &bench, uint64_t position);
// The numbers of these that query heads are multiplied with: those of a KV head by each of its own.
double attention_numbers(const Bench &bench, uint64_t position);

Session fork(const Session &session);
// Of the benchmark's tokens.
void append(const Bench &bench, const Session &session, uint64_t begin, uint64_t count);
// A session with so many tokens; what it shares with others of the kind is computed once.
const Session &live_at(Bench &bench, uint64_t position);

} // namespace command::bench
