// A store in a directory: each object is a file, under its key. What is no object has a name that
// begins with '.': the marker that says it is a store, files that are being written, locks. See
// STORE.md.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "format/store/backend.h"
#include "format/store/locks.h"
#include "format/store/new_file.h"

namespace stasis::format {

namespace {

const char *const kMarker = "/.stasis-store", *const kMarked = "stasis-store 1\n";
const char *const kNew = "/.new", *const kLocks = "/.locks";
constexpr mode_t kFolderMode = 0700;

bool is_absent(int number) { // ENOTDIR: the folder's name is that of an object
    return number == ENOENT || number == ENOTDIR;
}

class Directory : public Backend {
  public:
    Directory(std::string path, const FileOperations &files);

    std::optional<Bytes> get(const std::string &key, const Watch &) override;
    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
              const Watch &) override;
    void put(const std::string &key, std::span<const uint8_t> bytes, const Watch &) override;
    void replace(const std::string &key, std::span<const uint8_t> bytes,
                 const Watch &watch) override;
    std::optional<Marked> get_marked(const std::string &key, const Watch &watch) override;
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes, const Watch &watch) override;
    void list(const std::string &prefix, const std::function<bool(const ListedObject &)> &visit,
              const Watch &watch) override;
    void remove(const std::string &key, const Watch &watch) override;
    bool remove_marked(const std::string &key, const std::string &mark,
                       const Watch &watch) override;
    std::unique_ptr<BackendLock> lock_to_write(const Watch &watch) override {
        return wait_for_store(files_, locks(), LockKind::shared, watch);
    }
    std::unique_ptr<BackendLock> lock_to_collect(const Watch &watch) override {
        std::unique_ptr<BackendLock> lock = wait_for_store(files_, locks(), LockKind::alone, watch);
        remove_leftovers(files_, root_ + kNew);
        return lock;
    }

  private:
    std::string path_of(const std::string &key) const { return root_ + "/" + key; }
    StoreLocks locks() const { return {root_ + kLocks + "/turn", root_ + kLocks + "/held"}; }
    std::optional<std::string> read_marker() const;
    void begin_store();
    void make_folder(const std::string &path) const;
    void sync_folder_of(const std::string &path) const { open_directory(files_, path).sync(); }
    bool find_folders(const std::string &key) const;
    void make_folders(const std::string &key);
    std::optional<File> open_object(const std::string &key) const;
    bool is_there(const std::string &path) const;
    File lock_key(const std::string &key, const Watch &watch) const;
    bool walk(const std::string &folder, const std::string &prefix,
              const std::function<bool(const ListedObject &)> &visit) const;

    const FileOperations &files_;
    std::string root_; // absolute: the process may change its directory
    std::mutex mutex_;
    std::set<std::string> durable_; // folders whose names this process has synced
};

[[noreturn]] void fail_call(const std::string &path, const char *what, int number) {
    fail(number == ENOMEM ? Status::no_memory : Status::io, "%s: %s: %s", path.c_str(), what,
         std::generic_category().message(number).c_str());
}

std::string absolute(const std::string &path) {
    std::error_code failure;
    const auto found = std::filesystem::absolute(path, failure);
    if (path.empty() || failure) {
        fail(path.empty() ? Status::invalid_argument : Status::io,
             "'%s' is no path of a store's directory", path.c_str());
    }
    std::string text = found.string();
    while (text.size() > 1 && text.back() == '/') {
        text.pop_back();
    }
    return text;
}

Directory::Directory(std::string path, const FileOperations &files)
    : files_(files), root_(absolute(path)) {
    if (files_.make_directory(root_.c_str(), kFolderMode) != 0 && errno != EEXIST) {
        fail_call(root_, "cannot make the store's directory", errno);
    }
    const int descriptor = files_.open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (descriptor < 0) {
        const int number = errno;
        fail(number == ENOTDIR ? Status::invalid_argument : Status::io,
             "%s: cannot open the store's directory: %s", root_.c_str(),
             std::generic_category().message(number).c_str());
    }
    files_.close(descriptor);
    std::optional<std::string> marker = read_marker();
    if (!marker) {
        begin_store();
        marker = read_marker();
    }
    if (!marker || marker->rfind("stasis-store ", 0) != 0) {
        fail(Status::invalid_argument, "%s%s: not the marker of a store", root_.c_str(), kMarker);
    }
    if (*marker != kMarked) {
        fail(Status::version, "%s: a store of another version ('%.40s'); this build knows '%.14s'",
             root_.c_str(), marker->substr(0, marker->find('\n')).c_str(), kMarked);
    }
    make_folder(root_ + kNew); // which a copy may lack, for they are empty
    make_folder(root_ + kLocks);
}

// Returns the first bytes of the marker, or nothing if there is none.
std::optional<std::string> Directory::read_marker() const {
    const std::string path = root_ + kMarker;
    try {
        const File file = open_file(files_, path);
        std::string text(64, '\0');
        text.resize(file.read_some(text.data(), text.size(), 0));
        return text;
    } catch (const FileError &error) {
        if (error.status() == Status::not_found) {
            return std::nullopt;
        }
        throw;
    }
}

