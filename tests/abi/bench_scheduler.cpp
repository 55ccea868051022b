// What a scheduler makes of many sessions, beside one caller and beside threads that each generate;
// and how long replies wait for their next token while a long prompt arrives:
//     bench_scheduler MODEL [SESSIONS]
// 64 sessions by default, of 64 tokens each after a prompt of 40.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
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
std::vector<Session> make_sessions(stasis_model *model, size_t count) {
    std::vector<Session> sessions;
    for (uint32_t i = 0; i < count; ++i) {
        stasis_session *session = nullptr;
        check(stasis_session_create(model, nullptr, &session, &error), "create");
        sessions.emplace_back(session);
        stasis_sampling sampling;
        stasis_sampling_init(&sampling, sizeof sampling);
        sampling.temperature = 0.8F;
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
double by_threads(stasis_model *model, size_t count, std::vector<stasis_digest> &digests) {
    const std::vector<Session> sessions = make_sessions(model, count);
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

// How long sessions waited from one token to the next, in milliseconds.
struct Waits {
    std::vector<double> all;
    double median() { return at(0.5); }
    double longest() { return at(1); }
    double at(double share) {
        std::sort(all.begin(), all.end());
        return all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))];
    }
};

Scheduler make_scheduler(stasis_model *model) {
    stasis_scheduler *scheduler = nullptr;
    check(stasis_scheduler_create(model, nullptr, &scheduler, &error), "scheduler");
    return Scheduler(scheduler);
}

// Submits the sessions, and after some tokens of theirs a long prompt beside them, if there is one.
// Returns the tokens a second of the sessions.
double by_scheduler(stasis_scheduler *scheduler, const std::vector<Session> &sessions,
                    stasis_session *late, Waits &waits) {
    const stasis_generate_options options = generating(kTokens);
    for (const Session &session : sessions) {
        check(stasis_scheduler_submit(scheduler, session.get(), &options, nullptr, &error),
              "submit");
    }
    const std::vector<stasis_token> prompt = tokens(kLongPrompt, 4711);
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
                waits.all.push_back(1e3 *
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

void report(const char *what, double speed, double alone) {
    std::printf("  %-44s %8.1f tokens/s  %5.2f times\n", what, speed, speed / alone);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: bench_scheduler MODEL [SESSIONS]\n");
        return 2;
    }
    const size_t count = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 64;
    stasis_model *opened = nullptr;
    check(stasis_model_open(argv[1], nullptr, &opened, &error), "open");
    const Model model(opened);
    std::vector<stasis_digest> alone, threads;
    by_threads(opened, 1, alone); // warm
    const double one = by_threads(opened, 1, alone);
    report("one caller", one, one);
    report("16 threads that generate", by_threads(opened, 16, threads), one);

    for (const size_t sessions : {size_t{1}, size_t{4}, size_t{16}, count}) {
        const std::vector<Session> all = make_sessions(opened, sessions);
        const Scheduler scheduler = make_scheduler(opened);
        Waits waits;
        const double speed = by_scheduler(scheduler.get(), all, nullptr, waits);
        char what[64];
        std::snprintf(what, sizeof what, "a scheduler, %zu sessions", sessions);
        report(what, speed, one);
        std::printf("      from token to token: %.1f ms, at most %.1f ms\n", waits.median(),
                    waits.longest());
        const std::vector<stasis_digest> digests = digests_of(all);
        for (size_t i = 0; i < std::min(threads.size(), sessions); ++i) {
            if (std::memcmp(&digests[i], &threads[i], sizeof digests[i]) != 0) {
                std::printf("session %zu: NOT the digest that it has alone\n", i);
                return 1;
            }
        }
    }
    const std::vector<Session> some = make_sessions(opened, 16), late = make_sessions(opened, 1);
    const Scheduler scheduler = make_scheduler(opened);
    Waits waits;
    by_scheduler(scheduler.get(), some, late[0].get(), waits);
    stasis_scheduler_stats stats{};
    stats.struct_size = sizeof stats;
    check(stasis_scheduler_get_stats(scheduler.get(), &stats, &error), "stats");
    std::printf("  16 sessions, and %zu tokens of a prompt beside them\n"
                "      from token to token: %.1f ms, at most %.1f ms; %llu positions in a slice "
                "at the end\n",
                kLongPrompt, waits.median(), waits.longest(),
                static_cast<unsigned long long>(stats.slice));
    return 0;
}
