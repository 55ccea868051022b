// stasis score: the probability of a continuation. Draws nothing and saves nothing.
#include <cstdio>
#include <memory>
#include <numeric>

#include "tools/cli/commands.h"
#include "tools/cli/generation.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct ScoreChoice {
    ModelChoice model;
    LoadChoice loading;
    std::string resume, prompt, text, tokens;
    bool bos = false, special = false, json = false;
};

void report(const stasis_model *model, const std::vector<stasis_token> &tokens,
            const std::vector<double> &likelihoods, uint64_t position, bool json) {
    const double total = std::accumulate(likelihoods.begin(), likelihoods.end(), 0.0);
    if (json) {
        print_json({{"position", position},
                    {"tokens", tokens},
                    {"log_probabilities", likelihoods},
                    {"total", total}});
        return;
    }

    const bool text = (model_info(model).flags & STASIS_MODEL_TOKENIZER) != 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        char line[80];
        std::snprintf(line, sizeof line, "%12.6f  %u", likelihoods[i], tokens[i]);
        const std::string piece =
            text ? detokenize(model, {tokens[i]}, STASIS_DETOKENIZE_PIECE) : std::string();
        const Json quoted = piece;
        print(line +
              (text ? " " + quoted.dump(-1, ' ', false, Json::error_handler_t::replace) : "") +
              "\n");
    }
    char line[80];
    std::snprintf(line, sizeof line, "%12.6f  in all, from position %llu\n", total,
                  static_cast<unsigned long long>(position));
    print(line);
}

int score(const ScoreChoice &choice) {
    Interrupt interrupt;
    const Model model = open_model(choice.model, interrupt.handle());
    const uint32_t special = choice.special ? STASIS_TOKENIZE_SPECIAL : 0;
    const uint32_t bos = choice.bos ? STASIS_TOKENIZE_BOS : 0;
    const Session session =
        choice.resume.empty()
            ? create_session(model.get())
            : load_session(model.get(), choice.resume, interrupt.handle(), choice.loading);

    // The text before the continuation.
    auto options = sized<stasis_run_options>();
    options.cancel = interrupt.handle();
    stasis_error error{};
    if (!choice.prompt.empty() || choice.bos) {
        const std::vector<stasis_token> prompt =
            tokenize(model.get(), choice.prompt, special | bos);
        check(stasis_session_append(session.get(), prompt.data(), prompt.size(), &options, &error),
              error, "--prompt");
    }
    const uint64_t position = position_of(session.get());
    if (position == 0) {
        throw Failure("nothing to go on: give --prompt, --bos or --resume");
    }

    // The continuation.
    const std::vector<stasis_token> tokens = choice.tokens.empty()
                                                 ? tokenize(model.get(), choice.text, special)
                                                 : parse_tokens(choice.tokens, "--tokens");
    std::vector<double> likelihoods(tokens.size());
    check(stasis_session_score(session.get(), tokens.data(), tokens.size(), likelihoods.data(),
                               &options, &error),
          error, "score");
    report(model.get(), tokens, likelihoods, position, choice.json);
    return 0;
}

} // namespace

void add_score(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ScoreChoice>();
    CLI::App *score_app = app.add_subcommand(
        "score", "natural-log probability of each token of a continuation; nothing is kept");
    add_model(*score_app, choice->model);
    add_path(*score_app, "--resume", choice->resume,
             "what goes before: the session in this file; -: from standard input");
    add_load_options(*score_app, choice->loading);
    score_app->add_option("--prompt", choice->prompt, "text that goes before");
    score_app->add_flag("--bos", choice->bos, "begin the prompt with the model's bos token");
    CLI::Option *text = score_app->add_option("--text", choice->text, "the continuation");
    CLI::Option *tokens =
        score_app->add_option("--tokens", choice->tokens, "the continuation as ids: 1,2,3");
    text->excludes(tokens);
    score_app->add_flag("--special", choice->special,
                        "markers in texts become their special tokens");
    add_compute_options(*score_app, choice->model);
    score_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    score_app->callback([=, &exit_code] {
        if (text->count() + tokens->count() == 0) {
            throw Failure("nothing to score: give --text or --tokens");
        }
        exit_code = score(*choice);
    });
}

} // namespace command