// Makes a store of an empty directory. The marker comes last: what is cut short begins anew.
void Directory::begin_store() {
    std::vector<std::string> names;
    if (files_.list(root_.c_str(), &names) != 0) {
        fail_call(root_, "cannot list the directory", errno);
    }
    const auto other = std::find_if(names.begin(), names.end(), [](const std::string &name) {
        return "/" + name != kNew && "/" + name != kLocks && "/" + name != kMarker;
    });
    if (other != names.end()) {
        if (read_marker()) { // of another process, which has put objects meanwhile
            return;
        }
        fail(Status::invalid_argument, "%s: no store, and not empty: it holds '%s'", root_.c_str(),
             other->c_str());
    }
    make_folder(root_ + kNew);
    make_folder(root_ + kLocks);
    const std::string_view text = kMarked;
    NewFile marker(files_, root_ + kNew);
    marker.write({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
    marker.place_new(root_ + kMarker); // false: another process was faster
    sync_folder_of(root_ + kMarker);
    sync_folder_of(root_);
}

// Makes one folder, if it is not there.
void Directory::make_folder(const std::string &path) const {
    struct stat status {};
    if (files_.path_status(path.c_str(), &status) == 0) {
        if (!S_ISDIR(status.st_mode)) { // a symbolic link too, wherever it leads
            fail(Status::io, "%s: in the way of the store: not a directory", path.c_str());
        }
    } else if (errno != ENOENT) {
        fail_call(path, "cannot look up", errno);
    } else if (files_.make_directory(path.c_str(), kFolderMode) != 0 && errno != EEXIST) {
        fail_call(path, "cannot make the directory", errno);
    }
}

// Whether the folders of a key are there, and folders of the store: no symbolic link leads out.
bool Directory::find_folders(const std::string &key) const {
    for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) {
        const std::string folder = path_of(key.substr(0, slash));
        struct stat status {};
        if (files_.path_status(folder.c_str(), &status) != 0) {
            if (is_absent(errno)) {
                return false;
            }
            fail_call(folder, "cannot look up", errno);
        }
        if (S_ISLNK(status.st_mode)) {
            fail(Status::io, "%s: a symbolic link, which a store does not follow", folder.c_str());
        }
        if (!S_ISDIR(status.st_mode)) {
            return false;
        }
    }
    return true;
}

// Makes the folders of a key. Their names are synced by whoever needs them, for another process may
// have made them and not have got so far.
void Directory::make_folders(const std::string &key) {
    for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/', slash + 1)) {
        const std::string folder = path_of(key.substr(0, slash));
        make_folder(folder);
        {
            const std::lock_guard held(mutex_);
            if (durable_.count(folder) != 0) {
                continue;
            }
        }
        sync_folder_of(folder);
        const std::lock_guard held(mutex_);
        durable_.insert(folder);
    }
}

std::optional<File> Directory::open_object(const std::string &key) const {
    check_key(key);
    if (!find_folders(key)) {
        return std::nullopt;
    }
    std::string path = path_of(key);
    constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; // a pipe would wait
    const int descriptor = files_.open(path.c_str(), flags, 0);
    if (descriptor < 0) {
        if (is_absent(errno)) {
            return std::nullopt;
        }
        fail_file(Status::io, FileFailure::open, path, errno);
    }
    File file(files_, descriptor, std::move(path));
    const mode_t mode = file.status().st_mode;
    if (!S_ISREG(mode) && !S_ISDIR(mode)) {
        fail(Status::io, "%s: not a regular file", file.path().c_str());
    }
    return S_ISREG(mode) ? std::optional(std::move(file)) : std::nullopt;
}

std::optional<Bytes> Directory::get(const std::string &key, const Watch &) {
    const std::optional<File> file = open_object(key);
    if (!file) {
        return std::nullopt;
    }
    Bytes bytes(static_cast<size_t>(file->status().st_size));
    bytes.resize(file->read_some(bytes.data(), bytes.size(), 0));
    return bytes;
}

bool Directory::read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
                     const Watch &) {
    const std::optional<File> file = open_object(key);
    if (!file) {
        return false;
    }
    const auto size = static_cast<uint64_t>(file->status().st_size);
    return offset <= size && into.size() <= size - offset &&
           file->read_some(into.data(), into.size(), offset) == into.size();
}

