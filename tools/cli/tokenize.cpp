// stasis tokenize, detokenize and template: converts text to tokens and back, and renders a
// conversation through the model's chat template.
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/generation.h"
#include "tools/cli/model.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct TextChoice {
    ModelChoice model;
    std::string text, tokens, messages;
    bool bos = false, special = false, json = false;
};

int run_tokenize(const TextChoice &choice) {
    const Model model = open_model(choice.model, nullptr);
    const std::vector<stasis_token> tokens = tokenize(
        model.get(), choice.text,
        (choice.bos ? STASIS_TOKENIZE_BOS : 0) | (choice.special ? STASIS_TOKENIZE_SPECIAL : 0));
    std::vector<std::string> pieces;
    for (const stasis_token token : tokens) {
        pieces.push_back(detokenize(model.get(), {token}, STASIS_DETOKENIZE_PIECE));
    }
    if (choice.json) {
        print_json({{"tokens", tokens}, {"pieces", pieces}});
        return 0;
    }
    std::string line;
    for (const std::string &piece : pieces) {
        line += (line.empty() ? "" : " | ") + visible(piece);
    }
    print(join_tokens(tokens) + "\n" + line + "\n");
    return 0;
}

int run_detokenize(const TextChoice &choice) {
    const std::vector<stasis_token> tokens = parse_tokens(choice.tokens, "TOKENS");
    const Model model = open_model(choice.model, nullptr);
    const std::string text = detokenize(model.get(), tokens, 0);
    if (choice.json) {
        print_json({{"text", text}});
    } else {
        print(text + "\n");
    }
    return 0;
}

std::vector<std::pair<std::string, std::string>> read_messages(const std::string &path) {
    std::vector<std::pair<std::string, std::string>> messages;
    try {
        for (const Json &message : Json::parse(read_file(path))) {
            messages.emplace_back(message.at("role").get<std::string>(),
                                  message.at("content").get<std::string>());
        }
    } catch (const Json::exception &error) {
        throw Failure(path + ": expected a list of objects with role and content: message " +
                      std::to_string(messages.size() + 1) + ": " + error.what());
    }
    return messages;
}

std::vector<stasis_token> session_tokens(const stasis_session *session) {
    return fetch<stasis_token>(
        [&](stasis_token *tokens, size_t capacity, size_t *count, stasis_error *error) {
            return stasis_session_tokens(session, 0, tokens, nullptr, capacity, count, error);
        },
        "reading tokens");
}

// Returns the tokens that a chat of these messages appends. Markers in their texts are plain text
// in a chat; the rendered conversation does not distinguish them from the template's own.
std::vector<stasis_token> chat_tokens(stasis_model *model,
                                      const std::vector<stasis_message> &messages, bool reply) {
    const Session session = create_session(model);
    Progress progress("appending");
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.progress = Progress::report;
    options.progress_user = &progress;
    for (size_t i = 0; i < messages.size(); ++i) {
        const stasis_message &message = messages[i];
        const bool last = i + 1 == messages.size();
        stasis_error error{};
        check(stasis_session_append_message(
                  session.get(), message.role, message.text, message.length,
                  last && reply ? STASIS_MESSAGE_REPLY : 0, &options, &error),
              error, "message " + std::to_string(i + 1));
    }
    return session_tokens(session.get());
}

// Renders a conversation with tools and switches: an object, as stasis_chat.h describes it.
int run_chat_template(const TextChoice &choice, const std::string &conversation) {
    const Json messages = Json::parse(conversation).value("messages", Json::array());
    const bool waits = !messages.is_array() || messages.empty() || !messages.back().is_object() ||
                       messages.back().value("role", Json()) != "assistant";
    const uint32_t flags = waits ? STASIS_CHAT_REPLY : 0;
    const Model model = open_model(choice.model, nullptr);
    const std::string text = fetch_text(
        [&](char *buffer, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_model_render_chat(model.get(), conversation.data(), conversation.size(),
                                            flags, buffer, capacity, length, error);
        },
        choice.messages);
    if (!choice.json) {
        print(text + "\n");
        return 0;
    }
    const Session session = create_session(model.get());
    stasis_error error{};
    check(stasis_session_append_chat(session.get(), conversation.data(), conversation.size(), flags,
                                     nullptr, nullptr, &error),
          error, choice.messages);
    print_json({{"text", text}, {"tokens", session_tokens(session.get())}});
    return 0;
}

int run_template(const TextChoice &choice) {
    const std::string given = read_file(choice.messages);
    if (const Json json = Json::parse(given, nullptr, false); json.is_object()) {
        return run_chat_template(choice, given);
    }
    const auto conversation = read_messages(choice.messages);
    const Model model = open_model(choice.model, nullptr);
    std::vector<stasis_message> messages;
    for (const auto &[role, text] : conversation) {
        auto message = sized<stasis_message>();
        message.role = role.c_str();
        message.text = text.data();
        message.length = text.size();
        messages.push_back(message);
    }
    // A conversation whose last message is no reply is rendered with the generation prompt.
    const bool waits = !conversation.empty() && conversation.back().first != "assistant";
    const std::string text = fetch_text(
        [&](char *buffer, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_model_render(model.get(), messages.data(), sizeof(stasis_message),
                                       messages.size(), waits ? STASIS_RENDER_REPLY : 0, buffer,
                                       capacity, length, error);
        },
        choice.messages);
    if (choice.json) {
        print_json({{"text", text}, {"tokens", chat_tokens(model.get(), messages, waits)}});
    } else {
        print(text + "\n");
    }
    return 0;
}

} // namespace

void add_tokenize(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<TextChoice>();
    const auto json = [&](CLI::App *sub) {
        sub->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    };

    CLI::App *tokenize_app = app.add_subcommand("tokenize", "text to token ids");
    add_model(*tokenize_app, choice->model);
    tokenize_app->add_option("TEXT", choice->text, "the text")->required();
    tokenize_app->add_flag("--bos", choice->bos, "begin with the bos token");
    tokenize_app->add_flag("--special", choice->special,
                           "markers in the text become their special tokens");
    json(tokenize_app);
    tokenize_app->callback([=, &exit_code] { exit_code = run_tokenize(*choice); });

    CLI::App *detokenize_app = app.add_subcommand("detokenize", "token ids to text");
    add_model(*detokenize_app, choice->model);
    detokenize_app->add_option("TOKENS", choice->tokens, "ids: 1,2,3")->required();
    json(detokenize_app);
    detokenize_app->callback([=, &exit_code] { exit_code = run_detokenize(*choice); });

    CLI::App *template_app =
        app.add_subcommand("template", "a conversation as the model's chat template renders it");
    template_app->footer(
        "The prompt for a reply follows unless the last message is one. With --json: text, "
        "and as tokens what a\nchat of these messages appends (markers in them "
        "stay plain text); for that the model computes them.\n");
    add_model(*template_app, choice->model);
    template_app
        ->add_option("--messages", choice->messages,
                     "JSON file: a list of objects with role and content")
        ->required();
    add_template_option(*template_app, choice->model);
    json(template_app);
    template_app->callback([=, &exit_code] { exit_code = run_template(*choice); });
}

} // namespace command
