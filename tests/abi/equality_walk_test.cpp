// The numerics contract's table of equalities, at random: sessions of one model, opened with each
// kernel table, on the tests' device too, and several numbers of threads, go through all that can
// be done to a session, and each must stay what a plain run of its own log gives (plain_runs.h).
// STASIS_SEED repeats a walk, STASIS_EQUALITY_STEPS says how many operations it has.
#include <cstdio>
#include <cstdlib>

#include "tests/abi/device_module.h"
#include "tests/abi/equality_walk.h"
#include "tests/share.h"

namespace abi_test {

namespace {

Model open_on_device(const std::string &path) {
    REQUIRE(device_module_loaded);
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    return open_path(path, &options);
}

} // namespace

std::vector<Model> open_all(const std::string &path) {
    std::vector<Model> models;
    uint32_t threads = 2;
    std::vector<std::string> tables = kernel_tables();
    tables.insert(tables.end(), tables.begin(), tables.end()); // twice, for two numbers of threads
    for (const std::string &table : tables) {
        auto options = sized<stasis_model_options>();
        options.kernels = table.c_str();
        options.threads = 1 + threads++ % 3;
        if (models.size() % 2 == 1) { // of its checkpoints some are given up
            auto info = sized<stasis_model_info>();
            REQUIRE(stasis_model_get_info(models.front().get(), &info, nullptr) == STASIS_OK);
            options.state_budget_bytes = 10 * info.state_bytes;
        }
        stasis_model *model = nullptr;
        stasis_error error;
        const stasis_status status = stasis_model_open(path.c_str(), &options, &model, &error);
        if (status == STASIS_UNSUPPORTED) {
            std::printf("SKIPPED: equality walk: this machine cannot run table '%s'\n",
                        table.c_str());
            continue;
        }
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        models.emplace_back(model);
    }
    bool on_device = !is_hybrid(path);
    for (const char *part : {"moe", "gpt-oss", "longrope", "ministral3", "olmo3", "gemma4"}) {
        on_device = on_device && path.find(part) == std::string::npos; // devices do not compute it
    }
    if (on_device) {
        models.push_back(open_on_device(path));
    }
    return models;
}

void EqualityWalk::check(size_t i) {
    suspect_ = i;
    const Log &log = seats_[i].line.log;
    const Tokens expected = tokens_in(log);
    REQUIRE(position(of(i)) == expected.size());
    Tokens tokens(expected.size());
    size_t count = 0;
    REQUIRE(stasis_session_tokens(of(i), 0, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    REQUIRE(tokens == expected);
    const Digest plain = plain_of(seats_[i].line).digest_of(log);
    REQUIRE(digest(of(i)) == plain);
    counts_["  digests compared"]++;
    counts_["  of short sessions"] += seats_[i].line.capacity != positions_ ? 1 : 0;
    counts_["  checkpoints held"] += info_of(i).states > 1 ? info_of(i).states - 1 : 0;
    if (seats_[i].line.tracked && one_in(6)) {
        check_attention(i);
    }
}

void EqualityWalk::check_attention(size_t i) {
    std::vector<double> weights(position(of(i)));
    size_t count = 0;
    REQUIRE(stasis_session_attention(of(i), 0, weights.data(), weights.size(), &count, nullptr) ==
            STASIS_OK);
    const Line &line = seats_[i].line;
    const std::vector<double> plain = plain_of(line).attention_of(line.log);
    REQUIRE(weights == plain);
    counts_["  attention compared"]++;
}

void EqualityWalk::step() {
    static const struct {
        const char *name;
        uint64_t weight;
        Act act;
    } kinds[] = {
        {"append", 16, &EqualityWalk::append_some},
        {"decode", 9, &EqualityWalk::decode},
        {"step", 20, &EqualityWalk::step_many},
        {"generate", 12, &EqualityWalk::generate},
        {"rewind", 10, &EqualityWalk::rewind},
        {"fork", 8, &EqualityWalk::fork_to},
        {"evict", 5, &EqualityWalk::evict},
        {"settings", 3, &EqualityWalk::set},
        {"stopped", 2, &EqualityWalk::append_stopped},
        {"score", 2, &EqualityWalk::score},
        {"save", 4, &EqualityWalk::save},
        {"load", 3, &EqualityWalk::load},
        {"move", 2, &EqualityWalk::move},
        {"move all", 1, &EqualityWalk::move_all},
        {"renew", 3, &EqualityWalk::renew},
    };
    uint64_t number = roll(100);
    const auto *kind = kinds;
    for (; number >= kind->weight; ++kind) {
        number -= kind->weight;
    }
    const size_t i = roll(kSessions);
    suspect_ = i;
    try {
        (this->*kind->act)(i);
        counts_[kind->name]++;
        for (size_t at = 0; at < kSessions; ++at) {
            if (one_in(at == i ? 4 : 24)) {
                check(at);
            }
        }
    } catch (...) {
        std::printf("equality walk: %s failed; operations of session %zu:\n%s", kind->name,
                    suspect_, seats_[suspect_].line.past.c_str());
        throw;
    }
}

} // namespace abi_test

using namespace abi_test;
using stasis::test::from_environment;

namespace {

using Counts = std::map<std::string, size_t>;

void walk(const std::string &name, const std::string &path, Counts &counts) {
    const uint64_t seed = from_environment("STASIS_SEED", stasis::test::test_seed());
    const uint64_t steps =
        from_environment("STASIS_EQUALITY_STEPS", 10000) / 4 / stasis::test::stride();
    std::printf("equality walk: %s, seed %llu\n", name.c_str(),
                static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    EqualityWalk walk(path, seed);
    for (uint64_t step = 0; step < steps; ++step) {
        CAPTURE(seed);
        CAPTURE(step);
        walk.step();
    }
    walk.check_all();
    std::printf("equality walk: %s, %llu operations\n", name.c_str(),
                static_cast<unsigned long long>(steps));
    for (const auto &count : walk.counts()) {
        std::printf("equality walk: %6zu %s\n", count.second, count.first.c_str());
        counts[count.first] += count.second;
    }
}

} // namespace

TEST_CASE("stasis_session_digest: equality walk: whatever is done to sessions, each is a plain run "
          "of its log") {
    Counts counts;
    for (const char *name :
         {"gemma3-text", "llama-gqa-untied", "mistral-window", "qwen3-moe", "qwen3_5-dense",
          "qwen3_5-moe", "gpt-oss", "lfm2", "granite4-h", "gemma4-e", "gemma4-moe",
          "ministral3-yarn", "olmo3", "phi3-longrope"}) {
        walk(name, test_data(std::string("zoo/") + name), counts);
    }
    const Folder folder;
    const std::string path = folder.file("quantized.gguf");
    auto options = sized<stasis_quantize_options>();
    options.type = "Q4_K_M";
    stasis_error error;
    const stasis_status status = stasis_model_quantize(test_data("zoo/qwen3-qknorm").c_str(),
                                                       path.c_str(), &options, nullptr, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    walk("qwen3-qknorm in Q4_K_M", path, counts);
    if (counts["append"] >= 500) { // what a walk is for has happened
        for (const char *what : {"  tokens accepted", "  tokens reused", "  attention compared",
                                 "  checkpoints held", "  of short sessions"}) {
            CHECK_MESSAGE(counts[what] > 0, what);
        }
    }
}
