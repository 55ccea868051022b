// What is typed or piped into a conversation: a message a line, and from people messages of several
// lines. Must not know commands or sessions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tools/cli/chat/history.h"
#include "tools/cli/chat/line_editor.h"

namespace command::chat {

struct Message {
    enum class End {
        text,
        interrupt, // Ctrl-C; `text` is what it left
        input      // the end of the input
    };
    End end = End::text;
    std::string text;
    bool block = false; // between lines of """: never a command
};

class MessageInput {
  public:
    // Lines of standard input as they are.
    MessageInput() = default;
    // From people: with a prompt, and edited where the terminal can. `history`: a file, or "".
    explicit MessageInput(const std::string &history);

    bool from_people() const { return from_people_; }
    // Whether lines can be edited, and so begin with a given text.
    bool edits() const { return editor_ != nullptr; }

    Message read();
    // Reads one line, which is not kept; nothing at the end of the input or after Ctrl-C.
    std::optional<std::string> read_line(const std::string &prompt);
    // Gives the text with which the next message begins.
    void fill(const std::string &text) { fill_ = text; }

  private:
    Message ask(const std::string &prompt, const std::string &fill = "");
    void read_block(Message &message);
    void read_continued(Message &message);

    bool from_people_ = false;
    std::unique_ptr<LineEditor> editor_;
    std::unique_ptr<History> history_;
    std::string fill_;
};

} // namespace command::chat
