// Reading messages; see message_input.h.
#include "tools/cli/chat/message_input.h"

#include <cstdio>
#include <iostream>

#include "tools/cli/terminal.h"

namespace command::chat {

namespace {

constexpr const char *kFirst = "> ", *kNext = "... ", *kFence = "\"\"\"";

bool is_fence(const std::string &line) {
    const size_t end = line.find_last_not_of(" \t");
    return end != std::string::npos && line.substr(0, end + 1) == kFence;
}

// Returns whether a line goes on: it ends in a backslash that is not itself behind one.
bool goes_on(const std::string &line) {
    const size_t last = line.find_last_not_of('\\');
    return (line.size() - (last == std::string::npos ? 0 : last + 1)) % 2 == 1;
}

} // namespace

MessageInput::MessageInput(const std::string &history)
    : from_people_(true), editor_(LineEditor::open()) {
    if (editor_ != nullptr) {
        history_ = std::make_unique<History>(history);
        for (const std::string &entry : history_->entries()) {
            editor_->remember(entry);
        }
    }
}

Message MessageInput::ask(const std::string &prompt, const std::string &fill) {
    if (editor_ != nullptr) {
        const LineEditor::Line line = editor_->read(visible(prompt), fill);
        return {line.end == LineEditor::End::enter       ? Message::End::text
                : line.end == LineEditor::End::interrupt ? Message::End::interrupt
                                                         : Message::End::input,
                line.text};
    }
    if (from_people_) {
        std::fputs(visible(prompt).c_str(), stderr);
    }
    std::string line;
    if (!std::getline(std::cin, line)) {
        if (from_people_) {
            say(""); // the shell's prompt belongs on a line of its own
        }
        return {Message::End::input, ""};
    }
    if (!line.empty() && line.back() == '\r') {
        line.pop_back();
    }
    return {Message::End::text, line};
}

// Reads the lines up to the second fence. An interrupt or the end of the input drops them.
void MessageInput::read_block(Message &message) {
    message = {Message::End::text, "", true};
    bool first = true;
    for (Message line = ask(kNext); !is_fence(line.text); line = ask(kNext)) {
        if (line.end != Message::End::text) {
            message.end = line.end;
            return;
        }
        message.text += (first ? "" : "\n") + line.text;
        first = false;
    }
}

void MessageInput::read_continued(Message &message) {
    while (message.end == Message::End::text && goes_on(message.text)) {
        const Message next = ask(kNext);
        message.text.back() = '\n';
        message.text += next.text;
        message.end = next.end;
    }
}

Message MessageInput::read() {
    Message message = ask(kFirst, std::exchange(fill_, ""));
    if (!from_people_ || message.end != Message::End::text) {
        return message;
    }
    if (is_fence(message.text)) {
        read_block(message);
    } else {
        read_continued(message);
    }
    if (message.end == Message::End::input && !message.text.empty()) {
        say("[the unfinished message was not sent]");
    }
    if (editor_ != nullptr && message.end == Message::End::text &&
        message.text.find_first_not_of(" \t\n") != std::string::npos) {
        editor_->remember(message.text);
        history_->add(message.text);
    }
    return message;
}

std::optional<std::string> MessageInput::read_line(const std::string &prompt) {
    const Message line = ask(prompt);
    return line.end == Message::End::text ? std::optional(line.text) : std::nullopt;
}

} // namespace command::chat
