// The line editor; see line_editor.h. libedit decides what keys do. Reading them is done here,
// because its own reading ends the process group at a signal and knows no pasted blocks.
#include "tools/cli/chat/line_editor.h"

#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include "tools/cli/chat/wide_text.h"

namespace command::chat {

namespace {

constexpr const char *kPastesOn = "\033[?2004h", *kPastesOff = "\033[?2004l";
constexpr const char *kPasteEnd = "\033[201~";
constexpr wchar_t kActKey = 0x1C; // Ctrl-\, which sends a signal: it is never read as a key
constexpr int kEndOfInput = -1, kSignalled = -2;
constexpr int kRememberedMax = 1000;

std::atomic<int> signal_writer{-1};

void on_signal(int number) {
    const int before = errno;
    const auto byte = static_cast<unsigned char>(number);
    // A full pipe has enough signals in it already.
    static_cast<void>(!write(signal_writer.load(), &byte, 1));
    errno = before;
}

// While it lives, signals are bytes of a pipe, and none of them interrupts or ends anything.
class SignalPipe {
  public:
    SignalPipe() {
        if (pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) {
            return; // signals then do what they did before
        }
        signal_writer = ends_[1];
        struct sigaction action {};
        action.sa_handler = on_signal;
        action.sa_flags = static_cast<int>(SA_RESTART);
        for (size_t i = 0; i < kCount; ++i) {
            sigaction(kSignals[i], &action, &before_[i]);
        }
    }
    ~SignalPipe() {
        if (ends_[0] < 0) {
            return;
        }
        for (size_t i = 0; i < kCount; ++i) {
            sigaction(kSignals[i], &before_[i], nullptr);
        }
        signal_writer = -1;
        close(ends_[0]);
        close(ends_[1]);
    }
    SignalPipe(const SignalPipe &) = delete;
    SignalPipe &operator=(const SignalPipe &) = delete;
    int reader() const { return ends_[0]; }

  private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGTSTP, SIGCONT, SIGWINCH};
    static constexpr size_t kCount = std::size(kSignals);
    int ends_[2] = {-1, -1};
    struct sigaction before_[kCount];
};

// Returns whether characters are UTF-8 in the process's locale, which is made so if it can be.
bool set_locale() {
    const auto is_utf8 = [] { return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0; };
    return (std::setlocale(LC_CTYPE, "") != nullptr && is_utf8()) ||
           (std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr && is_utf8());
}

// Returns pasted bytes as a text: its line ends are \n, none is at its end, and other control
// characters than tabs are not in it.
std::string plain_text(const std::string &pasted) {
    std::string text;
    for (const char each : pasted) {
        const auto byte = static_cast<unsigned char>(each);
        if ((byte >= 0x20 && byte != 0x7F) || byte == '\t' || byte == '\n' || byte == '\r') {
            text += each == '\r' ? '\n' : each;
        }
    }
    text.erase(text.find_last_not_of('\n') + 1);
    return text;
}

} // namespace

LineEditor &LineEditor::of(editline *edit) {
    void *self = nullptr;
    el_wget(edit, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor *>(self);
}

std::unique_ptr<LineEditor> LineEditor::open() {
    const char *terminal = std::getenv("TERM");
    if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0 || terminal == nullptr ||
        terminal[0] == '\0' || std::strcmp(terminal, "dumb") == 0 || !set_locale()) {
        return nullptr;
    }
    // Buffered, so that a redrawn line is one write; what libedit has to complain of is not shown.
    const int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    std::FILE *out = copy < 0 ? nullptr : fdopen(copy, "w");
    std::FILE *errors = std::fopen("/dev/null", "we");
    std::unique_ptr<LineEditor> editor(new LineEditor(out, errors));
    return editor->start() ? std::move(editor) : nullptr;
}

LineEditor::~LineEditor() {
    if (edit_ != nullptr) {
        el_end(edit_);
    }
    if (history_ != nullptr) {
        history_wend(history_);
    }
    for (std::FILE *file : {out_, errors_}) {
        if (file != nullptr) {
            std::fclose(file);
        }
    }
}

