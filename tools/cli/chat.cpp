// stasis chat: a conversation, one user turn on each line of stdin, saved after every turn. Passes
// roles and texts to the library; must not know chat templates.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "tools/cli/commands.h"
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
    std::string session, system;
    bool json = false;
};

// Returns false if the append was cancelled; the session is then as it was.
bool append_message(stasis_session *session, const char *role, const std::string &text,
                    uint32_t flags, uint32_t chunk, stasis_cancel *cancel) {
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.chunk = chunk;
    options.cancel = cancel;
    Progress progress("prefill");
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    const stasis_status status = stasis_session_append_message(
        session, role, text.data(), text.size(), flags, &options, &error);
    if (status == STASIS_CANCELLED) {
        return false;
    }
    check(status, error, std::string(role) + " turn");
    return true;
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

// Plays one user turn and its reply. Returns false if Ctrl-C ended it.
bool play_turn(stasis_session *session, const std::string &line, const ChatChoice &choice) {
    Interrupt interrupt;
    const Stopwatch watch;
    if (!append_message(session, "user", line, STASIS_MESSAGE_REPLY, choice.generation.chunk,
                        interrupt.handle())) {
        say("[interrupted: this turn was not taken]");
        return false;
    }

    const Reply reply = generate(session, choice.generation, interrupt.handle(), !choice.json);
    const double seconds = watch.seconds();
    const Cut cut = cut_of(reply, choice.generation.tokens_max);
    if (choice.json) {
        Json object = {{"role", "assistant"},
                       {"text", reply.text},
                       {"tokens", reply.tokens},
                       {"position", position_of(session)},
                       {"digest", digest_of(session)},
                       {"cut", cut_json(cut)},
                       {"seconds", seconds}};
        add_drafted(object, choice.generation, reply);
        print_json(object);
    } else {
        print("\n");
        say_cut(cut, reply.tokens.size());
    }
    return cut != Cut::interrupt;
}

// Throws Failure unless the model has a tokenizer and a chat template.
void check_chats(const stasis_model *model, const std::string &path) {
    const stasis_model_info info = model_info(model);
    if ((info.flags & STASIS_MODEL_TOKENIZER) == 0) {
        throw Failure(path + ": no chat: the model has no tokenizer");
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

int chat(const ChatChoice &choice) {
    const bool keep = !choice.session.empty();
    // Refuse what cannot work before the model is opened.
    if (is_stream(choice.session)) {
        throw Failure("--session: a conversation reads its turns from standard input and cannot "
                      "keep its session there");
    }
    if (keep) {
        check_target("--session", choice.session, Special::refused);
    }

    // Open the model and the session.
    const Model model = open_model(choice.model, nullptr);
    check_chats(model.get(), choice.model.path);
    const bool resume = keep && !choice.saving.replace && std::filesystem::exists(choice.session);
    const Session session = resume
                                ? load_session(model.get(), choice.session, nullptr, choice.loading)
                                : create_session(model.get());

    // Apply settings. A resumed session keeps those of its file unless the command line gives any.
    if (!resume || !choice.generation.given.empty()) {
        apply_sampling(session.get(), choice.generation, model.get());
    }
    apply_draft(session.get(), choice.generation, choice.model, model.get(), nullptr);
    if (!choice.system.empty()) {
        begin_with_system(session.get(), choice);
    }

    // Read turns until the end of the input or an interrupt.
    const bool terminal = input_is_terminal() && !choice.json;
    if (terminal && resume) {
        say("[resumed at position " + std::to_string(position_of(session.get())) + "]");
    }
    SaveChoice saving = choice.saving;
    std::string line;
    while (true) {
        if (terminal) {
            std::fputs("> ", stderr);
        }
        if (!std::getline(std::cin, line)) {
            if (terminal) {
                say(""); // the shell's prompt belongs on a line of its own
            }
            break;
        }
        if (!line.empty() && line.back() == '\r') {
            line.pop_back();
        }
        if (line.empty()) {
            continue;
        }
        const bool whole = play_turn(session.get(), line, choice);
        if (keep) {
            save_session(session.get(), choice.session, saving);
            saving.replace = false; // the file now belongs to this conversation
        }
        if (!whole && !input_is_terminal()) {
            throw Failure("interrupted: the turns that follow were not read");
        }
    }
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
        "accepted, passes, draft_failures.\nCtrl-C ends a reply; where turns do not come from a "
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
    add_generation_options(*chat_app, choice->generation);
    add_save_options(*chat_app, choice->saving);
    add_compute_options(*chat_app, choice->model);
    add_template_option(*chat_app, choice->model);
    chat_app->add_flag("--json", choice->json, "one JSON object a turn on stdout");
    chat_app->callback([=, &exit_code] { exit_code = chat(*choice); });
}

} // namespace command
