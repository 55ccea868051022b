// The example server: requests that arrive and leave, served together by a scheduler, over
// abi/stasis.h and nothing else. Prints the outcome of each; with --check, whether each reply
// has the bits of the same request served alone.
#include <chrono>
#include <cstdio>
#include <cstring>

#include <CLI/CLI.hpp>

#include "tools/cli/visible.h"
#include "tools/serve/service.h"

namespace serve {
namespace {

struct Choice {
    std::string model, kernels;
    uint32_t threads = 0, seed = 1;
    size_t requests = 32;
    double kv_mib = 0;
    Limits limits;
    bool check = false;
};

command::Model open_model(const Choice &choice) {
    auto options = command::sized<stasis_model_options>();
    options.threads = choice.threads;
    options.kernels = choice.kernels.empty() ? nullptr : choice.kernels.c_str();
    options.kv_budget_bytes = static_cast<uint64_t>(choice.kv_mib * (1 << 20));
    stasis_model *model = nullptr;
    stasis_error error{};
    command::check(stasis_model_open(choice.model.c_str(), &options, &model, &error), error,
                   choice.model);
    return command::Model(model);
}

const char *name_of(End end) {
    switch (end) {
    case End::length:
        return "length";
    case End::token:
        return "token";
    case End::string:
        return "string";
    case End::left:
        return "left";
    case End::failed:
        return "FAILED";
    case End::none:
        break;
    }
    return "none";
}

// Returns the text on one line of at most `width` bytes, cut between characters.
std::string shown(const std::string &text, size_t width) {
    std::string line = command::visible(text);
    if (line.size() > width) {
        while (width > 0 && (static_cast<unsigned char>(line[width]) & 0xC0U) == 0x80U) {
            --width;
        }
        line.resize(width);
    }
    return line;
}

void print_replies(const std::vector<Request> &requests, const std::vector<Reply> &replies) {
    std::printf("  id  came began first ended  prompt  wait  new  end     text\n");
    for (size_t i = 0; i < replies.size(); ++i) {
        const Reply &reply = replies[i];
        std::printf("%4zu %5llu %5llu %5llu %5llu %7zu %5llu %4zu  %-7s %s\n", i,
                    static_cast<unsigned long long>(requests[i].arrival_step),
                    static_cast<unsigned long long>(reply.admitted_step),
                    static_cast<unsigned long long>(reply.first_token_step),
                    static_cast<unsigned long long>(reply.end_step), requests[i].prompt.size(),
                    static_cast<unsigned long long>(reply.longest_wait), reply.tokens.size(),
                    name_of(reply.end), shown(reply.failure + reply.text, 40).c_str());
    }
}

void print_totals(const Service &service, const Choice &choice, double seconds) {
    const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    const stasis_scheduler_stats stats = service.stats();
    std::printf("\n%llu passes of at most %.1f ms; %llu prompt tokens and %llu new ones, %.1f a "
                "second\n",
                number(stats.passes), static_cast<double>(stats.pass_us_max) / 1e3,
                number(stats.prompt_positions), number(stats.tokens),
                static_cast<double>(stats.prompt_positions + stats.tokens) / seconds);
    std::printf("at most %llu sessions in a pass, %zu requests waiting, %.2f MiB of keys and "
                "values",
                number(stats.most_together), service.most_waiting(),
                static_cast<double>(service.kv_peak_bytes()) / (1 << 20));
    if (choice.kv_mib > 0) {
        std::printf(" of %.2f", choice.kv_mib);
    }
    std::printf("\n");
}

// Prints every reply that differs from the same request served alone, and returns their number.
size_t check_alone(stasis_model *model, const std::vector<Request> &requests,
                   const std::vector<Reply> &replies) {
    size_t different = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        const Reply alone = reply_alone(model, requests[i]);
        const char *what =
            replies[i].tokens != alone.tokens                                          ? "tokens"
            : replies[i].text != alone.text                                            ? "text"
            : replies[i].end != alone.end                                              ? "end"
            : std::memcmp(&replies[i].digest, &alone.digest, sizeof alone.digest) != 0 ? "digest"
                                                                                       : nullptr;
        if (what != nullptr) {
            ++different;
            std::printf("request %zu: its %s is not what it is alone\n", i, what);
        }
    }
    std::printf("%zu of %zu requests got what they get alone: tokens, text, end and digest\n",
                requests.size() - different, requests.size());
    return different;
}

int run(const Choice &choice) {
    const command::Model model = open_model(choice);
    const std::vector<Request> requests = make_requests(model.get(), choice.requests, choice.seed);
    Service service(model.get(), requests, choice.limits);
    const auto begin = std::chrono::steady_clock::now();
    while (service.advance()) {
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    print_replies(requests, service.replies());
    print_totals(service, choice, seconds.count());
    return choice.check && check_alone(model.get(), requests, service.replies()) != 0 ? 1 : 0;
}

} // namespace
} // namespace serve

int main(int argc, char **argv) {
    serve::Choice choice;
    CLI::App app("An example host: serves requests that come and go, many in one pass.");
    app.add_option("MODEL", choice.model, "directory or GGUF file")->required();
    app.add_option("--requests", choice.requests, "how many come (default: 32)");
    app.add_option("--seed", choice.seed, "of the requests (default: 1)");
    app.add_option("--kv-mib", choice.kv_mib, "KV budget in MiB (default: no limit)");
    app.add_option("--slice", choice.limits.slice,
                   "positions of prompts in a pass (default: by the measured speed)")
        ->check(CLI::Range(1, 1024));
    app.add_option("--sessions", choice.limits.sessions_max,
                   "that run at the same time (default: 16)")
        ->check(CLI::Range(1, 1024));
    app.add_option("--threads", choice.threads, "that compute");
    app.add_option("--kernels", choice.kernels, "table of kernels");
    app.add_flag("--check", choice.check, "compare each with the same request served alone");
    CLI11_PARSE(app, argc, argv);
    try {
        return serve::run(choice);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "serve: %s\n", command::visible(error.what()).c_str());
        return 2;
    }
}