// Returns false if this terminal cannot be edited on.
bool LineEditor::start() {
    if (out_ == nullptr || errors_ == nullptr) {
        return false;
    }
    edit_ = el_init("stasis", stdin, out_, errors_);
    history_ = history_winit();
    int edits = 0;
    if (edit_ == nullptr || history_ == nullptr ||
        el_wset(edit_, EL_TERMINAL, nullptr) != 0 || // a terminal that terminfo does not know
        el_wget(edit_, EL_EDITMODE, &edits) != 0 || edits == 0) {
        return false;
    }
    HistEventW event;
    history_w(history_, &event, H_SETSIZE, kRememberedMax);
    history_w(history_, &event, H_SETUNIQUE, 1);
    el_wset(edit_, EL_CLIENTDATA, this);
    el_wset(edit_, EL_HIST, history_w, history_);
    el_wset(edit_, EL_EDITOR, L"emacs");
    el_source(edit_, nullptr); // ~/.editrc, the user's own choice of keys
    wchar_t *(*give_prompt)(EditLine *) = [](EditLine *edit) { return of(edit).prompt_.data(); };
    el_wset(edit_, EL_PROMPT, give_prompt);
    int (*give_key)(EditLine *, wchar_t *) = [](EditLine *edit, wchar_t *key) {
        return of(edit).next_key(key);
    };
    el_wset(edit_, EL_GETCFN, give_key);
    bind_keys();
    return true;
}

void LineEditor::bind_keys() {
    using Function = unsigned char (*)(EditLine *, wint_t);
    const Function on_act = [](EditLine *edit, wint_t) { return of(edit).act(); };
    const Function on_paste = [](EditLine *edit, wint_t) { return of(edit).paste(); };
    const Function on_line_end = [](EditLine *edit, wint_t) { return of(edit).insert(L"\n"); };
    el_wset(edit_, EL_ADDFN, L"stasis-act", L"What an interrupt or a given text asks for", on_act);
    el_wset(edit_, EL_ADDFN, L"stasis-paste", L"Take a pasted block", on_paste);
    el_wset(edit_, EL_ADDFN, L"stasis-line-end", L"Put a line end into the text", on_line_end);
    const wchar_t act_key[] = {kActKey, 0};
    el_wset(edit_, EL_BIND, act_key, L"stasis-act", nullptr);
    el_wset(edit_, EL_BIND, L"\\e[200~", L"stasis-paste", nullptr);
    el_wset(edit_, EL_BIND, L"\\e\r", L"stasis-line-end", nullptr);
    el_wset(edit_, EL_BIND, L"\\e\n", L"stasis-line-end", nullptr);
    el_wset(edit_, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
}

void LineEditor::remember(const std::string &entry) {
    HistEventW event;
    history_w(history_, &event, H_ENTER, widen(entry).c_str());
}

LineEditor::Line LineEditor::read(const std::string &prompt, const std::string &fill) {
    prompt_ = widen(prompt);
    fill_ = widen(fill);
    keys_.clear();
    ended_by_ = 0;
    Line line;
    {
        const SignalPipe pipe;
        signals_ = pipe.reader();
        reading_ = false;
        int count = 0;
        const wchar_t *typed = el_wgets(edit_, &count);
        std::fputs(kPastesOff, out_);
        if (typed != nullptr) {
            line.text = narrow({typed, static_cast<size_t>(count)});
        } else {
            const LineInfoW *left = el_wline(edit_);
            line.text = narrow({left->buffer, left->lastchar});
            line.end = ended_by_ == SIGINT ? End::interrupt : End::input;
            std::fputs("\n", out_);
        }
        std::fflush(out_);
    }
    signals_ = -1;
    if (ended_by_ == SIGTERM) {
        std::raise(SIGTERM);
    }
    if (line.end == End::enter && line.text.ends_with('\n')) {
        line.text.pop_back();
    }
    return line;
}

// Ctrl-Z: the shell's terminal is as it was, until it continues this process.
void LineEditor::stop_until_continued() {
    std::fputs(kPastesOff, out_);
    std::fflush(out_);
    el_wset(edit_, EL_PREP_TERM, 0);
    struct sigaction ours {
    }, plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGTSTP, &plain, &ours);
    std::raise(SIGTSTP);
    sigaction(SIGTSTP, &ours, nullptr);
    // Also where nobody could continue it, so that the system did not stop it.
    el_wset(edit_, EL_PREP_TERM, 1);
    std::fputs(kPastesOn, out_);
    std::fflush(out_);
}

