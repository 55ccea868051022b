// stasis chat: a conversation, one user turn on each line of stdin, saved after every turn; with
// tools, the result of each call is a line too. Passes roles and texts to the library; must not
// know chat templates.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/conversation.h"
#include "tools/cli/generation.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct ChatChoice {
    ModelChoice model;
    GenerationChoice generation;
    SaveChoice saving;
    LoadChoice loading;
    std::string session, system, tools;
    uint32_t thinking = Conversation::as_it_is;
    bool json = false;

    // Whether the messages are held as JSON and rendered whole.
    bool structured() const { return !tools.empty() || thinking != Conversation::as_it_is; }
};

// Calls `append` with run options and an error. Returns false if it was cancelled; the session has
// then taken nothing.
template <typename Append>
bool append_with(const Append &append, uint32_t chunk, stasis_cancel *cancel,
                 const std::string &where) {
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.chunk = chunk;
    options.cancel = cancel;
    Progress progress("prefill");
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    const stasis_status status = append(&options, &error);
    if (status == STASIS_CANCELLED) {
        return false;
    }
    check(status, error, where);
    return true;
}

bool append_message(stasis_session *session, const char *role, const std::string &text,
                    uint32_t flags, uint32_t chunk, stasis_cancel *cancel) {
    return append_with(
        [&](const stasis_run_options *options, stasis_error *error) {
            return stasis_session_append_message(session, role, text.data(), text.size(), flags,
                                                 options, error);
        },
        chunk, cancel, std::string(role) + " turn");
}

// Why a reply ends before the model ended it.
enum class Cut { no, limit, full, interrupt };

Cut cut_of(const Reply &reply, uint64_t tokens_max) {
    if (reply.stop_reason == STASIS_STOP_CANCELLED) {
        return Cut::interrupt;
    }
    if (reply.stop_reason != STASIS_STOP_LENGTH || tokens_max == 0) {
        return Cut::no;
    }
    return reply.tokens.size() >= tokens_max ? Cut::limit : Cut::full;
}

Json cut_json(Cut cut) {
    static constexpr const char *kNames[] = {nullptr, "limit", "full", "interrupt"};
    const char *name = kNames[static_cast<size_t>(cut)];
    return name != nullptr ? Json(name) : Json();
}

void say_cut(Cut cut, size_t tokens) {
    const std::string after = "[cut after " + std::to_string(tokens) + " tokens: ";
    if (cut == Cut::limit) {
        say(after + "-n sets the limit]");
    } else if (cut == Cut::full) {
        say("[cut: the session is full]");
    } else if (cut == Cut::interrupt) {
        say(after + "interrupted]");
    }
}

// Returns the next line of standard input, after a prompt if that is a terminal; nothing at its
// end.
std::optional<std::string> read_line(const std::string &prompt, bool terminal) {
    if (terminal) {
        std::fputs(visible(prompt).c_str(), stderr);
    }
    std::string line;
    if (!std::getline(std::cin, line)) {
        if (terminal) {
            say(""); // the shell's prompt belongs on a line of its own
        }
        return std::nullopt;
    }
    if (!line.empty() && line.back() == '\r') {
        line.pop_back();
    }
    return line;
}

// A conversation that goes on.
class Talk {
  public:
    // `conversation`: the messages, if the choice is structured(); null: the log alone has them.
    Talk(const ChatChoice &choice, stasis_session *session, Conversation *conversation)
        : choice_(choice), saving_(choice.saving), session_(session), conversation_(conversation),
          terminal_(input_is_terminal() && !choice.json) {}

    // Plays user turns until the end of the input.
    void play();

  private:
    bool play_turn(const std::string &line);
    bool play_reply(const std::string &line);
    bool append(const std::string &line, stasis_cancel *cancel);
    bool read_results();
    void show(const Reply &reply, Cut cut, double seconds, const Json &message) const;
    void save();

    const ChatChoice &choice_;
    SaveChoice saving_;
    stasis_session *session_;
    Conversation *conversation_;
    bool terminal_;
    std::vector<ToolCall> calls_; // of the last reply
};

void Talk::play() {
    while (const auto line = read_line("> ", terminal_)) {
        if (!line->empty() && !play_turn(*line) && !input_is_terminal()) {
            throw Failure("interrupted: the turns that follow were not read");
        }
    }
}

// Plays one user turn: its reply, and while a reply has calls, their results and the next one.
// Returns false if Ctrl-C ended it.
bool Talk::play_turn(const std::string &line) {
    const size_t before = conversation_ != nullptr ? conversation_->size() : 0;
    if (conversation_ != nullptr) {
        conversation_->add({{"role", "user"}, {"content", line}});
    }
    bool whole = play_reply(line);
    save();
    while (whole && !calls_.empty() && read_results()) {
        whole = play_reply("");
        save();
    }
    if (!whole && conversation_ != nullptr && conversation_->size() == before + 1) {
        conversation_->drop_to(before); // it was not taken
    }
    return whole;
}

