// What sets of allowed tokens take in a file, and the time to save and load them: a session of
// thousands of drawn tokens, each under its own set, for masks of constraints over a model's
// vocabulary and over one of 262144 tokens made of it, and for sets drawn at random:
//     bench_token_sets MODEL
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "format/reader.h"
#include "format/state/token_set.h"
#include "format/writer.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/matcher.h"
#include "runtime/session/model.h"

namespace {

using namespace stasis;
using namespace stasis::constraint;
using Sets = std::vector<std::shared_ptr<const std::string>>; // as settings hold them

constexpr uint32_t kLarge = 262144;
constexpr size_t kTokens = 2000;

template <typename Work> double milliseconds(const Work &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
}

// A session without keys and values whose every token was drawn under its own settings.
State state_of(const Sets &sets, size_t count, uint32_t vocabulary) {
    State state;
    state.contract = {1, 1, 3, 0, 0};
    state.model.architecture = "none";
    state.layers = 1;
    state.kv_heads = state.head_dim = state.hidden_size = 1;
    state.vocabulary = vocabulary;
    state.page_positions = 32;
    state.groups = {{0, {0}}};
    state.model.attention.resize(1);
    state.model.mlp.resize(1);
    state.capacity = sets.size();
    for (size_t i = 0; i < count; ++i) {
        Sampling sampling;
        sampling.v3.allowed.value = sets[i];
        state.samplings.push_back(sampling);
        state.log.push_back({1, static_cast<uint16_t>(i), TokenSource::sampled, 0});
    }
    state.pages.emplace_back();
    for (size_t at = 0; at < count; at += 32) {
        state.pages[0].push_back({static_cast<uint32_t>(std::min<size_t>(32, count - at)), {}});
    }
    state.hidden = {0};
    state.digest = state_digest(state);
    return state;
}

State without_sets(State state) {
    for (TokenEntry &entry : state.log) {
        entry.sampling = 0;
    }
    state.samplings.resize(1);
    state.samplings[0].v3 = {};
    state.contract.sampling = 1;
    return state;
}

struct Scratch {
    std::string path;
    Scratch() {
        char name[] = "/tmp/bench_token_sets.XXXXXX";
        path = std::string(mkdtemp(name)) + "/s";
    }
    ~Scratch() { std::filesystem::remove_all(std::filesystem::path(path).parent_path()); }
    uint64_t bytes() const { return std::filesystem::file_size(path); }
};

void measure(const std::string &what, const Sets &sets, uint32_t vocabulary) {
    using namespace format;
    SaveOptions options;
    options.keep = Keep::none;
    double held = 0;
    for (const auto &set : sets) {
        held += static_cast<double>(set->size());
    }
    const auto count = static_cast<double>(sets.size());
    const State state = state_of(sets, sets.size(), vocabulary);
    const Scratch plain, whole, turns;
    save(without_sets(state), plain.path, options);
    const double saving = milliseconds([&] { save(state, whole.path, options); });
    State found;
    const double loading = milliseconds([&] { found = load(whole.path, {}); });
    if (found.samplings != state.samplings) {
        std::printf("%s: came back otherwise\n", what.c_str());
        std::exit(1);
    }
    // The same in commits of 100 tokens.
    double commit = 0;
    std::shared_ptr<const Contents> known;
    for (size_t end = std::min<size_t>(100, sets.size());; end = std::min(end + 100, sets.size())) {
        State part = state_of(sets, end, vocabulary);
        options.known = known;
        commit = milliseconds([&] { known = save(std::move(part), turns.path, options); });
        if (end == sets.size()) {
            break;
        }
    }
    const auto more = [&](const Scratch &file) {
        return (static_cast<double>(file.bytes()) - static_cast<double>(plain.bytes())) / count;
    };
    std::printf("%-40s %6zu %9.0f %9.1f %9.1f %8.0f %8.0f %9.1f\n", what.c_str(), sets.size(),
                held / count, more(whole), more(turns), 1e3 * saving / count, 1e3 * loading / count,
                commit);
}

// Masks before each token of texts that the constraint allows, drawn at random among them.
Sets masks_of(ConstraintKind kind, const std::string &text,
              const std::shared_ptr<const Vocabulary> &vocabulary,
              const std::vector<std::string> &pieces) {
    const auto size = static_cast<uint32_t>(pieces.size());
    const Matcher start(compile_constraint(kind, text), vocabulary);
    std::mt19937 random(7);
    Sets sets;
    std::set<std::string> different;
    for (size_t drawn = 0; drawn < 4 * kTokens && different.size() < kTokens;) {
        Matcher matcher = start;
        for (size_t i = 0; i < 400 && drawn < 4 * kTokens; ++i, ++drawn) {
            const std::shared_ptr<const Mask> mask = matcher.mask();
            const TokenRuns runs = runs_of_bits(mask->data(), size);
            if (runs.empty()) {
                break;
            }
            if (std::string set = encode_tokens(runs, size); different.insert(set).second) {
                sets.push_back(std::make_shared<const std::string>(std::move(set)));
            }
            const size_t run = random() % (runs.size() / 2) * 2;
            const uint32_t token = runs[run] + random() % (runs[run + 1] - runs[run]);
            if (pieces[token].empty() || !matcher.take(pieces[token])) {
                break; // the end of a text
            }
        }
    }
    return sets;
}

TokenRuns random_runs(std::mt19937 &random, double density, uint32_t vocabulary) {
    std::vector<uint64_t> bits(vocabulary / 64);
    std::bernoulli_distribution in(density);
    for (uint32_t token = 0; token < vocabulary; ++token) {
        bits[token / 64] |= uint64_t{in(random)} << token % 64;
    }
    bits[0] |= 1;
    return runs_of_bits(bits.data(), vocabulary);
}

// Sets that differ from the one before by so many tokens, of any density; 0: each by itself.
Sets random_sets(double density, uint32_t changes, size_t count) {
    std::mt19937 random(11);
    Sets sets;
    std::string set;
    for (size_t i = 0; i < count; ++i) {
        if (i == 0 || changes == 0) {
            set = encode_tokens(random_runs(random, density, kLarge), kLarge);
        }
        for (uint32_t change = 0; change < changes; ++change) {
            const uint32_t token = random() % kLarge;
            set = changed_tokens(set, {token, token + 1}, kLarge);
        }
        sets.push_back(std::make_shared<const std::string>(set));
    }
    return sets;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: bench_token_sets MODEL\n");
        return 2;
    }
    const std::shared_ptr<Model> model = open_model(std::string(argv[1]), ModelOptions{});
    std::vector<std::string> pieces;
    for (uint32_t token = 0; token < model->config.vocabulary; ++token) {
        pieces.push_back(
            model->tokenizer->is_special(token) ? "" : model->tokenizer->piece_bytes(token));
    }
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("%-40s %6s %9s %9s %9s %8s %8s %9s\n", "", "sets", "held", "one save", "commits",
                "save us", "load us", "commit ms");
    static constexpr char kSchema[] =
        R"({"type":"object","properties":{"name":{"type":"string","maxLength":60},)"
        R"("age":{"type":"integer","minimum":0,"maximum":1000},"tags":{"type":"array","items":)"
        R"({"type":"string"}},"colour":{"enum":["red","green","blue"]},"size":{"type":"number"}}})";
    for (const bool large : {false, true}) {
        std::mt19937 random(3);
        const size_t own = pieces.size();
        while (large && pieces.size() < kLarge) { // pairs of the model's own
            pieces.push_back(pieces[random() % own] + pieces[random() % own]);
        }
        const auto size = static_cast<uint32_t>(pieces.size());
        const auto vocabulary =
            std::make_shared<const Vocabulary>(pieces, model->config.end_tokens);
        const auto of = [&](const char *name, ConstraintKind kind, const char *text) {
            measure(std::string(name) + (large ? ", 262144" : ""),
                    masks_of(kind, text, vocabulary, pieces), size);
        };
        of("JSON schema", ConstraintKind::json_schema, kSchema);
        of("any JSON", ConstraintKind::json, "");
        of("regex [a-z ]{1,300}", ConstraintKind::regex, "[a-z ]{1,300}");
        of("regex words", ConstraintKind::regex, "([A-Z]?[a-z]{1,12}[ ,.]){4,90}");
        of("grammar", ConstraintKind::grammar,
           "root ::= item (\",\" item)*\nitem ::= [a-zA-Z]{1,20} | \"(\" root \")\" | [0-9]+");
    }
    for (const double density : {0.001, 0.05, 0.5, 0.95}) {
        for (const uint32_t changes : {10U, 300U}) {
            char what[80];
            std::snprintf(what, sizeof what, "random, %g of 262144, %u change", density, changes);
            measure(what, random_sets(density, changes, kTokens), kLarge);
        }
    }
    for (const double density : {0.001, 0.01, 0.04, 0.1, 0.5}) {
        char what[80];
        std::snprintf(what, sizeof what, "random, %g of 262144, each anew", density);
        measure(what, random_sets(density, 0, 300), kLarge);
    }
    return 0;
}
