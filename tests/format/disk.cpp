// See disk.h.
#include "disk.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "format/state/digest.h"

namespace stasis::format {

namespace {

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
    changes_.push_back(
        {Change::entry, inode, 0, {}, name, folder_of(name).value_or(kRootDirectory)});
}

bool Disk::is_directory(uint64_t inode) const {
    return inode == kRootDirectory || inodes_.at(inode).directory;
}

// The inode of the directory that a name is in; nothing: there is none.
std::optional<uint64_t> Disk::folder_of(const std::string &name) const {
    const size_t slash = name.rfind('/');
    if (slash == name.npos) {
        return kRootDirectory;
    }
    const auto entry = entries_.find(name.substr(0, slash));
    return entry != entries_.end() && is_directory(entry->second) ? std::optional(entry->second)
                                                                  : std::nullopt;
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

// Ends the changes of a file or a directory.
void Disk::make_durable(uint64_t inode, const Loss &loss) {
    std::vector<Change> others;
    for (size_t i = 0; i < changes_.size(); ++i) {
        const uint64_t of =
            changes_[i].kind == Change::entry ? changes_[i].folder : changes_[i].inode;
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
    disk.entries_.clear();
    for (const auto &[name, inode] : disk.durable_entries_) { // a directory before what is in it
        if (disk.folder_of(name)) {
            disk.entries_[name] = inode;
        }
    }
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

} // namespace stasis::format
