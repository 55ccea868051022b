// See disk.h.
#include "disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "sample.h"

namespace stasis::format {

namespace {

constexpr int kFirstDescriptor = 1000; // none of the system's
constexpr uint64_t kDirectory = 0;

Disk *current = nullptr;

// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// Whether a sector of the change number `index` reaches the disk.
bool spared(const Loss &loss, size_t index, size_t sector) {
    switch (loss.which) {
    case Loss::none:
        return false;
    case Loss::all:
        return true;
    case Loss::alone:
        return index == loss.index;
    case Loss::all_but:
        return index != loss.index;
    case Loss::prefix:
        return index < loss.index;
    case Loss::random:
        return mix(mix(mix(loss.seed) + index) + sector) % 2 == 0;
    }
    return false;
}

std::string name_of(const char *path) {
    const std::string text = path;
    return text.substr(text.rfind('/') + 1);
}

int fail_with(int error) {
    errno = error;
    return -1;
}

} // namespace

bool Disk::struck(Blow blow) const {
    return fault_.blow == blow && static_cast<int>(operations_.size()) - 1 == fault_.at;
}

bool Disk::since(Blow blow) const {
    return fault_.blow == blow && static_cast<int>(operations_.size()) > fault_.at;
}

// Notes the operation that begins now; whether it fails before it has done anything.
bool Disk::fails(const Operation &operation) {
    if (meanwhile_) {
        meanwhile_(operation);
    }
    operations_.push_back(operation);
    errno = fault_.error;
    return since(Blow::kill) || struck(Blow::error);
}

void Disk::strike(const Fault &fault) {
    fault_ = fault;
    operations_.clear();
}

void Disk::restart() {
    strike({});
    descriptors_.clear();
    locks_.clear();
}

void Disk::become(const Disk &other) {
    inodes_ = other.inodes_;
    entries_ = other.entries_;
}

void Disk::enter(const std::string &name, uint64_t inode) {
    if (inode == 0) {
        entries_.erase(name);
    } else {
        entries_[name] = inode;
    }
    changes_.push_back({Change::entry, inode, 0, {}, name});
}

// Returns the part of a change that `loss` spares, as one of a series. Sectors begin with the file.
void Disk::apply(size_t index, const Change &change, const Loss &loss) {
    if (change.kind == Change::entry) {
        if (spared(loss, index, 0)) {
            durable_entries_.erase(change.name);
            if (change.inode != 0) {
                durable_entries_[change.name] = change.inode;
            }
        }
        return;
    }
    Bytes &durable = inodes_[change.inode].durable;
    if (change.kind == Change::size) {
        if (spared(loss, index, 0)) {
            durable.resize(change.offset);
        }
        return;
    }
    const uint64_t end = change.offset + change.data.size();
    for (uint64_t at = change.offset; at < end;) {
        const uint64_t next = std::min(end, (at / kTornBytes + 1) * kTornBytes);
        if (spared(loss, index, at / kTornBytes)) {
            durable.resize(std::max<size_t>(durable.size(), next));
            std::copy_n(change.data.begin() + static_cast<ptrdiff_t>(at - change.offset), next - at,
                        durable.begin() + static_cast<ptrdiff_t>(at));
        }
        at = next;
    }
}

// Ends the changes of a file or, `inode` 0, of the directory.
void Disk::make_durable(uint64_t inode, const Loss &loss) {
    std::vector<Change> others;
    for (size_t i = 0; i < changes_.size(); ++i) {
        const uint64_t of = changes_[i].kind == Change::entry ? kDirectory : changes_[i].inode;
        if (of == inode) {
            apply(i, changes_[i], loss);
        } else {
            others.push_back(std::move(changes_[i]));
        }
    }
    changes_ = std::move(others);
}

// A file may have grown on the disk, but not got its bytes: then it has zeros or other files'
// bytes. A file that had none gets zeros: no file system shows a new file the bytes of others.
void Disk::grow(const Loss &loss) {
    std::map<uint64_t, uint64_t> ends;
    for (const Change &change : changes_) {
        if (change.kind == Change::write && loss.seed % 3 != 0) {
            uint64_t &end = ends[change.inode];
            end = std::max<uint64_t>(end, change.offset + change.data.size());
        }
    }
    for (const auto &[number, end] : ends) {
        Bytes &durable = inodes_[number].durable;
        const uint8_t filling = durable.empty() || loss.seed % 3 == 1 ? 0 : 0x5A;
        durable.resize(std::max<size_t>(durable.size(), end), filling);
    }
}

Disk Disk::after(const Loss &loss) const {
    Disk disk = *this;
    disk.restart();
    if (loss.which == Loss::random) {
        disk.grow(loss);
    }
    for (size_t i = 0; i < changes_.size(); ++i) {
        disk.apply(i, changes_[i], loss);
    }
    disk.changes_.clear();
    disk.entries_ = disk.durable_entries_;
    for (auto &[number, inode] : disk.inodes_) {
        inode.now = inode.durable;
    }
    return disk;
}

std::vector<std::string> Disk::names() const {
    std::vector<std::string> names;
    for (const auto &[name, inode] : entries_) {
        names.push_back(name);
    }
    return names;
}

const Bytes &Disk::contents(const std::string &name) const {
    return inodes_.at(entries_.at(name)).now;
}

mode_t Disk::mode(const std::string &name) const {
    return inodes_.at(entries_.at(name)).mode;
}

std::string Disk::image() const {
    Sha256 hash;
    for (const auto &[name, number] : entries_) {
        const Inode &inode = inodes_.at(number);
        hash.text(name).u64(number).u64(inode.now.size()).bytes(inode.now.data(), inode.now.size());
    }
    return to_hex(hash.finish());
}

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
        if ((flags & O_DIRECTORY) != 0) {
            return descriptor_for(kDirectory);
        }
        const auto entry = disk.entries_.find(name_of(path));
        if (entry != disk.entries_.end()) {
            return (flags & O_EXCL) != 0 ? fail_with(EEXIST) : descriptor_for(entry->second);
        }
        if ((flags & O_CREAT) == 0) {
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
        const Disk::Inode &inode = disk.inodes_.at(number);
        status = {};
        status.st_dev = 1;
        status.st_ino = number;
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
        if (inode != kDirectory) { // a journal keeps names for the next sync
            disk.make_durable(inode, {Loss::random, 0, disk.fault_.seed});
        }
        if (inode != kDirectory && disk.struck(Blow::evicted)) {
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
        if (entry == disk.entries_.end()) {
            return fail_with(ENOENT);
        }
        fill(*result, entry->second);
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
        [](int) { return fail_with(ENOSYS); }, // what is written here needs one directory
        [](const char *, const char *) { return fail_with(ENOSYS); },
        [](const char *, mode_t) { return fail_with(ENOSYS); },
        [](const char *, std::vector<std::string> *) { return fail_with(ENOSYS); },
    };
    current = this;
    return operations;
}

} // namespace stasis::format
