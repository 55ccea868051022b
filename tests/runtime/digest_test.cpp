// Digests of a 300-token run (or one as long as the context) of each bundled model, and of those of
// integer weights, recorded once and checked in: every machine, and every later version under the
// same contract, must reproduce them, and so must every kernel table, number of threads and cut of
// the log.
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/runtime/json_data.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr size_t kDigestTokens = 300;

std::vector<std::string> digested_models() {
    std::vector<std::string> names = bundled();
    names.insert(names.end(), bundled_hybrids().begin(), bundled_hybrids().end());
    names.insert(names.end(), bundled_with_sinks().begin(), bundled_with_sinks().end());
    for (const auto &[name, quantized] : quantized_models()) {
        names.push_back(name);
    }
    return names;
}

// The session whose digest was recorded.
std::unique_ptr<Session> digested_run(const std::shared_ptr<Model> &model) {
    auto session = std::make_unique<Session>(model, TimelineOptions());
    session->append(tokens_for(*model, 40), {});
    Sampling sampling;
    sampling.temperature = 1.0F;
    sampling.top_p = 0.98F;
    sampling.seed = 300;
    session->set_sampling(sampling);
    while (session->position() < std::min<uint64_t>(kDigestTokens, model->config.context)) {
        session->decode();
    }
    return session;
}

std::vector<uint32_t> digested_tokens(const std::shared_ptr<Model> &model) {
    const auto run = digested_run(model);
    std::vector<uint32_t> tokens;
    for (uint64_t i = 0; i < run->position(); ++i) {
        tokens.push_back(run->entry(i).token);
    }
    return tokens;
}

// Appends the tokens in parts of random lengths, each computed a random number at a time.
std::string digest_of_cuts(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens,
                           std::mt19937 &random) {
    Session session(model, {});
    while (session.position() < tokens.size()) {
        const std::span<const uint32_t> left = tokens.subspan(session.position());
        AppendOptions run;
        run.chunk = random() % 2 == 0 ? 0 : 1 + random() % 100;
        session.append(left.first(std::min<size_t>(left.size(), 1 + random() % 150)), run);
    }
    return to_hex(session.digest());
}

} // namespace

TEST_CASE("Session::digest: 300-token runs reproduce the recorded digests") {
    kernels::FloatEnvironment environment;
    const auto recorded = read_json(test_data("digests.json"));
    for (const std::string &name : digested_models()) {
        const std::string digest = to_hex(digested_run(open(name))->digest());
        CHECK_MESSAGE(recorded.value(name, "") == digest, std::string(name + " gives " + digest));
    }
}

TEST_CASE("Session::digest: every table, number of threads and cut reproduces the recorded ones") {
    kernels::FloatEnvironment environment;
    const auto recorded = read_json(test_data("digests.json"));
    std::mt19937 random(static_cast<uint32_t>(test_seed()));
    size_t index = 0;
    for (const std::string &name : digested_models()) {
        std::vector<uint32_t> tokens; // computed where the share has a case of the model
        for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
            if (kernels::find_table(*table) == nullptr) {
                std::printf("SKIPPED: digests: this machine cannot run table '%s'\n", *table);
                continue;
            }
            for (const size_t threads : {1, 2, 3, 4, 7}) { // five, so that a share has them all
                if (!taken(index++)) {
                    continue;
                }
                if (tokens.empty()) {
                    tokens = digested_tokens(open(name));
                }
                INFO(name, ", table: ", std::string(*table), ", threads: ", threads);
                const auto model = open_forced(name, *table, threads);
                CHECK(digest_of_cuts(model, tokens, random) == recorded.value(name, ""));
            }
        }
    }
}