// Whether there is an object.
bool Directory::is_there(const std::string &path) const {
    struct stat status {};
    if (files_.path_status(path.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail_call(path, "cannot look up", errno);
    }
    if (!S_ISREG(status.st_mode)) {
        fail(Status::io, "%s: in the way of an object: not a regular file", path.c_str());
    }
    return true;
}

void Directory::put(const std::string &key, std::span<const uint8_t> bytes, const Watch &) {
    check_key(key);
    make_folders(key);
    const std::string path = path_of(key);
    if (!is_there(path)) {
        NewFile file(files_, root_ + kNew);
        file.write(bytes);
        if (!file.place_new(path)) {
            is_there(path); // another writer was faster
        }
    }
    // What was there may be another writer's, who has not got so far.
    sync_folder_of(path);
}

void Directory::replace(const std::string &key, std::span<const uint8_t> bytes,
                        const Watch &watch) {
    check_key(key);
    const std::string path = path_of(key);
    const File lock = lock_key(key, watch);
    make_folders(key);
    is_there(path); // nothing that is no object is replaced
    NewFile file(files_, root_ + kNew);
    file.write(bytes);
    file.place(path);
    sync_folder_of(path);
}

std::optional<Marked> Directory::get_marked(const std::string &key, const Watch &watch) {
    std::optional<Bytes> bytes = get(key, watch);
    if (!bytes) {
        return std::nullopt;
    }
    std::string mark = mark_of(*bytes);
    return Marked{std::move(*bytes), std::move(mark)};
}

// Whoever replaces or removes an object holds the lock of its key; few other keys have the same.
File Directory::lock_key(const std::string &key, const Watch &watch) const {
    const std::string digits = mark_of({reinterpret_cast<const uint8_t *>(key.data()), key.size()});
    return wait_for_lock(files_, root_ + kLocks + "/swap-" + digits.substr(0, 2), LockKind::alone,
                         watch);
}

std::optional<std::string> Directory::swap(const std::string &key,
                                           const std::optional<std::string> &mark,
                                           std::span<const uint8_t> bytes, const Watch &watch) {
    check_key(key);
    const std::string path = path_of(key);
    const File lock = lock_key(key, watch);
    const std::optional<Marked> there = get_marked(key, watch);
    if (there.has_value() != mark.has_value() || (there && there->mark != *mark)) {
        return std::nullopt;
    }
    make_folders(key);
    NewFile file(files_, root_ + kNew);
    file.write(bytes);
    if (mark) {
        file.place(path);
    } else if (!file.place_new(path)) {
        return std::nullopt; // put by a writer, who needs no lock
    }
    sync_folder_of(path);
    return mark_of(bytes);
}

void Directory::remove(const std::string &key, const Watch &watch) {
    check_key(key);
    if (!find_folders(key)) {
        return;
    }
    const std::string path = path_of(key);
    const File lock = lock_key(key, watch);
    if (files_.remove(path.c_str()) != 0 && !is_absent(errno) && errno != EISDIR) {
        fail_file(Status::io, FileFailure::remove, path, errno);
    }
}

bool Directory::remove_marked(const std::string &key, const std::string &mark, const Watch &watch) {
    check_key(key);
    const File lock = lock_key(key, watch);
    const std::optional<Marked> there = get_marked(key, watch);
    if (!there || there->mark != mark) {
        return false;
    }
    const std::string path = path_of(key);
    if (files_.remove(path.c_str()) != 0) {
        fail_file(Status::io, FileFailure::remove, path, errno);
    }
    sync_folder_of(path);
    return true;
}

void Directory::list(const std::string &prefix,
                     const std::function<bool(const ListedObject &)> &visit, const Watch &) {
    check_prefix(prefix);
    const std::string folder = prefix.substr(0, prefix.rfind('/') + 1); // npos + 1 is 0
    if (find_folders(folder)) {
        walk(folder, prefix, visit);
    }
}

// Visits what is in a folder ("", or with '/' at its end) and begins with the prefix. False: the
// visitor has seen enough.
bool Directory::walk(const std::string &folder, const std::string &prefix,
                     const std::function<bool(const ListedObject &)> &visit) const {
    const std::string path = path_of(folder);
    std::vector<std::string> names;
    if (files_.list(path.c_str(), &names) != 0) {
        if (is_absent(errno)) {
            return true;
        }
        fail_call(path, "cannot list the directory", errno);
    }
    std::vector<std::pair<std::string, uint64_t>>
        found; // folders end with '/', as their keys go on
    for (const std::string &name : names) {
        const std::string key = folder + name;
        struct stat status {};
        if (!is_key(key) || key.compare(0, prefix.size(), prefix) != 0) {
            continue;
        }
        if (files_.path_status(path_of(key).c_str(), &status) != 0) {
            if (is_absent(errno)) {
                continue;
            }
            fail_call(path_of(key), "cannot look up", errno); // a collector must miss no root
        }
        if (S_ISDIR(status.st_mode)) {
            found.emplace_back(key + "/", 0);
        } else if (S_ISREG(status.st_mode)) {
            found.emplace_back(key, static_cast<uint64_t>(status.st_size));
        }
    }
    std::sort(found.begin(), found.end());
    return std::all_of(found.begin(), found.end(), [&](const auto &each) {
        return each.first.back() == '/' ? walk(each.first, prefix, visit)
                                        : visit({each.first, each.second, {}});
    });
}

} // namespace

std::unique_ptr<Backend> open_directory_backend(const std::string &path,
                                                const FileOperations &files) {
    return std::make_unique<Directory>(path, files);
}

} // namespace stasis::format
