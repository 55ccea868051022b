// What a scheduler makes of many sessions, beside one caller and beside threads that each generate;
// and how long replies wait for their next token while a long prompt arrives:
//     bench_scheduler MODEL [ROUNDS]
// Sessions generate 64 tokens each after a prompt of 40, greedy and at temperature 0.8. A round
// takes each figure once, in turn, because the speed of a shared host's memory changes within
// minutes; ratios are those within a round, and medians of all rounds (5 by default) are printed
// with their range.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "abi/stasis.h"

namespace {

constexpr size_t kPrompt = 40, kTokens = 64, kLongPrompt = 1500;

stasis_error error;

void check(stasis_status status, const char *what) {
    if (status != STASIS_OK) {
        std::fprintf(stderr, "bench_scheduler: %s: %s\n", what, error.message);
        std::exit(1);
    }
}

struct Free {
    void operator()(stasis_session *session) const { stasis_session_free(session); }
    void operator()(stasis_model *model) const { stasis_model_close(model); }
    void operator()(stasis_scheduler *scheduler) const { stasis_scheduler_close(scheduler); }
};
using Session = std::unique_ptr<stasis_session, Free>;
using Model = std::unique_ptr<stasis_model, Free>;
using Scheduler = std::unique_ptr<stasis_scheduler, Free>;

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<stasis_token> tokens(size_t count, uint32_t seed) {
    std::vector<stasis_token> all;
    for (uint32_t state = seed; all.size() < count;) {
        state = state * 1664525U + 1013904223U; // Numerical Recipes' generator
        all.push_back(100 + (state >> 16) % 10000);
    }
    return all;
}

stasis_generate_options generating(uint64_t count) {
    stasis_generate_options options;
    stasis_generate_options_init(&options, sizeof options);
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = count;
    return options;
}

// Sessions with different prompts and seeds.
std::vector<Session> make_sessions(stasis_model *model, size_t count, float temperature) {
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < count; ++i) {
        stasis_session *session = nullptr;
        check(stasis_session_create(model, nullptr, &session, &error), "create");
        sessions.emplace_back(session);
        stasis_sampling sampling;
        stasis_sampling_init(&sampling, sizeof sampling);
        sampling.temperature = temperature;
        sampling.seed = i;
        check(stasis_session_set_sampling(session, &sampling, &error), "sampling");
        const std::vector<stasis_token> prompt = tokens(kPrompt, i);
        check(stasis_session_append(session, prompt.data(), prompt.size(), nullptr, &error),
              "append");
    }
    return sessions;
}

std::vector<stasis_digest> digests_of(const std::vector<Session> &sessions) {
    std::vector<stasis_digest> digests(sessions.size());
    for (size_t i = 0; i < sessions.size(); ++i) {
        check(stasis_session_digest(sessions[i].get(), &digests[i], &error), "digest");
    }
    return digests;
}

