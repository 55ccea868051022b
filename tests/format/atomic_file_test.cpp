// A file that appears whole or not at all, on a disk whose operations fail, one at a time, and
// whose power goes.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "disk.h"
#include "format/state/atomic_file.h"

using namespace stasis;
using namespace stasis::format;

namespace {

constexpr uint8_t kAtomicMagic[4] = {'A', 'T', 'O', 'M'};
constexpr AtomicKind kAtomic = {".part", kAtomicMagic, {}};
const char *const kAtomicPath = "/disk/f";

Bytes atomic_bytes(char filling, size_t size_bytes) {
    Bytes bytes(size_bytes, static_cast<uint8_t>(filling));
    std::copy_n(kAtomicMagic, sizeof kAtomicMagic, bytes.begin());
    return bytes;
}

void write_atomic(const FileOperations &files, const Bytes &bytes, bool replace,
                  const AtomicKind &kind = kAtomic) {
    AtomicFile whole(files, kAtomicPath, kind, replace);
    whole.file().write(bytes.data(), bytes.size() / 2, 0);
    whole.file().write(bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2,
                       bytes.size() / 2);
    whole.commit();
}

// Returns the failure that writing under `fault` throws; nothing if it returned.
std::optional<FileFailure> failure_of(Disk &disk, const Bytes &bytes, bool replace,
                                      const Fault &fault) {
    const FileOperations &files = disk.files();
    disk.strike(fault);
    try {
        write_atomic(files, bytes, replace);
        return std::nullopt;
    } catch (const FileError &error) {
        return error.failure();
    }
}

struct AtomicCase {
    const char *name;
    bool old = false;      // a file is there, to be replaced
    bool leftover = false; // an earlier writer was killed
};

const Bytes kOld = atomic_bytes('o', 600), kNew = atomic_bytes('n', 1500);

Disk disk_before(const AtomicCase &given) {
    Disk disk;
    if (given.old) {
        REQUIRE(!failure_of(disk, kOld, false, {}));
    }
    if (given.leftover) {
        Disk whole = disk;
        REQUIRE(!failure_of(whole, kNew, true, {}));
        int second_write = 0;
        for (int writes = 0; writes < 2; ++second_write) {
            writes += std::strcmp(whole.seen().at(second_write).name, "write_at") == 0 ? 1 : 0;
        }
        failure_of(disk, kNew, true, {second_write - 1, Blow::kill});
        disk.restart();
        REQUIRE(disk.exists("f.part"));
    }
    return disk;
}

// The old file, the new one, or, where there was no old one, none; and the next writing works.
void check_whole(Disk disk, const AtomicCase &given, bool must_be_new) {
    disk.restart();
    const Bytes *const there = disk.exists("f") ? &disk.contents("f") : nullptr;
    const bool is_new = there != nullptr && *there == kNew;
    CHECK((is_new ||
           (!must_be_new && (given.old ? there != nullptr && *there == kOld : there == nullptr))));
    CHECK(!failure_of(disk, kNew, true, {}));
    CHECK((disk.names() == std::vector<std::string>{"f"}));
    CHECK((disk.contents("f") == kNew));
}

void check_losses_of(const Disk &disk, const AtomicCase &given, bool must_be_new) {
    check_whole(disk.after({Loss::none}), given, must_be_new);
    check_whole(disk.after({Loss::all}), given, must_be_new);
    for (uint64_t seed = 0; seed < 20; ++seed) {
        check_whole(disk.after({Loss::random, 0, seed}), given, must_be_new);
    }
}

} // namespace

TEST_CASE("AtomicFile: the old file or the whole new one, whichever operation fails") {
    for (const AtomicCase &given :
         {AtomicCase{"a new file"}, AtomicCase{"in the place of an old one", true},
          AtomicCase{"after a killed writer", false, true},
          AtomicCase{"in the place of an old one, after a killed writer", true, true}}) {
        const std::string name = given.name;
        CAPTURE(name);
        const Disk base = disk_before(given);
        Disk whole = base;
        REQUIRE(!failure_of(whole, kNew, given.old, {}));
        CHECK((whole.names() == std::vector<std::string>{"f"}));
        check_losses_of(whole, given, true);
        const auto operations = static_cast<int>(whole.seen().size());
        for (int at = 0; at < operations; ++at) {
            const Operation operation = whole.seen()[static_cast<size_t>(at)];
            const std::string call = operation.name;
            CAPTURE(call);
            const bool sync = std::strcmp(operation.name, "sync") == 0;
            for (const Blow blow :
                 {Blow::error, Blow::kill, Blow::full, Blow::dropped, Blow::evicted}) {
                if (!sync && (blow == Blow::dropped || blow == Blow::evicted)) {
                    continue;
                }
                CAPTURE(static_cast<int>(blow));
                Disk disk = base;
                const auto failure =
                    failure_of(disk, kNew, given.old, {at, blow, EIO, operation.bytes / 2});
                if (blow != Blow::kill && blow != Blow::full) {
                    CHECK(failure.has_value());
                }
                // After the rename the error reports the new file; before it, the old one is
                // untouched.
                const bool placed = !failure || *failure == FileFailure::unsynced;
                if (blow != Blow::kill) {
                    check_whole(disk, given, placed);
                    CHECK((disk.exists("f") && disk.contents("f") == kNew) == placed);
                    // A leftover that could not be looked at or removed stays, no other file does.
                    CHECK((!disk.exists("f.part") || given.leftover));
                }
                check_losses_of(disk, given, !failure);
            }
        }
    }
}

TEST_CASE("AtomicFile: what has appeared meanwhile is not replaced unless it may be") {
    for (const bool known : {true, false}) { // whether the file system can refuse it in one call
        CAPTURE(known);
        Disk disk;
        FileOperations files = disk.files();
        if (!known) {
            files.rename_new = [](const char *, const char *) {
                errno = EINVAL;
                return -1;
            };
        }
        write_atomic(files, kOld, false);
        CHECK((disk.contents("f") == kOld));
        try {
            write_atomic(files, kNew, false);
            FAIL("it was replaced");
        } catch (const FileError &error) {
            CHECK((error.failure() == FileFailure::rename));
            CHECK(error.number() == EEXIST);
        }
        CHECK((disk.contents("f") == kOld));
        CHECK((disk.names() == std::vector<std::string>{"f"}));
    }
}

TEST_CASE("AtomicFile: its mode is the one asked for, or what the mask leaves") {
    Disk disk; // whose mask leaves 0400
    write_atomic(disk.files(), kNew, true, {".part", kAtomicMagic, 0600});
    CHECK(disk.mode("f") == 0600);
    write_atomic(disk.files(), kNew, true);
    CHECK(disk.mode("f") == 0400);
}
