// A conversation with people at a terminal: commands that begin with a slash, what they are told,
// and texts that are not lost. Must not know how turns are computed.
#pragma once

#include <string>

#include "tools/cli/chat/talk.h"

namespace command::chat {

class People {
  public:
    People(const ChatChoice &choice, const stasis_model *model, Talk &talk, MessageInput &input)
        : choice_(choice), model_(model), talk_(talk), input_(input) {}

    // Holds the conversation until it is left. Throws Failure if it could not be saved in the end.
    void converse();

  private:
    void go_on();
    bool hear(const Message &message);
    void send(const std::string &text);
    bool obey(const std::string &line);
    void help() const;
    void undo();
    void retry(const std::string &seed);
    void fork(const std::string &path);
    void save(const std::string &path);
    void system(const std::string &text);
    void note(Talk::Outcome outcome);
    void keep(const std::string &text);

    const ChatChoice &choice_;
    const stasis_model *model_;
    Talk &talk_;
    MessageInput &input_;
    std::string kept_; // a text that was typed and not taken
};

} // namespace command::chat
