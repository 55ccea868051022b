// stasis embed: texts as vectors, one JSON object on a line for each. Saves nothing.
#include <charconv>
#include <iostream>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/generation.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

constexpr size_t kLinesMost = 256; // of standard input, for one call

struct EmbedChoice {
    ModelChoice model;
    std::vector<std::string> texts;
    std::string tokens, prompt;
    uint32_t pooling = 0, chunk = 0;
};

size_t dimension_of(const stasis_model *model) {
    auto info = sized<stasis_embed_info>();
    stasis_error error{};
    check(stasis_model_get_embed_info(model, &info, &error), error, "embed");
    return info.dimension;
}

class Embedder {
  public:
    Embedder(const EmbedChoice &choice, const stasis_model *model, stasis_cancel *cancel)
        : model_(model), dimension_(dimension_of(model)) {
        stasis_embed_options_init(&options_, sizeof options_);
        options_.prompt = choice.prompt.empty() ? nullptr : choice.prompt.c_str();
        options_.pooling = choice.pooling;
        options_.chunk = choice.chunk;
        options_.cancel = cancel;
    }

    void print_tokens(const std::vector<stasis_token> &tokens) {
        auto input = sized<stasis_embed_input>();
        input.tokens = tokens.data();
        input.token_count = tokens.size();
        print_inputs({input}, "--tokens");
    }

    void print_texts(const std::vector<std::string> &texts, const std::string &where) {
        std::vector<stasis_embed_input> inputs;
        for (const std::string &text : texts) {
            inputs.push_back(sized<stasis_embed_input>());
            inputs.back().text = text.data();
            inputs.back().length = text.size();
        }
        print_inputs(inputs, where);
    }

  private:
    void print_inputs(const std::vector<stasis_embed_input> &inputs, const std::string &where) {
        std::vector<float> vectors(inputs.size() * dimension_);
        size_t count = 0;
        stasis_error error{};
        Progress progress("embedding");
        options_.progress = Progress::report;
        options_.progress_user = &progress;
        check(stasis_model_embed(model_, inputs.data(), sizeof(stasis_embed_input), inputs.size(),
                                 &options_, vectors.data(), vectors.size(), &count, &error),
              error, where);
        for (size_t i = 0; i < inputs.size(); ++i) {
            print_vector(vectors.data() + i * dimension_);
        }
    }

    // Writes each number as the shortest that reads back as the same f32.
    void print_vector(const float *vector) {
        std::string line = "{\"index\":" + std::to_string(printed_++) + ",\"embedding\":[";
        for (size_t i = 0; i < dimension_; ++i) {
            char digits[32];
            const auto end = std::to_chars(digits, digits + sizeof digits, vector[i]);
            line += i == 0 ? "" : ",";
            line.append(digits, end.ptr);
        }
        print(line + "]}\n");
    }

    const stasis_model *model_;
    const size_t dimension_;
    stasis_embed_options options_{};
    size_t printed_ = 0;
};

// Embeds lines of standard input, some at a time.
void embed_lines(Embedder &embedder) {
    size_t first = 1;
    std::vector<std::string> lines;
    const auto flush = [&] {
        embedder.print_texts(lines, "standard input from line " + std::to_string(first) + " on");
        first += lines.size();
        lines.clear();
    };
    for (std::string line; std::getline(std::cin, line);) {
        lines.push_back(line);
        if (lines.size() == kLinesMost) {
            flush();
        }
    }
    if (std::cin.bad()) {
        throw Failure("standard input cannot be read");
    }
    flush();
}

int embed(const EmbedChoice &choice) {
    Interrupt interrupt;
    const Model model = open_model(choice.model, interrupt.handle());
    Embedder embedder(choice, model.get(), interrupt.handle());
    if (!choice.tokens.empty()) {
        embedder.print_tokens(parse_tokens(choice.tokens, "--tokens"));
    } else if (!choice.texts.empty()) {
        embedder.print_texts(choice.texts, choice.model.path);
    } else {
        embed_lines(embedder);
    }
    return 0;
}

} // namespace

void add_embed(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<EmbedChoice>();
    CLI::App *embed_app =
        app.add_subcommand("embed", "texts as vectors: a line of JSON for each; nothing is kept");
    add_model(*embed_app, choice->model);
    CLI::Option *texts = embed_app->add_option("TEXT", choice->texts,
                                               "the texts (default: the lines of standard input)");
    embed_app->add_option("--tokens", choice->tokens, "one input as ids, with nothing added: 1,2,3")
        ->excludes(texts);
    embed_app->add_option("--prompt", choice->prompt,
                          "one of the prompts that the model's files name (query, ...)");
    add_word(*embed_app, "--pooling", choice->pooling,
             "of hidden states (default: as the model's files say)",
             {{"last", STASIS_POOLING_LAST}, {"mean", STASIS_POOLING_MEAN}});
    add_count(*embed_app, "--chunk", choice->chunk, "positions computed together");
    add_compute_options(*embed_app, choice->model);
    embed_app->callback([=, &exit_code] { exit_code = embed(*choice); });
}

} // namespace command
