// stasis chat: a conversation, one user turn on each line of stdin, saved after every turn; with
// tools, the result of each call is a line too. At a terminal it is held with people. Must not know
// chat templates.
#include <filesystem>
#include <memory>

#include "tools/cli/chat/kept.h"
#include "tools/cli/chat/people.h"
#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

using chat::ChatChoice;
using chat::MessageInput;
using chat::Past;
using chat::Talk;

// Throws Failure unless the model has a tokenizer and, for turns one by one, a chat template; what
// is rendered whole says itself what it lacks.
void check_chats(const stasis_model *model, const std::string &path, bool structured) {
    const stasis_model_info info = model_info(model);
    if ((info.flags & STASIS_MODEL_TOKENIZER) == 0) {
        throw Failure(path + ": no chat: the model has no tokenizer");
    }
    if (structured) {
        return;
    }
    // A template of no known family has no name and may still render turns.
    const stasis_message turn = {sizeof turn, 0, "user", "", 0};
    size_t length = 0;
    if (stasis_model_render(model, &turn, sizeof turn, 1, STASIS_RENDER_REPLY, nullptr, 0, &length,
                            nullptr) == STASIS_UNSUPPORTED) {
        throw Failure(path + ": no chat: the model's files have no chat template that is known; "
                             "name one with --chat-template");
    }
}

// Throws Failure if a system text has no place, because the session has begun already.
void check_not_begun(const stasis_session *session, const std::string &path) {
    auto info = sized<stasis_session_info>();
    stasis_error error{};
    check(stasis_session_get_info(session, &info, &error), error, "session");
    if (info.position > 0 || info.pending_bytes > 0) {
        throw Failure("--system: the session in " + path + " has begun already");
    }
}

// Says that a turn was cut. Throws Failure where lines would follow that nobody typed after it.
void note_cut(Talk::Outcome outcome, const char *part) {
    if (outcome == Talk::Outcome::not_taken) {
        say(std::string("[interrupted: ") + part + " not taken]");
    }
    if (outcome != Talk::Outcome::whole && !input_is_terminal()) {
        throw Failure("interrupted: the turns that follow were not read");
    }
}

// Plays the lines of standard input, each a user turn.
void play_lines(Talk &talk, MessageInput &input) {
    if (talk.waits()) {
        note_cut(talk.go_on(), "the results were");
    }
    for (chat::Message line = input.read(); line.end == chat::Message::End::text;
         line = input.read()) {
        if (line.text.empty()) {
            continue;
        }
        note_cut(talk.play_turn(line.text), "this turn was");
    }
}

// Refuses what cannot work before the model is opened. Returns whether the session is resumed.
bool check_session(const ChatChoice &choice) {
    if (is_stream(choice.session)) {
        throw Failure("--session: a conversation reads its turns from standard input and cannot "
                      "keep its session there");
    }
    if (choice.session.empty()) {
        return false;
    }
    check_target("--session", choice.session, Special::refused);
    return !choice.saving.replace && std::filesystem::exists(choice.session);
}

int hold_chat(const ChatChoice &choice) {
    const bool resume = check_session(choice);
    const std::string tools = choice.tools.empty() ? "" : read_tools(choice.tools);

    // Open the model and the session.
    const Model model = open_model(choice.model, nullptr);
    check_chats(model.get(), choice.model.path, choice.structured());
    std::unique_ptr<Conversation> conversation;
    if (choice.structured()) {
        conversation = std::make_unique<Conversation>(
            model.get(), tools, static_cast<Conversation::Thinking>(choice.thinking));
    }
    const Session session = resume
                                ? load_session(model.get(), choice.session, nullptr, choice.loading)
                                : create_session(model.get());

    // Apply settings. A resumed session keeps those of its file unless the command line gives any.
    const bool with_people = input_is_terminal() && !choice.json;
    Past past = resume && with_people ? chat::read_past(choice.session) : Past();
    if (resume && conversation != nullptr) {
        past.turns = chat::restore_conversation(session.get(), choice.session, *conversation);
        past.system.clear(); // it is one of the messages
    } else if (resume && chat::keeps_conversation(session.get())) {
        say("[held with --tools or --thinking before; what is said without them is not among its "
            "messages, and then they cannot be taken up again]");
    }
    if (!resume || !choice.generation.given.empty()) {
        past.sampling = copy_sampling(chosen_sampling(choice.generation, model.get()));
        past.sampling.apply(session.get());
    }
    apply_constraint(session.get(), choice.generation.constraint, nullptr);
    apply_draft(session.get(), choice.generation, choice.model, model.get(), nullptr);

    std::unique_ptr<MessageInput> input = std::make_unique<MessageInput>();
    if (with_people) {
        input =
            std::make_unique<MessageInput>(choice.no_history ? "" : chat::History::default_path());
    }
    Talk talk(choice, session.get(), conversation.get(), *input, std::move(past));
    if (!choice.system.empty()) {
        check_not_begun(session.get(), choice.session);
        talk.begin_with_system(choice.system);
    }
    if (with_people) {
        chat::People(choice, model.get(), talk, *input).converse();
    } else {
        play_lines(talk, *input);
    }
    return 0;
}

} // namespace

void add_chat(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ChatChoice>();
    CLI::App *chat_app = app.add_subcommand(
        "chat", "a conversation: one user turn a line from stdin; /help at a terminal");
    chat_app->footer(
        "At a terminal lines are edited, and those that begin with a slash are commands: /help "
        "lists them.\nEmpty lines are skipped. With --json: one object a line for each reply, with "
        "role (assistant), text,\ntokens, position, digest, cut (null, or limit, full or interrupt "
        "where -n, the session's capacity or Ctrl-C\nended it), seconds, and with a draft drafted, "
        "accepted, passes, draft_failures.\nWith --tools a reply is shown when it has ended, and "
        "each call in it as a JSON line with name and\narguments; the next line is the call's "
        "result, and after the last result the model goes on.\n--json then adds message: content, "
        "reasoning_content and tool_calls.\nCtrl-C ends a reply; where turns do not come from a "
        "terminal, it ends the conversation (exit code 2).\nWhat another process has saved in the "
        "file meanwhile is not overwritten: the save is refused.\nA resumed session keeps the "
        "sampling settings of its file unless any are given; else tokens are drawn as\nthe "
        "model's files recommend, but for what is given.\n");
    add_model(*chat_app, choice->model);
    choice->generation.tokens_max = 256;
    add_path(*chat_app, "--session", choice->session,
             "save here after every turn; resumed from if the file exists");
    add_load_options(*chat_app, choice->loading);
    chat_app->add_option("--system", choice->system, "system text of a new conversation");
    add_path(*chat_app, "--tools", choice->tools,
             "JSON list of functions that the model may call; you give their results");
    add_word(*chat_app, "--thinking", choice->thinking,
             "whether the model thinks first, if its template has a switch for that",
             {{"on", Conversation::on}, {"off", Conversation::off}});
    add_generation_options(*chat_app, choice->generation);
    add_save_options(*chat_app, choice->saving);
    add_compute_options(*chat_app, choice->model);
    add_template_option(*chat_app, choice->model);
    chat_app->add_flag("--no-history", choice->no_history,
                       "do not keep what is typed at a terminal for the next conversation");
    chat_app->add_flag("--json", choice->json, "one JSON object a turn on stdout");
    chat_app->callback([=, &exit_code] { exit_code = hold_chat(*choice); });
}

} // namespace command
