// The file of typed lines; see history.h. An entry is a line of the file, in which a line end is
// written \n and a backslash doubled.
#include "tools/cli/chat/history.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/terminal.h"

namespace command::chat {

namespace {

constexpr size_t kEntriesMax = 1000, kFileBytesMax = 1 << 20, kEntryBytesMax = 1 << 14;

class File {
  public:
    File(const std::string &path, int flags)
        : descriptor_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600)) {}
    ~File() {
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    int get() const { return descriptor_; }

  private:
    int descriptor_;
};

std::string written(const std::string &entry) {
    std::string line;
    for (const char each : entry) {
        line += each == '\n' ? "\\n" : each == '\\' ? "\\\\" : std::string(1, each);
    }
    return line + "\n";
}

std::string entry_of(const std::string &line) {
    std::string entry;
    for (size_t i = 0; i < line.size(); ++i) {
        const bool escaped = line[i] == '\\' && i + 1 < line.size();
        i += escaped ? 1 : 0;
        entry += escaped && line[i] == 'n' ? '\n' : line[i];
    }
    return entry;
}

bool write_all(int descriptor, const std::string &text) {
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        done += count > 0 ? static_cast<size_t>(count) : 0;
    }
    return true;
}

} // namespace

std::string History::default_path() {
    if (const char *named = std::getenv("STASIS_HISTORY"); named != nullptr) {
        return named;
    }
    const char *state = std::getenv("XDG_STATE_HOME"), *home = std::getenv("HOME");
    if (state != nullptr && state[0] == '/') { // a relative one is to be ignored
        return std::string(state) + "/stasis/chat_history";
    }
    return home != nullptr && home[0] == '/'
               ? std::string(home) + "/.local/state/stasis/chat_history"
               : "";
}

History::History(std::string path) : path_(std::move(path)) {
    if (!path_.empty()) {
        load();
    }
}

void History::give_up(const std::string &reason) {
    say("[history is not kept: " + path_ + ": " + reason + "]");
    path_.clear();
}

void History::load() {
    const File file(path_, O_RDONLY);
    struct stat status {};
    if (file.get() < 0 && errno == ENOENT) {
        return; // the first entry makes it
    }
    if (file.get() < 0 || fstat(file.get(), &status) != 0) {
        return give_up(std::strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return give_up("it is not a regular file");
    }
    // Of a file that is too long, the newest part: what it begins with may be half an entry.
    const auto size = static_cast<size_t>(status.st_size);
    const size_t from = size > kFileBytesMax ? size - kFileBytesMax : 0;
    std::string text(size - from, '\0');
    const ssize_t count = pread(file.get(), text.data(), text.size(), static_cast<off_t>(from));
    if (count < 0) {
        return give_up(std::strerror(errno));
    }
    text.resize(static_cast<size_t>(count));
    size_t begin = from > 0 ? text.find('\n') + 1 : 0;
    for (size_t end = text.find('\n', begin); end != std::string::npos;
         end = text.find('\n', begin)) {
        entries_.push_back(entry_of(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    const bool long_file = size > kFileBytesMax || entries_.size() > 2 * kEntriesMax;
    if (entries_.size() > kEntriesMax) {
        entries_.erase(entries_.begin(), entries_.end() - kEntriesMax);
    }
    if (long_file) {
        shorten();
    }
}

// A new file in the place of the old one, so that no moment has half of it.
void History::shorten() {
    std::string text;
    size_t first = entries_.size(); // the newest ones, at most half as long as a file may be
    while (first > 0 && text.size() + entries_[first - 1].size() < kFileBytesMax / 2) {
        text += entries_[--first]; // its length alone counts here
    }
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first));
    text.clear();
    for (const std::string &entry : entries_) {
        text += written(entry);
    }
    const std::string fresh = path_ + "." + std::to_string(getpid());
    const File file(fresh, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0 || !write_all(file.get(), text) ||
        std::rename(fresh.c_str(), path_.c_str()) != 0) {
        const std::string reason = std::strerror(errno);
        std::remove(fresh.c_str());
        give_up(reason);
    }
}

void History::add(const std::string &entry) {
    if (path_.empty() || entry.size() > kEntryBytesMax) {
        return;
    }
    std::error_code problem;
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty() && std::filesystem::create_directories(folder, problem)) {
        std::filesystem::permissions(folder, std::filesystem::perms::owner_all, problem);
    }
    const File file(path_, O_WRONLY | O_CREAT | O_APPEND);
    struct stat status {};
    if (file.get() < 0 || fstat(file.get(), &status) != 0) {
        return give_up(std::strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return give_up("it is not a regular file");
    }
    if ((status.st_mode & 0777) != 0600 && fchmod(file.get(), 0600) != 0) {
        return give_up(std::strerror(errno));
    }
    if (!write_all(file.get(), written(entry))) {
        give_up(std::strerror(errno));
    }
}

} // namespace command::chat
