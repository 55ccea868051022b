// The operations of a simulated disk; see disk.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "disk.h"
#include "sample.h"

namespace stasis::format {

namespace {

constexpr int kFirstDescriptor = 1000; // none of the system's

Disk *current = nullptr;

// The path below the root, "" for the root.
std::string name_of(const char *path) {
    constexpr std::string_view root = "/disk";
    std::string text = path;
    if (text.size() > 1 && text.back() == '/') {
        text.pop_back();
    }
    if (text.rfind(root, 0) != 0) {
        return text;
    }
    return text.size() > root.size() ? text.substr(root.size() + 1) : "";
}

int fail_with(int error) {
    errno = error;
    return -1;
}

} // namespace

// One call of the system, as the current disk's.
struct DiskCalls {
    Disk &disk = *current;

    DiskCalls() { refuse_memory(false); }
    ~DiskCalls() {
        const auto done = static_cast<int>(disk.operations_.size());
        refuse_memory(disk.fault_.starved && done >= disk.fault_.at);
    }

    int64_t inode_of(int descriptor) const {
        return disk.descriptors_.at(static_cast<size_t>(descriptor - kFirstDescriptor));
    }
    Disk::Inode &file_of(int descriptor) const {
        return disk.inodes_.at(static_cast<uint64_t>(inode_of(descriptor)));
    }

    int descriptor_for(uint64_t inode) {
        disk.descriptors_.push_back(static_cast<int64_t>(inode));
        return kFirstDescriptor + static_cast<int>(disk.descriptors_.size()) - 1;
    }

    int open(const char *path, int flags, mode_t mode) {
        if (disk.fails({"open"})) {
            return -1;
        }
        const auto entry = disk.entries_.find(name_of(path));
        if ((flags & O_DIRECTORY) != 0) {
            const uint64_t inode = entry == disk.entries_.end() ? kRootDirectory : entry->second;
            return inode == kRootDirectory && !name_of(path).empty() ? fail_with(ENOENT)
                   : disk.is_directory(inode)                        ? descriptor_for(inode)
                                                                     : fail_with(ENOTDIR);
        }
        if (entry != disk.entries_.end()) {
            return (flags & O_EXCL) != 0 ? fail_with(EEXIST) : descriptor_for(entry->second);
        }
        if ((flags & O_CREAT) == 0 || !disk.folder_of(name_of(path))) {
            return fail_with(ENOENT);
        }
        if (disk.since(Blow::full)) {
            return fail_with(disk.fault_.error);
        }
        const uint64_t inode = disk.inodes_.size() + 1;
        disk.inodes_[inode].mode = mode & 0400; // under a hostile mask
        disk.enter(name_of(path), inode);
        return descriptor_for(inode);
    }

    void fill(struct stat &status, uint64_t number) const {
        status = {};
        status.st_dev = 1;
        status.st_ino = number;
        if (disk.is_directory(number)) {
            status.st_mode = S_IFDIR | 0700;
            return;
        }
        const Disk::Inode &inode = disk.inodes_.at(number);
        status.st_mode = S_IFREG | inode.mode;
        status.st_nlink = 1;
        status.st_uid = geteuid();
        status.st_size = static_cast<off_t>(inode.now.size());
    }

    // How much a read or write moves; 0: it is interrupted first.
    size_t moved(size_t size_bytes) const {
        if (disk.since(Blow::slow)) {
            return disk.operations_.size() % 3 == 0 ? 0 : std::min(size_bytes, disk.fault_.bytes);
        }
        return disk.struck(Blow::partial) ? std::min(size_bytes, disk.fault_.bytes) : size_bytes;
    }

    ssize_t read_at(int descriptor, void *data, size_t size_bytes, off_t offset) {
        const auto from = static_cast<uint64_t>(offset);
        if (disk.fails({"read_at", from, size_bytes})) {
            return -1;
        }
        const size_t count = moved(size_bytes);
        const Bytes &now = file_of(descriptor).now;
        if (size_bytes > 0 && count == 0) {
            return fail_with(EINTR);
        }
        const size_t begin = std::min<size_t>(from, now.size());
        const size_t had = std::min(count, now.size() - begin);
        std::copy_n(now.data() + begin, had, static_cast<uint8_t *>(data));
        return static_cast<ssize_t>(had);
    }

