// A conversation that goes on: turns and their replies, taken back, drawn again and saved. Passes
// roles and texts to the library; must not know chat templates, nor who types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/chat/message_input.h"
#include "tools/cli/chat/past.h"
#include "tools/cli/conversation.h"
#include "tools/cli/generation.h"

namespace command::chat {

struct ChatChoice {
    ModelChoice model;
    GenerationChoice generation;
    SaveChoice saving;
    LoadChoice loading;
    std::string session, system, tools;
    uint32_t thinking = Conversation::as_it_is;
    bool json = false, no_history = false;

    // Whether the messages are held as JSON and rendered whole.
    bool structured() const { return !tools.empty() || thinking != Conversation::as_it_is; }
};

// A turn that finds no room in the session.
struct NoRoom : Failure {
    using Failure::Failure;
};

// How long the last prompt and the last reply took.
struct Speed {
    uint64_t prompt_positions = 0, reply_tokens = 0;
    double prompt_seconds = 0, reply_seconds = 0;
};

class Talk {
  public:
    enum class Outcome { whole, interrupted, not_taken };

    // `conversation`: the messages, if the choice is structured(); null: the log alone has them.
    // `input`: where results of calls come from.
    Talk(const ChatChoice &choice, stasis_session *session, Conversation *conversation,
         MessageInput &input, Past past);

    // Whether the last reply has calls whose results were not given.
    bool waits() const { return !calls_.empty(); }
    // Asks for these results, as after a reply of this process, and plays what follows.
    Outcome go_on();
    // Plays a user turn: its reply, and while a reply has calls, their results and the next one;
    // saved after each reply. After not_taken, and after an exception unless taken(), the session
    // is as it was.
    Outcome play_turn(const std::string &text);
    bool taken() const { return taken_; }

    // Takes the last turn back, with its reply. Throws Failure.
    void undo();
    // Draws the last reply again, with this seed or the next one. Throws Failure.
    Outcome retry(std::optional<uint64_t> seed);
    // Puts a system text at the beginning of a conversation that has no turn yet. Throws Failure.
    void begin_with_system(const std::string &text);
    // Saves where the conversation is saved, if anywhere. Throws Failure.
    void save();
    // Saves a copy in a file that is not there yet. Throws Failure, which names the command.
    void save_copy(const std::string &command, const std::string &path) const;
    // Saves in a file that is not there yet, and from now on there. Throws the same.
    void save_from_now_on(const std::string &command, const std::string &path);

    const stasis_session *session() const { return session_; }
    const std::string &path() const { return path_; } // "": not saved
    bool unsaved() const { return unsaved_; }         // something has happened since the last save
    const std::string &system() const { return past_.system; }
    const std::vector<Turn> &turns() const { return past_.turns; }
    const stasis_sampling &sampling() const { return past_.sampling.sampling; }
    const Speed &speed() const { return speed_; }

  private:
    bool append(const std::string &text, stasis_cancel *cancel);
    void keep(stasis_session *session) const;
    Outcome take(const std::string &text);
    Outcome reply(stasis_cancel *cancel, double seconds_before);
    Outcome follow(Outcome outcome);
    bool read_results();
    void rewind(uint64_t position, size_t messages);
    void put_system(const std::string &text);
    void show(const Reply &reply, double seconds, const Json &message) const;

    const ChatChoice &choice_;
    SaveChoice saving_;
    stasis_session *session_;
    Conversation *conversation_;
    MessageInput &input_;
    Past past_;
    std::string path_;
    bool taken_ = false, unsaved_ = false;
    std::vector<ToolCall> calls_; // of the last reply
    Speed speed_;
};

} // namespace command::chat