// Returns tokens a second of so many threads that generate for their own session.
double by_threads(stasis_model *model, size_t count, float temperature,
                  std::vector<stasis_digest> &digests) {
    const std::vector<Session> sessions = make_sessions(model, count, temperature);
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    for (const Session &session : sessions) {
        threads.emplace_back([&session] {
            const stasis_generate_options options = generating(kTokens);
            check(stasis_session_generate(session.get(), &options, nullptr, &error), "generate");
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const double took = since(begin);
    digests = digests_of(sessions);
    return static_cast<double>(count * kTokens) / took;
}

double median(std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of.size() % 2 == 1 ? of[of.size() / 2] : (of[of.size() / 2 - 1] + of[of.size() / 2]) / 2;
}

double longest(const std::vector<double> &of) {
    return *std::max_element(of.begin(), of.end());
}

Scheduler make_scheduler(stasis_model *model) {
    stasis_scheduler *scheduler = nullptr;
    check(stasis_scheduler_create(model, nullptr, &scheduler, &error), "scheduler");
    return Scheduler(scheduler);
}

// Submits the sessions, and after some tokens of theirs a long prompt beside them, if there is one.
// Returns the tokens a second of the sessions.
double by_scheduler(stasis_scheduler *scheduler, const std::vector<Session> &sessions,
                    stasis_session *late, uint32_t late_seed, std::vector<double> &waits_ms) {
    const stasis_generate_options options = generating(kTokens);
    for (const Session &session : sessions) {
        check(stasis_scheduler_submit(scheduler, session.get(), &options, nullptr, &error),
              "submit");
    }
    const std::vector<stasis_token> prompt = tokens(kLongPrompt, late_seed);
    std::map<const stasis_session *, Clock::time_point> heard;
    const auto begin = Clock::now();
    double took = 0;
    size_t left = sessions.size() + (late != nullptr ? 1 : 0), tokens_heard = 0;
    while (left > 0) {
        stasis_scheduler_event *event = nullptr;
        check(stasis_scheduler_next(scheduler, nullptr, STASIS_FOREVER, &event, &error), "next");
        if (event->session != late && event->end == 0) {
            const auto now = Clock::now();
            if (const auto before = heard.find(event->session); before != heard.end()) {
                waits_ms.push_back(1e3 *
                                   std::chrono::duration<double>(now - before->second).count());
            }
            heard[event->session] = now;
            took = since(begin);
            if (++tokens_heard == sessions.size() * 4 && late != nullptr) {
                stasis_prompt given;
                stasis_prompt_init(&given, sizeof given);
                given.tokens = prompt.data();
                given.token_count = prompt.size();
                check(stasis_scheduler_submit(scheduler, late, &options, &given, &error), "submit");
            }
        }
        left -= event->end;
        stasis_scheduler_event_free(event);
    }
    return static_cast<double>(sessions.size() * kTokens) / took;
}

// What the rounds gave for one row of the table.
struct Row {
    std::vector<double> speeds, times, waits_ms, longest_ms;

    void add(double speed, double alone, const std::vector<double> &waits) {
        speeds.push_back(speed);
        times.push_back(speed / alone);
        if (!waits.empty()) {
            waits_ms.push_back(median(waits));
            longest_ms.push_back(longest(waits));
        }
    }

    void print(const std::string &what) const {
        const auto [least, most] = std::minmax_element(times.begin(), times.end());
        std::printf("  %-36s %7.1f tokens/s  %5.2f times (%.2f-%.2f)", what.c_str(), median(speeds),
                    median(times), *least, *most);
        if (!waits_ms.empty()) {
            std::printf("  %.1f ms from token to token, at most %.1f", median(waits_ms),
                        longest(longest_ms));
        }
        std::printf("\n");
        std::fflush(stdout);
    }
};

// The rows of one temperature, in the order in which they are measured.
struct Rows {
    std::map<size_t, Row> callers, schedulers; // by the number of sessions
    Row late;                                  // 16 sessions, a long prompt beside them
    std::vector<double> slices;

    void print(float temperature) const {
        std::printf(temperature == 0 ? "greedy\n" : "temperature %.1f\n",
                    static_cast<double>(temperature));
        for (const auto &[count, row] : callers) {
            row.print(std::to_string(count) + " threads that generate");
        }
        for (const auto &[count, row] : schedulers) {
            row.print("a scheduler, " + std::to_string(count) + " sessions");
        }
        late.print("16, a prompt of " + std::to_string(kLongPrompt) + " beside them");
        std::printf("  %.0f positions in a slice at the end\n", median(slices));
    }
};

void measure_late(stasis_model *model, float temperature, double alone, Rows &rows) {
    const std::vector<Session> some = make_sessions(model, 16, temperature);
    const std::vector<Session> late = make_sessions(model, 1, temperature);
    const Scheduler scheduler = make_scheduler(model);
    std::vector<double> waits;
    // A prompt that this process has not had: pages of another are taken over from it.
    static uint32_t seed = 4711;
    ++seed;
    const double speed = by_scheduler(scheduler.get(), some, late[0].get(), seed, waits);
    stasis_scheduler_stats stats{};
    stats.struct_size = sizeof stats;
    check(stasis_scheduler_get_stats(scheduler.get(), &stats, &error), "stats");
    rows.late.add(speed, alone, waits);
    rows.slices.push_back(static_cast<double>(stats.slice));
}

// One round; exits where a session of a scheduler does not have the digest that it has alone.
void measure(stasis_model *model, float temperature, Rows &rows) {
    std::vector<stasis_digest> digests, threads;
    const double alone = by_threads(model, 1, temperature, digests);
    rows.callers[1].add(alone, alone, {});
    rows.callers[16].add(by_threads(model, 16, temperature, threads), alone, {});
    for (const size_t count : {1, 4, 16, 64}) {
        const std::vector<Session> sessions = make_sessions(model, count, temperature);
        const Scheduler scheduler = make_scheduler(model);
        std::vector<double> waits;
        const double speed = by_scheduler(scheduler.get(), sessions, nullptr, 0, waits);
        rows.schedulers[count].add(speed, alone, waits);
        digests = digests_of(sessions);
        for (size_t i = 0; i < std::min(threads.size(), count); ++i) {
            if (std::memcmp(&digests[i], &threads[i], sizeof digests[i]) != 0) {
                std::printf("session %zu: NOT the digest that it has alone\n", i);
                std::exit(1);
            }
        }
    }
    measure_late(model, temperature, alone, rows);
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: bench_scheduler MODEL [ROUNDS]\n");
        return 2;
    }
    const size_t rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 5;
    stasis_model *opened = nullptr;
    check(stasis_model_open(argv[1], nullptr, &opened, &error), "open");
    const Model model(opened);
    std::vector<stasis_digest> ignored;
    by_threads(opened, 1, 0, ignored); // warm
    std::map<float, Rows> temperatures;
    for (size_t round = 0; round < rounds; ++round) {
        for (const float temperature : {0.0F, 0.8F}) {
            measure(opened, temperature, temperatures[temperature]);
        }
    }
    for (const auto &[temperature, rows] : temperatures) {
        rows.print(temperature);
    }
    return 0;
}