// Does what a signal asks for. Returns whether it ends the line.
bool LineEditor::handle_signal() {
    unsigned char number = 0;
    if (::read(signals_, &number, 1) != 1) {
        return false;
    }
    if (number == SIGTSTP) {
        stop_until_continued();
    } else if (number == SIGCONT) {
        el_wset(edit_, EL_PREP_TERM, 0); // the shell may have changed it
        el_wset(edit_, EL_PREP_TERM, 1);
        std::fputs(kPastesOn, out_);
        std::fputs("\r\033[K", out_);
        el_wset(edit_, EL_REFRESH);
    } else if (number == SIGWINCH) {
        el_resize(edit_);
    } else {
        ended_by_ = number;
    }
    return ended_by_ != 0;
}

// Returns the next byte of standard input, or kEndOfInput, or kSignalled after a signal that ends
// the line.
int LineEditor::next_byte() {
    if (byte_ >= 0) {
        return std::exchange(byte_, -1);
    }
    for (;;) {
        pollfd sources[] = {{signals_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        if (poll(sources, 2, -1) < 0) {
            continue; // interrupted by a signal, whose byte is there now
        }
        if ((sources[0].revents & POLLIN) != 0) {
            if (handle_signal()) {
                return kSignalled;
            }
            continue;
        }
        unsigned char byte = 0;
        const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
        if (count == 1) {
            return byte;
        }
        if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
            return kEndOfInput;
        }
    }
}

// Called by libedit. Returns 1 with a key; 0 at the end of the input; -1 after a signal.
int LineEditor::next_key(wchar_t *key) {
    if (!std::exchange(reading_, true)) { // keys arrive one by one from here on
        std::fputs(kPastesOn, out_);
        std::fflush(out_);
    }
    if (ended_by_ != 0) {
        return -1;
    }
    if (!fill_.empty()) {
        *key = kActKey;
        return 1;
    }
    if (keys_.empty()) {
        const int lead = next_byte();
        if (lead == kEndOfInput) {
            return 0;
        }
        if (lead == kSignalled) {
            *key = kActKey; // once more, to leave the line's end on the screen
            return 1;
        }
        std::string bytes(1, static_cast<char>(lead));
        while (bytes.size() < character_bytes(static_cast<unsigned char>(lead))) {
            const int next = next_byte();
            if (next < 0x80 || next >= 0xC0) {
                byte_ = next < 0 ? -1 : next;
                break;
            }
            bytes += static_cast<char>(next);
        }
        keys_ = widen(bytes);
    }
    *key = keys_.front();
    keys_.erase(0, 1);
    return 1;
}

// The private key: begins the line with a given text, or leaves it after a signal.
unsigned char LineEditor::act() {
    if (ended_by_ == 0) {
        return insert(std::exchange(fill_, {}));
    }
    const LineInfoW *line = el_wline(edit_);
    el_cursor(edit_, static_cast<int>(line->lastchar - line->cursor));
    return CC_REFRESH;
}

unsigned char LineEditor::paste() {
    std::string pasted;
    while (!pasted.ends_with(kPasteEnd)) {
        const int byte = next_byte();
        if (byte < 0) {
            return CC_REFRESH; // what ends it will be seen again
        }
        pasted += static_cast<char>(byte);
    }
    pasted.resize(pasted.size() - std::strlen(kPasteEnd));
    return insert(widen(plain_text(pasted)));
}

unsigned char LineEditor::insert(const std::wstring &text) {
    if (text.empty()) {
        return CC_NORM;
    }
    return el_winsertstr(edit_, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

} // namespace command::chat