// Asks for the result of each call. Returns false at the end of a terminal's input.
bool Talk::read_results() {
    for (const ToolCall &call : calls_) {
        const auto result = read_line("result of " + call.name + "> ", terminal_);
        if (!result && !input_is_terminal()) {
            throw Failure("standard input ended before the result of " + call.name);
        }
        if (!result) {
            return false;
        }
        conversation_->add({{"role", "tool"},
                            {"tool_call_id", call.id},
                            {"name", call.name},
                            {"content", *result}});
    }
    return true;
}

bool Talk::append(const std::string &line, stasis_cancel *cancel) {
    const uint32_t chunk = choice_.generation.chunk;
    if (conversation_ == nullptr) {
        return append_message(session_, "user", line, STASIS_MESSAGE_REPLY, chunk, cancel);
    }
    return append_with(
        [&](const stasis_run_options *options, stasis_error *error) {
            return conversation_->append(session_, options, error);
        },
        chunk, cancel, "turn");
}

// Appends the turn and plays the reply to it. Returns false if Ctrl-C ended it.
bool Talk::play_reply(const std::string &line) {
    Interrupt interrupt;
    const Stopwatch watch;
    calls_.clear();
    if (!append(line, interrupt.handle())) {
        say("[interrupted: this turn was not taken]");
        return false;
    }
    // The calls of a reply are found in the whole of it, so with tools it is shown at its end.
    const bool stream = !choice_.json && choice_.tools.empty();
    const Reply reply = generate(session_, choice_.generation, interrupt.handle(), stream);
    Json message;
    if (conversation_ != nullptr) {
        message = conversation_->take_reply(session_);
        calls_ = choice_.tools.empty() ? std::vector<ToolCall>() : calls_of(message);
    }
    const Cut cut = cut_of(reply, choice_.generation.tokens_max);
    show(reply, cut, watch.seconds(), message);
    return cut != Cut::interrupt;
}

void Talk::show(const Reply &reply, Cut cut, double seconds, const Json &message) const {
    if (choice_.json) {
        Json object = {{"role", "assistant"},
                       {"text", reply.text},
                       {"tokens", reply.tokens},
                       {"position", position_of(session_)},
                       {"digest", digest_of(session_)},
                       {"cut", cut_json(cut)},
                       {"seconds", seconds}};
        if (conversation_ != nullptr) {
            object["message"] = message;
        }
        add_drafted(object, choice_.generation, reply);
        print_json(object);
        return;
    }
    if (choice_.tools.empty()) {
        print("\n");
    } else {
        const std::string content = message.value("content", "");
        print(content.empty() && !calls_.empty() ? "" : content + "\n");
        for (const ToolCall &call : calls_) {
            print_json(call.shown);
        }
    }
    say_cut(cut, reply.tokens.size());
}

void Talk::save() {
    if (!choice_.session.empty()) {
        save_session(session_, choice_.session, saving_);
        saving_.replace = false; // the file now belongs to this conversation
    }
}

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

// Appends the system text. Throws Failure if the session has begun already.
void begin_with_system(stasis_session *session, const ChatChoice &choice) {
    auto info = sized<stasis_session_info>();
    stasis_error error{};
    check(stasis_session_get_info(session, &info, &error), error, "session");
    if (info.position > 0 || info.pending_bytes > 0) {
        throw Failure("--system: the session in " + choice.session + " has begun already");
    }
    append_message(session, "system", choice.system, 0, choice.generation.chunk, nullptr);
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
    const bool resume = !choice.saving.replace && std::filesystem::exists(choice.session);
    if (resume && choice.structured()) {
        throw Failure(std::string(choice.tools.empty() ? "--thinking" : "--tools") + ": " +
                      choice.session +
                      " cannot be resumed: it holds the tokens of its messages, "
                      "not the messages (--replace begins anew)");
    }
    return resume;
}

int chat(const ChatChoice &choice) {
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
    if (!resume || !choice.generation.given.empty()) {
        apply_sampling(session.get(), choice.generation, model.get());
    }
    apply_constraint(session.get(), choice.generation.constraint, nullptr);
    apply_draft(session.get(), choice.generation, choice.model, model.get(), nullptr);
    if (!choice.system.empty() && conversation != nullptr) {
        conversation->add({{"role", "system"}, {"content", choice.system}});
    } else if (!choice.system.empty()) {
        begin_with_system(session.get(), choice);
    }

    if (resume && input_is_terminal() && !choice.json) {
        say("[resumed at position " + std::to_string(position_of(session.get())) + "]");
    }
    Talk(choice, session.get(), conversation.get()).play();
    return 0;
}

} // namespace

void add_chat(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ChatChoice>();
    CLI::App *chat_app =
        app.add_subcommand("chat", "a conversation: one user turn a line from stdin");
    chat_app->footer(
        "Empty lines are skipped. With --json: one object a line for each reply, with "
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
    chat_app->add_flag("--json", choice->json, "one JSON object a turn on stdout");
    chat_app->callback([=, &exit_code] { exit_code = chat(*choice); });
}

} // namespace command
