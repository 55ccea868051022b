// Turns and replies; see talk.h.
#include "tools/cli/chat/talk.h"

#include <filesystem>
#include <utility>

#include "tools/cli/chat/kept.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command::chat {

namespace {

// Calls `append` with run options and an error. Returns false if it was cancelled; the session has
// then taken nothing. Throws NoRoom, Failure.
template <typename Append>
bool append_with(const Append &append, uint32_t chunk, stasis_cancel *cancel,
                 const std::string &where) {
    constexpr uint64_t kLong = 64; // positions from which on a prompt is seen to begin
    stasis_run_options options;
    stasis_run_options_init(&options, sizeof options);
    options.chunk = chunk;
    options.cancel = cancel;
    Progress progress("prefill", kLong);
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    const stasis_status status = append(&options, &error);
    if (status == STASIS_CANCELLED) {
        return false;
    }
    if (status == STASIS_FULL) {
        throw NoRoom(where + ": " + error.message + " (FULL)");
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

void say_cut(Cut cut, size_t tokens, bool to_people) {
    const std::string count = std::to_string(tokens) + " tokens: ";
    if (cut == Cut::limit) {
        say((to_people ? "[cut at " : "[cut after ") + count + "-n sets the limit]");
    } else if (cut == Cut::full) {
        say("[cut: the session is full]");
    } else if (cut == Cut::interrupt) {
        say("[cut after " + count + "interrupted]");
    }
}

} // namespace

Talk::Talk(const ChatChoice &choice, stasis_session *session, Conversation *conversation,
           MessageInput &input, Past past)
    : choice_(choice), saving_(choice.saving), session_(session), conversation_(conversation),
      input_(input), past_(std::move(past)), path_(choice.session) {
    if (conversation_ != nullptr && !choice_.tools.empty()) {
        calls_ = conversation_->pending_calls();
    }
}

Talk::Outcome Talk::go_on() {
    taken_ = true; // the turn is in the session
    return follow(Outcome::whole);
}

bool Talk::append(const std::string &text, stasis_cancel *cancel) {
    const uint32_t chunk = choice_.generation.chunk;
    if (conversation_ == nullptr) {
        return append_message(session_, "user", text, STASIS_MESSAGE_REPLY, chunk, cancel);
    }
    return append_with(
        [&](const stasis_run_options *options, stasis_error *error) {
            return conversation_->append(session_, options, error);
        },
        chunk, cancel, "turn");
}

// Appends a turn, or the results of calls, and plays the reply to it.
Talk::Outcome Talk::take(const std::string &text) {
    const Interrupt interrupt(!input_.from_people());
    const Stopwatch watch;
    const uint64_t before = position_of(session_);
    calls_.clear();
    if (!append(text, interrupt.handle())) {
        return Outcome::not_taken;
    }
    taken_ = unsaved_ = true;
    speed_.prompt_positions = position_of(session_) - before;
    speed_.prompt_seconds = watch.seconds();
    Turn &turn = past_.turns.back();
    turn.reply = position_of(session_);
    turn.reply_messages = conversation_ != nullptr ? conversation_->size() : 0;
    return reply(interrupt.handle(), speed_.prompt_seconds);
}

// Generates the reply to what was appended, in `seconds_before`.
Talk::Outcome Talk::reply(stasis_cancel *cancel, double seconds_before) {
    unsaved_ = true;
    past_.turns.back().whole = false;
    // The calls of a reply are found in the whole of it, so with tools it is shown at its end.
    const bool stream = !choice_.json && choice_.tools.empty();
    const Stopwatch watch;
    const Reply reply = generate(session_, choice_.generation, cancel, stream);
    speed_.reply_tokens = reply.tokens.size();
    speed_.reply_seconds = watch.seconds();
    Json message;
    if (conversation_ != nullptr) {
        message = conversation_->take_reply(session_);
        calls_ = choice_.tools.empty() ? std::vector<ToolCall>() : calls_of(message);
    }
    show(reply, seconds_before + watch.seconds(), message);
    const Cut cut = cut_of(reply, choice_.generation.tokens_max);
    past_.turns.back().whole = cut == Cut::no;
    return cut == Cut::interrupt ? Outcome::interrupted : Outcome::whole;
}

void Talk::show(const Reply &reply, double seconds, const Json &message) const {
    const Cut cut = cut_of(reply, choice_.generation.tokens_max);
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
    say_cut(cut, reply.tokens.size(), input_.from_people());
}

Talk::Outcome Talk::play_turn(const std::string &text) {
    Turn turn;
    turn.begin = position_of(session_);
    turn.messages = conversation_ != nullptr ? conversation_->size() : 0;
    taken_ = false;
    const auto drop = [&] {
        past_.turns.pop_back();
        if (conversation_ != nullptr) {
            conversation_->drop_to(turn.messages);
        }
    };
    past_.turns.push_back(turn);
    try {
        if (conversation_ != nullptr) {
            conversation_->add({{"role", "user"}, {"content", text}});
        }
        const Outcome outcome = take(text);
        if (outcome == Outcome::not_taken) {
            drop();
            return outcome;
        }
        return follow(outcome);
    } catch (...) {
        if (!taken_) {
            drop();
        }
        throw;
    }
}

// Saves after a reply, and while it has calls, asks for their results and plays the next one.
Talk::Outcome Talk::follow(Outcome outcome) {
    save();
    while (outcome == Outcome::whole && !calls_.empty() && read_results()) {
        outcome = take("");
        if (outcome != Outcome::not_taken) {
            save();
        }
    }
    return outcome;
}

// Asks for the result of each call. Returns false at the end of people's input.
bool Talk::read_results() {
    for (const ToolCall &call : calls_) {
        const auto result = input_.read_line("result of " + call.name + "> ");
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

// Rewinds the session and the messages. Throws Failure, also if it was interrupted; nothing has
// changed then.
void Talk::rewind(uint64_t position, size_t messages) {
    const Interrupt interrupt(!input_.from_people());
    const bool done = append_with(
        [&](const stasis_run_options *options, stasis_error *error) {
            return stasis_session_rewind(session_, position, STASIS_REWIND_RECOMPUTE, options,
                                         error);
        },
        choice_.generation.chunk, interrupt.handle(), "rewinding");
    if (!done) {
        throw Failure("interrupted: nothing was taken back");
    }
    unsaved_ = true;
    calls_.clear();
    if (conversation_ != nullptr) {
        conversation_->drop_to(messages);
    }
}

void Talk::undo() {
    if (past_.turns.empty()) {
        throw Failure("there is no turn to take back");
    }
    const Turn turn = past_.turns.back();
    rewind(turn.begin, turn.messages);
    past_.turns.pop_back();
    if (turn.begin == 0 && !past_.system.empty()) {
        put_system(past_.system); // it went with the first turn
    }
    save();
}

Talk::Outcome Talk::retry(std::optional<uint64_t> seed) {
    if (past_.turns.empty()) {
        throw Failure("there is no reply to draw again");
    }
    const Turn turn = past_.turns.back();
    StoredSampling &settings = past_.sampling;
    const uint64_t chosen = seed.value_or(settings.sampling.seed + 1);
    if (settings.sampling.temperature == 0 && turn.whole) {
        throw Failure("this conversation is greedy (temperature 0): the reply would be the same");
    }
    rewind(turn.reply, turn.reply_messages);
    settings.sampling.seed = chosen;
    settings.apply(session_);
    const Interrupt interrupt(!input_.from_people());
    return follow(reply(interrupt.handle(), 0));
}

// Appends the system text, or with tools holds it as a message.
void Talk::put_system(const std::string &text) {
    if (conversation_ != nullptr) {
        conversation_->drop_to(0);
        if (!text.empty()) {
            conversation_->add({{"role", "system"}, {"content", text}});
        }
    } else if (!text.empty()) {
        append_message(session_, "system", text, 0, choice_.generation.chunk, nullptr);
    }
    past_.system = text;
    past_.beginning = position_of(session_);
}

void Talk::begin_with_system(const std::string &text) {
    if (!past_.turns.empty() || position_of(session_) != past_.beginning) {
        throw Failure("the conversation has begun already: a system text stands before its first "
                      "turn");
    }
    const std::string before = past_.system;
    rewind(0, 0);
    try {
        put_system(text);
    } catch (...) {
        put_system(before);
        throw;
    }
}

// Puts the messages beside the tokens. A session that cannot hold them is saved without.
void Talk::keep(stasis_session *session) const {
    if (conversation_ == nullptr) {
        return;
    }
    try {
        keep_conversation(session, *conversation_, past_.turns);
    } catch (const Failure &failure) {
        say(std::string("[saved without the messages, so it cannot be resumed with tools or "
                        "thoughts: ") +
            failure.what() + "]");
    }
}

void Talk::save() {
    if (path_.empty()) {
        return;
    }
    keep(session_);
    save_session(session_, path_, saving_);
    saving_.replace = false; // the file now belongs to this conversation
    unsaved_ = false;
}

namespace {

void check_new(const std::string &command, const std::string &path) {
    if (path.empty()) {
        throw Failure(command + ": the path of a file is missing");
    }
    check_target(command, path, Special::refused);
    if (std::filesystem::exists(path)) {
        throw Failure(command + ": " + path + ": it exists already; choose another name");
    }
}

} // namespace

// From a fork, so that this session still knows what it saved last in its own file.
void Talk::save_copy(const std::string &command, const std::string &path) const {
    check_new(command, path);
    stasis_session *child = nullptr;
    stasis_error error{};
    check(stasis_session_fork(session_, &child, &error), error, "fork");
    const Session copy(child);
    keep(child);
    SaveChoice saving = saving_;
    saving.replace = false;
    save_session(copy.get(), path, saving);
}

void Talk::save_from_now_on(const std::string &command, const std::string &path) {
    check_new(command, path);
    SaveChoice saving = saving_;
    saving.replace = false;
    save_session(session_, path, saving);
    path_ = path;
    saving_ = saving;
    unsaved_ = false;
}

} // namespace command::chat
