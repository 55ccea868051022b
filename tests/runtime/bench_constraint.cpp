// How long constraints take: compiling a schema of 50 properties, and the mask before each token of
// an instance of it, with a model's own vocabulary, where nothing was found before and where it
// was; what of the time of drawing under them is spent on masks; and masks under a grammar that can
// be read in hundreds of ways:
//     bench_constraint MODEL [FOLDER]
// Writes into the folder what tools/peer/masks.cpp needs to do the same with xgrammar.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "format/state/error.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/matcher.h"
#include "runtime/session/model.h"
#include "runtime/session/session.h"

namespace {

using namespace stasis;
using namespace stasis::constraint;

constexpr unsigned kProperties = 50, kRepeats = 15;

template <typename Work> double microseconds(const Work &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}

std::string name_of(unsigned index) {
    return "property_" + std::to_string(index);
}

std::string schema(bool closed) {
    static constexpr const char *kTypes[] = {
        R"({"type":"string"})",
        R"({"type":"integer","minimum":0,"maximum":1000})",
        R"({"type":"array","items":{"type":"string"},"maxItems":8})",
        R"({"enum":["red","green","blue"]})",
        R"({"type":"string","maxLength":60})",
        R"({"type":"number"})",
        R"({"type":"object","properties":{"x":{"type":"boolean"}}})"};
    std::string text = R"({"type":"object","properties":{)";
    for (unsigned i = 0; i < kProperties; ++i) {
        text += (i > 0 ? ",\"" : "\"") + name_of(i) + "\":" + kTypes[i % std::size(kTypes)];
    }
    return text + (closed ? R"(},"additionalProperties":false})" : "}}");
}

std::string instance() {
    static constexpr const char *kValues[] = {R"("a sentence of some words, as a model writes it")",
                                              "730",
                                              R"(["one", "two \"quoted\"", "three"])",
                                              R"("green")",
                                              R"("forty characters and a few more")",
                                              "-12.5e3",
                                              R"({"x": true})"};
    std::string text = "{";
    for (unsigned i = 0; i < kProperties; ++i) {
        text += (i > 0 ? ", \"" : "\"") + name_of(i) + "\": " + kValues[i % std::size(kValues)];
    }
    return text + "}";
}

void print(const char *what, std::vector<double> times) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (const double each : times) {
        sum += each;
    }
    std::printf("%-28s median %8.1f us, mean %8.1f us, worst %8.1f us\n", what,
                times[times.size() / 2], sum / static_cast<double>(times.size()), times.back());
}

// The pieces of the instance. A model that begins texts with a space begins the first one with it.
std::vector<std::string> instance_pieces(const Model &model) {
    std::vector<std::string> pieces;
    for (const uint32_t token : model.tokenizer->encode(instance(), false, false)) {
        pieces.push_back(model.tokenizer->piece_bytes(token));
    }
    if (pieces[0][0] == ' ') {
        pieces[0].erase(0, 1);
    }
    return pieces;
}

void measure(const Model &model, const std::shared_ptr<const Vocabulary> &vocabulary, bool closed) {
    const std::string text = schema(closed);
    std::shared_ptr<const Automaton> automaton;
    std::vector<double> compiling;
    for (unsigned i = 0; i < kRepeats; ++i) {
        compiling.push_back(microseconds(
            [&] { automaton = compile_constraint(ConstraintKind::json_schema, text); }));
    }
    std::printf("%s, %zu states\n", closed ? "closed object" : "open object",
                automaton->states.size());
    print("compiling", compiling);
    const std::vector<std::string> pieces = instance_pieces(model);
    const Matcher start(automaton, vocabulary);
    for (const bool again : {false, true}) {
        Matcher matcher = start; // shares what the first walk finds
        std::vector<double> masks;
        for (const std::string &piece : pieces) {
            std::shared_ptr<const Mask> mask;
            masks.push_back(microseconds([&] { mask = matcher.mask(); }));
            if (!matcher.take(piece)) {
                std::printf("the instance does not fit at token %zu\n", &piece - pieces.data());
                return;
            }
        }
        print(again ? "masks, found before" : "masks, first time", masks);
    }
}