    void put(int descriptor, const void *data, size_t size_bytes, uint64_t offset) {
        const auto *bytes = static_cast<const uint8_t *>(data);
        Bytes &now = file_of(descriptor).now;
        now.resize(std::max<size_t>(now.size(), offset + size_bytes));
        std::copy_n(bytes, size_bytes, now.data() + offset);
        const auto inode = static_cast<uint64_t>(inode_of(descriptor));
        disk.changes_.push_back(
            {Disk::Change::write, inode, offset, Bytes(bytes, bytes + size_bytes)});
    }

    ssize_t write_at(int descriptor, const void *data, size_t size_bytes, off_t offset) {
        const auto to = static_cast<uint64_t>(offset);
        const bool failed = disk.fails({"write_at", to, size_bytes}) || disk.since(Blow::full);
        const bool struck = disk.struck(Blow::kill) || disk.struck(Blow::full);
        const size_t count =
            failed ? (struck ? std::min(size_bytes, disk.fault_.bytes) : 0) : moved(size_bytes);
        if (count > 0) {
            put(descriptor, data, count, to);
        }
        // A full disk takes what fits, and refuses the next write.
        if (failed && (count == 0 || disk.fault_.blow != Blow::full)) {
            return fail_with(disk.fault_.error);
        }
        return count == 0 && size_bytes > 0 ? fail_with(EINTR) : static_cast<ssize_t>(count);
    }

    int set_size(int descriptor, off_t size_bytes) {
        const auto size = static_cast<uint64_t>(size_bytes);
        if (disk.fails({"set_size", size})) {
            return -1;
        }
        file_of(descriptor).now.resize(size);
        const auto inode = static_cast<uint64_t>(inode_of(descriptor));
        disk.changes_.push_back({Disk::Change::size, inode, size});
        return 0;
    }

    // At once on the disk: no state depends on when.
    int set_mode(int descriptor, mode_t mode) {
        if (disk.fails({"set_mode"})) {
            return -1;
        }
        file_of(descriptor).mode = mode;
        return 0;
    }

    int sync(int descriptor) {
        if (disk.fails({"sync"})) {
            return -1;
        }
        const auto inode = static_cast<uint64_t>(inode_of(descriptor));
        const bool dropped = disk.struck(Blow::dropped) || disk.struck(Blow::evicted);
        if (!dropped) {
            disk.make_durable(inode, {Loss::all});
            return 0;
        }
        if (!disk.is_directory(inode)) { // a journal keeps names for the next sync
            disk.make_durable(inode, {Loss::random, 0, disk.fault_.seed});
        }
        if (!disk.is_directory(inode) && disk.struck(Blow::evicted)) {
            disk.inodes_.at(inode).now = disk.inodes_.at(inode).durable;
        }
        return fail_with(disk.fault_.error);
    }

    int lock(int descriptor) {
        if (disk.fails({"lock"})) {
            return -1;
        }
        const auto inode = static_cast<uint64_t>(inode_of(descriptor));
        const auto held = disk.locks_.emplace(inode, descriptor).first;
        return held->second == descriptor ? 0 : fail_with(EWOULDBLOCK);
    }

    int rename(const char *from, const char *to) {
        return disk.fails({"rename"}) ? -1 : move_entry(from, to);
    }

    int move_entry(const char *from, const char *to) {
        const auto entry = disk.entries_.find(name_of(from));
        if (entry == disk.entries_.end()) {
            return fail_with(ENOENT);
        }
        disk.enter(name_of(to), entry->second);
        disk.enter(name_of(from), 0);
        return 0;
    }

    int rename_new(const char *from, const char *to) {
        if (disk.fails({"rename_new"})) {
            return -1;
        }
        return disk.exists(name_of(to)) ? fail_with(EEXIST) : move_entry(from, to);
    }

    int remove(const char *path) {
        if (disk.fails({"remove"})) {
            return -1;
        }
        if (!disk.exists(name_of(path))) {
            return fail_with(ENOENT);
        }
        disk.enter(name_of(path), 0);
        return 0;
    }

    int status(int descriptor, struct stat *result) {
        if (disk.fails({"status"})) {
            return -1;
        }
        fill(*result, static_cast<uint64_t>(inode_of(descriptor)));
        return 0;
    }

