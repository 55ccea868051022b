// A disk in memory under FileOperations, whose root is /disk: the view of processes, the contents
// that would be left if the power failed now, and a fault at a chosen operation. Counts every call
// except close. Must not know snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forgery.h"
#include "format/state/file.h"

namespace stasis::format {

inline constexpr size_t kTornBytes = 512;     // of a block, what a disk writes whole
inline constexpr uint64_t kRootDirectory = 0; // its inode

enum class Blow {
    none,
    kill,    // the process ends: neither this operation nor a later one touches the disk
    error,   // this operation fails with Fault::error
    full,    // from this call on, creating and writing fail with Fault::error, after Fault::bytes
    partial, // this read or write moves Fault::bytes at most
    slow, // from this call on, reads and writes move Fault::bytes at most, and some are interrupted
    dropped, // this sync fails; of what it was to write, the part that Fault::seed picks reaches
             // the disk, the rest never will, although it can still be read (as Linux does)
    evicted, // as dropped, and what can be read afterwards is what reached the disk
};

struct Fault {
    int at = -1; // index of the operation
    Blow blow = Blow::none;
    int error = 5;    // EIO
    size_t bytes = 0; // see Blow; those that a write has moved which is the process's last
    uint64_t seed = 0;
    bool starved = false; // nobody but the disk gets memory once the operation before is done
};

// Selects which of the unsynced changes a power loss spares, in the order they were made.
struct Loss {
    enum Which { none, all, alone, all_but, prefix, random } which = none;
    size_t index = 0;  // of the change spared alone, or lost alone, or of the first one lost
    uint64_t seed = 0; // random: a coin for each sector of 512 bytes
};

struct Operation {
    const char *name;
    uint64_t offset = 0, bytes = 0; // of reads and writes; set_size: the new size
};

// A value: a copy is another disk that holds the same.
class Disk {
  public:
    // Operations on this disk, until another's are asked for.
    const FileOperations &files();
    // The next operation is number 0.
    void strike(const Fault &fault);
    const std::vector<Operation> &seen() const { return operations_; } // since then
    // All processes ended: nothing is open, and no fault is left.
    void restart();
    // Called before each operation: what other processes do in between.
    void meanwhile(std::function<void(const Operation &next)> act) { meanwhile_ = std::move(act); }
    // From now on processes see here what they would on `other`; what is open stays open.
    void become(const Disk &other);
    // The disk once the power went now and came back.
    Disk after(const Loss &loss) const;
    size_t changes() const { return changes_.size(); } // not yet synced

    std::vector<std::string> names() const; // sorted
    bool exists(const std::string &name) const { return entries_.count(name) != 0; }
    const Bytes &contents(const std::string &name) const;
    mode_t mode(const std::string &name) const;
    uint64_t number(const std::string &name) const { return entries_.at(name); } // of the inode
    std::string image() const; // equal for disks that processes cannot tell apart

  private:
    friend struct DiskCalls; // the operations
    struct Inode {
        mode_t mode = 0;
        Bytes now, durable;
        bool directory = false;
    };
    struct Change {
        enum Kind { write, size, entry } kind;
        uint64_t inode;      // entry: what the name leads to from now on; 0: nothing
        uint64_t offset = 0; // size: the new size
        Bytes data = {};
        std::string name = {};
        uint64_t folder = 0; // entry: the inode that has it
    };

    bool fails(const Operation &operation);
    bool struck(Blow blow) const;
    bool since(Blow blow) const;
    void enter(const std::string &name, uint64_t inode);
    bool is_directory(uint64_t inode) const;
    std::optional<uint64_t> folder_of(const std::string &name) const;
    void make_durable(uint64_t inode, const Loss &loss);
    void grow(const Loss &loss);
    void apply(size_t index, const Change &change, const Loss &loss);

    std::map<uint64_t, Inode> inodes_;
    std::map<std::string, uint64_t> entries_, durable_entries_;
    std::vector<Change> changes_;
    std::vector<int64_t> descriptors_; // inode; 0: the root directory, -1: closed
    std::map<uint64_t, int> locks_;    // inode to the descriptor that holds it
    Fault fault_;
    std::vector<Operation> operations_;
    std::function<void(const Operation &next)> meanwhile_;
};

} // namespace stasis::format
