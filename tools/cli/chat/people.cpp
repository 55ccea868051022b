// Conversations at a terminal; see people.h.
#include "tools/cli/chat/people.h"

#include <charconv>
#include <cstdlib>

#include "tools/cli/chat/standing.h"
#include "tools/cli/terminal.h"

namespace command::chat {

namespace {

// Returns a path as a shell would read its "~/".
std::string path_of(const std::string &given) {
    const char *home = std::getenv("HOME");
    return given.starts_with("~/") && home != nullptr ? home + given.substr(1) : given;
}

std::string trimmed(const std::string &text) {
    const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t\n");
    return begin == std::string::npos ? "" : text.substr(begin, end + 1 - begin);
}

} // namespace

void People::converse() {
    say(greeting(choice_, model_, talk_));
    if (const uint64_t position = position_of(talk_.session()); position > 0) {
        say("[resumed at position " + std::to_string(position) + ", after " +
            turns_text(talk_.turns().size()) + "]");
    }
    // Where Ctrl-C is not read as a key, at the prompt it ends the process.
    const InterruptsIgnored always(input_.edits());
    if (talk_.waits()) {
        go_on();
    }
    for (bool goes_on = true; goes_on;) {
        const Message message = input_.read();
        const InterruptsIgnored saved(true);
        try {
            goes_on = hear(message);
        } catch (const Failure &failure) {
            say(std::string("stasis: ") + failure.what());
        }
    }
    if (talk_.unsaved()) {
        talk_.save();
    }
}

// Asks for the results that a resumed conversation waits for. What fails can be taken back.
void People::go_on() {
    const InterruptsIgnored saved(true);
    try {
        note(talk_.go_on());
    } catch (const NoRoom &failure) {
        say(std::string("stasis: ") + failure.what());
        say(advice_when_full(talk_));
    } catch (const Failure &failure) {
        say(std::string("stasis: ") + failure.what());
    }
}

// Returns false if the conversation ends with it.
bool People::hear(const Message &message) {
    if (message.end == Message::End::input) {
        return false;
    }
    if (message.end == Message::End::interrupt) {
        if (message.text.empty()) {
            say("[Ctrl-D or /exit ends the conversation]");
        }
        return true;
    }
    const std::string &text = message.text;
    if (text.find_first_not_of(" \t\n") == std::string::npos) {
        return true;
    }
    if (message.block || text[0] != '/') {
        send(text);
    } else if (text.starts_with("//")) {
        send(text.substr(1));
    } else {
        return obey(text);
    }
    return true;
}

// A text that was not taken begins the next line, and /retry sends it.
void People::keep(const std::string &text) {
    kept_ = text;
    input_.fill(text.starts_with('/') ? "/" + text : text);
}

void People::send(const std::string &text) {
    kept_.clear();
    try {
        const Talk::Outcome outcome = talk_.play_turn(text);
        if (outcome == Talk::Outcome::not_taken && !talk_.taken()) {
            keep(text);
            say(std::string("[interrupted: this turn was not taken; ") +
                (input_.edits() ? "its text is on the next line, and /retry sends it]"
                                : "/retry sends it again]"));
            return;
        }
        note(outcome);
    } catch (const NoRoom &failure) {
        if (!talk_.taken()) {
            keep(text);
        }
        say(std::string("stasis: ") + failure.what());
        say(advice_when_full(talk_));
    } catch (const Failure &) {
        if (!talk_.taken()) {
            keep(text);
        }
        throw;
    }
}

// What is said after a reply.
void People::note(Talk::Outcome outcome) {
    if (outcome == Talk::Outcome::not_taken) {
        say("[interrupted: the results were not taken]");
    }
    if (const std::string line = fullness(talk_); !line.empty()) {
        say(line);
    }
}

// Does what a command says. Returns false for the one that ends the conversation.
bool People::obey(const std::string &line) {
    const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(0, end), rest = trimmed(line.substr(end));
    const auto without = [&] {
        if (!rest.empty()) {
            throw Failure(name + " takes nothing after it: nothing was done");
        }
    };
    if (name == "/retry") {
        retry(rest);
    } else if (name == "/fork") {
        fork(path_of(rest));
    } else if (name == "/save") {
        save(path_of(rest));
    } else if (name == "/system") {
        system(rest);
    } else if (name == "/help") {
        without();
        help();
    } else if (name == "/undo") {
        without();
        undo();
    } else if (name == "/stats") {
        without();
        for (const std::string &each : statistics(choice_, model_, talk_)) {
            say(each);
        }
    } else if (name == "/exit" || name == "/quit") {
        without();
        return false;
    } else {
        throw Failure(name +
                      " is no command (/help lists them): nothing was sent. A text that "
                      "begins with a slash is sent with two, /" +
                      name);
    }
    return true;
}

void People::help() const {
    static constexpr const char *kLines[] = {
        "/undo           take back the last turn: your message and the reply",
        "/retry [SEED]   draw the last reply again, with the next seed or this one; or send the "
        "message that was interrupted",
        "/fork FILE      save in FILE and go on there; the file before stays as it is now",
        "/save [FILE]    save a copy in FILE and go on here; where the conversation has no file, "
        "it gets this one",
        "/system [TEXT]  set the system text, before the first turn; without TEXT, show it",
        "/stats          tokens, context, memory, speed, settings and digest",
        "/exit           end the conversation, as Ctrl-D does",
        "//TEXT          a message that begins with a slash",
        "A line that ends in a backslash goes on with the next, as does a message between two "
        "lines of \"\"\".",
    };
    for (const char *line : kLines) {
        say(line);
    }
    say(input_.edits() ? "Alt-Enter puts a line end into a message, the cursor keys show earlier "
                         "ones, Ctrl-R searches them. Ctrl-C stops a reply and keeps what was said."
                       : "Ctrl-C stops a reply and keeps what was said.");
}

void People::undo() {
    const uint64_t before = position_of(talk_.session());
    talk_.undo();
    const uint64_t after = position_of(talk_.session());
    const size_t left = talk_.turns().size();
    say("[the last turn is taken back: " + std::to_string(before - after) + " tokens; " +
        turns_text(left) + (left == 1 ? " is left]" : " are left]"));
}

void People::retry(const std::string &seed) {
    if (!kept_.empty() && seed.empty()) {
        input_.fill("");
        send(std::string(kept_));
        return;
    }
    std::optional<uint64_t> chosen;
    if (!seed.empty()) {
        uint64_t number = 0;
        const auto [stop, problem] =
            std::from_chars(seed.data(), seed.data() + seed.size(), number);
        if (problem != std::errc() || stop != seed.data() + seed.size()) {
            throw Failure("/retry: '" + seed + "' is not a seed, a whole number from 0 on");
        }
        chosen = number;
    }
    note(talk_.retry(chosen));
}

void People::fork(const std::string &path) {
    const std::string before = talk_.path();
    talk_.save_from_now_on("/fork", path);
    say("[saved in " + path + ", and from now on there" +
        (before.empty() ? "]" : "; " + before + " stays as it is]"));
}

void People::save(const std::string &path) {
    if (path.empty() && talk_.path().empty()) {
        throw Failure("/save: the conversation has no file yet: /save FILE");
    }
    if (path.empty()) {
        talk_.save();
        say("[saved in " + talk_.path() + "]");
    } else if (talk_.path().empty()) {
        talk_.save_from_now_on("/save", path);
        say("[saved in " + path + ", and from now on after every turn]");
    } else {
        talk_.save_copy("/save", path);
        say("[a copy is saved in " + path + "; the conversation goes on in " + talk_.path() + "]");
    }
}

void People::system(const std::string &text) {
    if (!text.empty()) {
        talk_.begin_with_system(text);
        talk_.save();
    }
    say(talk_.system().empty() ? "[there is no system text]"
                               : "[system text: " + talk_.system() + "]");
}

} // namespace command::chat