// Draws under the schema, and says what of the time was spent on masks. A mask is asked for first,
// so that the draw finds it.
void measure_draws(const std::shared_ptr<Model> &model, bool closed) {
    constexpr int kDraws = 400;
    Session session(model, TimelineOptions{});
    session.append_message("user", "Describe an object with all of its properties.", true, {});
    Sampling sampling;
    sampling.temperature = 0.8F;
    session.set_sampling(sampling);
    const double setting = microseconds([&] {
        session.set_constraint({Constraint::kJsonSchema, schema(closed)}, {});
    });
    std::vector<double> masks, draws;
    for (int i = 0; i < kDraws; ++i) {
        masks.push_back(microseconds([&] { session.mask({}); }));
        draws.push_back(microseconds([&] { session.decode(); }));
    }
    double in_masks = 0, in_draws = 0;
    for (int i = 0; i < kDraws; ++i) {
        in_masks += masks[static_cast<size_t>(i)];
        in_draws += draws[static_cast<size_t>(i)];
    }
    std::printf("drawing under it: set in %.2f ms, masks are %.2f %% of the time of %d tokens\n",
                setting / 1000, 100 * in_masks / (in_masks + in_draws), kDraws);
    print("masks, as drawn", masks);
    print("draws", draws);
}

// The first masks after ever more letters, each of which opens ways to go on.
void measure_ambiguous(const std::shared_ptr<const Vocabulary> &vocabulary) {
    const auto automaton = compile_constraint(ConstraintKind::grammar,
                                              "root ::= s\ns ::= [^0-9] s \"x\"? | [^0-9] s? s?");
    for (const size_t letters : {size_t{20}, size_t{100}, size_t{200}}) {
        std::vector<double> masks;
        for (unsigned repeat = 0; repeat < kRepeats; ++repeat) {
            Matcher matcher(automaton, vocabulary);
            matcher.take(std::string(letters, 'a'));
            masks.push_back(microseconds([&] { matcher.mask(); }));
        }
        std::printf("ambiguous grammar, after %zu letters\n", letters);
        print("masks, first time", masks);
    }
}

void write_strings(const std::string &path, const std::vector<std::string> &strings) {
    std::ofstream file(path, std::ios::binary);
    for (const std::string &each : strings) {
        const auto length = static_cast<uint32_t>(each.size());
        file.write(reinterpret_cast<const char *>(&length), sizeof length) << each;
    }
}

// What tools/peer/masks.cpp reads.
void write_folder(const std::string &folder, const Model &model,
                  const std::shared_ptr<const Vocabulary> &vocabulary,
                  const std::vector<std::string> &all_pieces) {
    write_strings(folder + "/vocabulary", all_pieces);
    const std::vector<std::string> pieces = instance_pieces(model);
    write_strings(folder + "/tokens", pieces);
    const std::vector<uint32_t> &ends = model.config.end_tokens;
    std::ofstream(folder + "/ends", std::ios::binary)
        .write(reinterpret_cast<const char *>(ends.data()),
               static_cast<std::streamsize>(ends.size() * sizeof(uint32_t)));
    for (const bool closed : {true, false}) {
        const std::string name = folder + (closed ? "/closed" : "/open");
        std::ofstream(name + ".json") << schema(closed);
        std::ofstream masks(name + ".masks", std::ios::binary);
        Matcher matcher(compile_constraint(ConstraintKind::json_schema, schema(closed)),
                        vocabulary);
        for (const std::string &piece : pieces) {
            const auto mask = matcher.mask(); // the peer has words of 32 bits, in the same order
            masks.write(reinterpret_cast<const char *>(mask->data()),
                        static_cast<std::streamsize>((vocabulary->size() + 31) / 32 * 4));
            matcher.take(piece);
        }
    }
}

int run(const char *path, const char *folder) {
    const std::shared_ptr<Model> model = open_model(path, ModelOptions{});
    std::vector<std::string> pieces;
    for (uint32_t token = 0; token < model->tokenizer->size(); ++token) {
        pieces.push_back(
            model->tokenizer->is_special(token) ? "" : model->tokenizer->piece_bytes(token));
    }
    std::shared_ptr<const Vocabulary> vocabulary;
    const double building = microseconds(
        [&] { vocabulary = std::make_shared<const Vocabulary>(pieces, model->config.end_tokens); });
    std::printf("%u tokens, %zu nodes, made in %.1f ms\n", vocabulary->size(),
                vocabulary->nodes().size(), building / 1000);
    if (folder != nullptr) {
        write_folder(folder, *model, vocabulary, pieces);
    }
    measure(*model, vocabulary, true);
    measure_draws(model, true);
    measure(*model, vocabulary, false);
    measure_draws(model, false);
    measure_ambiguous(vocabulary);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: bench_constraint MODEL [FOLDER]\n");
        return 2;
    }
    try {
        return run(argv[1], argc == 3 ? argv[2] : nullptr);
    } catch (const stasis::Error &error) {
        std::fprintf(stderr, "bench_constraint: %s\n", error.what());
        return 1;
    }
}
