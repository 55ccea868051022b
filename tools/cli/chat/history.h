// The lines that were typed in earlier conversations, in a file of the user's state directory. Must
// not know the line editor.
#pragma once

#include <string>
#include <vector>

namespace command::chat {

class History {
  public:
    // Returns the path that $STASIS_HISTORY names; without it, that of stasis/chat_history in
    // $XDG_STATE_HOME or ~/.local/state; "" if that variable is empty, or there is no home.
    static std::string default_path();

    // Reads the newest entries of the file, and shortens a file that has grown too long. "": none
    // is kept. A file that cannot be read or written is reported once, on stderr, and then left.
    explicit History(std::string path);

    const std::vector<std::string> &entries() const { return entries_; } // the oldest first
    // Puts an entry behind the others in the file, which only its owner can read.
    void add(const std::string &entry);

  private:
    void load();
    void shorten();
    void give_up(const std::string &reason);

    std::string path_; // "": no longer written
    std::vector<std::string> entries_;
};

} // namespace command::chat
