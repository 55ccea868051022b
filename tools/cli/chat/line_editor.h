// Lines that are typed at a terminal and can be edited, by libedit: with the lines before, pasted
// blocks, Ctrl-C, Ctrl-Z and windows that change their size. Must not know what a line means.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

struct editline;
struct historyW;

namespace command::chat {

class LineEditor {
  public:
    enum class End { enter, interrupt, input };
    struct Line {
        End end = End::enter;
        std::string text; // also that which an interrupt leaves behind
    };

    // Returns an editor on standard input and standard error; null where these are no terminal, or
    // TERM names none that can move its cursor, or no locale has UTF-8.
    static std::unique_ptr<LineEditor> open();
    ~LineEditor();
    LineEditor(const LineEditor &) = delete;
    LineEditor &operator=(const LineEditor &) = delete;

    // Reads a line, which begins as `fill`. It may hold line ends: from a paste, or by Alt-Enter.
    // SIGTERM meanwhile puts the terminal right and then ends the process.
    Line read(const std::string &prompt, const std::string &fill);
    // Makes an entry the one that the cursor key shows first.
    void remember(const std::string &entry);

  private:
    LineEditor(std::FILE *out, std::FILE *errors) : out_(out), errors_(errors) {}
    bool start();
    void bind_keys();
    void stop_until_continued();
    bool handle_signal();
    int next_byte();
    int next_key(wchar_t *key);
    unsigned char act();
    unsigned char paste();
    unsigned char insert(const std::wstring &text);
    static LineEditor &of(editline *edit);

    std::FILE *out_, *errors_;
    editline *edit_ = nullptr;
    historyW *history_ = nullptr;
    std::wstring prompt_, fill_, keys_; // keys_: read and not yet given to libedit
    bool reading_ = false;              // the terminal gives keys one by one
    int byte_ = -1;                     // read and not yet part of a key; -1: none
    int signals_ = -1;                  // where signals arrive, a byte each
    int ended_by_ = 0;                  // a signal
};

} // namespace command::chat