    int path_status(const char *path, struct stat *result) {
        if (disk.fails({"path_status"})) {
            return -1;
        }
        const auto entry = disk.entries_.find(name_of(path));
        if (entry == disk.entries_.end() && !name_of(path).empty()) {
            return fail_with(ENOENT);
        }
        fill(*result, entry == disk.entries_.end() ? kRootDirectory : entry->second);
        return 0;
    }

    int link(const char *from, const char *to) {
        if (disk.fails({"link"})) {
            return -1;
        }
        const auto entry = disk.entries_.find(name_of(from));
        if (entry == disk.entries_.end() || disk.exists(name_of(to))) {
            return fail_with(disk.exists(name_of(to)) ? EEXIST : ENOENT);
        }
        disk.enter(name_of(to), entry->second);
        return 0;
    }

    int make_directory(const char *path) {
        if (disk.fails({"make_directory"})) {
            return -1;
        }
        const std::string name = name_of(path);
        if (name.empty() || disk.exists(name) || !disk.folder_of(name)) {
            return fail_with(disk.exists(name) || name.empty() ? EEXIST : ENOENT);
        }
        if (disk.since(Blow::full)) {
            return fail_with(disk.fault_.error);
        }
        const uint64_t inode = disk.inodes_.size() + 1;
        disk.inodes_[inode].directory = true;
        disk.enter(name, inode);
        return 0;
    }

    int list(const char *path, std::vector<std::string> *names) {
        if (disk.fails({"list"})) {
            return -1;
        }
        const std::string name = name_of(path), begin = name.empty() ? "" : name + "/";
        if (!name.empty() && !disk.exists(name)) {
            return fail_with(ENOENT);
        }
        for (const auto &[each, inode] : disk.entries_) {
            if (each.rfind(begin, 0) == 0 && each.find('/', begin.size()) == each.npos) {
                names->push_back(each.substr(begin.size()));
            }
        }
        return 0;
    }

    int close(int descriptor) {
        const auto number = static_cast<size_t>(descriptor - kFirstDescriptor);
        if (number < disk.descriptors_.size()) { // else the process that had it was killed
            const auto held = disk.locks_.find(static_cast<uint64_t>(disk.descriptors_[number]));
            if (held != disk.locks_.end() && held->second == descriptor) {
                disk.locks_.erase(held);
            }
            disk.descriptors_[number] = -1;
        }
        return 0;
    }
};

const FileOperations &Disk::files() {
    static const FileOperations operations = {
        [](const char *path, int flags, mode_t mode) {
            return DiskCalls().open(path, flags, mode);
        },
        [](int descriptor, struct stat *status) { return DiskCalls().status(descriptor, status); },
        [](const char *path, struct stat *status) { return DiskCalls().path_status(path, status); },
        [](int descriptor, void *data, size_t size_bytes, off_t offset) {
            return DiskCalls().read_at(descriptor, data, size_bytes, offset);
        },
        [](int descriptor, const void *data, size_t size_bytes, off_t offset) {
            return DiskCalls().write_at(descriptor, data, size_bytes, offset);
        },
        [](int descriptor, off_t size_bytes) {
            return DiskCalls().set_size(descriptor, size_bytes);
        },
        [](int descriptor, mode_t mode) { return DiskCalls().set_mode(descriptor, mode); },
        [](int descriptor) { return DiskCalls().sync(descriptor); },
        [](int, off_t, off_t) {}, // what is not synced may last or be lost anyway
        [](int descriptor) { return DiskCalls().lock(descriptor); },
        [](int) { return 0; }, // close does
        [](const char *from, const char *to) { return DiskCalls().rename(from, to); },
        [](const char *from, const char *to) { return DiskCalls().rename_new(from, to); },
        [](const char *path) { return DiskCalls().remove(path); },
        [](int descriptor) { return DiskCalls().close(descriptor); },
        [](int descriptor) { return DiskCalls().lock(descriptor); }, // one process at a time
        [](const char *from, const char *to) { return DiskCalls().link(from, to); },
        [](const char *path, mode_t) { return DiskCalls().make_directory(path); },
        [](const char *path, std::vector<std::string> *names) {
            return DiskCalls().list(path, names);
        },
    };
    current = this;
    return operations;
}

} // namespace stasis::format
