// Changes by others to the path of a save: a second process that saves, links, directories and
// devices in its place, a directory or a file that is exchanged during it. On the system's own
// files.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "crash_scenarios.h"
#include "format/reader.h"
#include "format/writer.h"
#include "tests/data_files.h"

using namespace stasis;
using namespace stasis::format;
namespace fs = std::filesystem;

namespace {

Status save_at(const std::string &path, uint64_t position, bool replace = false,
               const FileOperations &files = system_files()) {
    try {
        save(at(position), path, {.replace = replace}, files);
        return Status::ok;
    } catch (const Error &error) {
        return error.status();
    }
}

// A process of its own that runs `work` until it ends or is killed.
template <class Work> pid_t process(const Work &work) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        try {
            work();
            _exit(0);
        } catch (...) {
            _exit(1);
        }
    }
    return child;
}

int end_of(pid_t child) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}

mode_t mode_of(const std::string &path) {
    struct stat status {};
    REQUIRE(lstat(path.c_str(), &status) == 0);
    return status.st_mode & 07777;
}

// The system's operations, with something done by another process at a chosen moment of a save.
struct Intrusion {
    std::string operation; // before the first of these
    std::string part;      // that concerns a path with this in it; "": any
    std::function<void()> act;
};
Intrusion intrusion;

void reach(const char *operation, const char *path) {
    if (intrusion.act != nullptr && intrusion.operation == operation &&
        std::strstr(path, intrusion.part.c_str()) != nullptr) {
        const std::function<void()> act = std::exchange(intrusion.act, nullptr);
        act();
    }
}

const FileOperations &intruded(const Intrusion &by) {
    static const FileOperations operations = [] {
        FileOperations files = system_files();
        files.open = [](const char *path, int flags, mode_t mode) {
            reach("open", path);
            return system_files().open(path, flags, mode);
        };
        files.lock = [](int descriptor) {
            reach("lock", "");
            return system_files().lock(descriptor);
        };
        files.rename = [](const char *from, const char *to) {
            reach("rename", from);
            return system_files().rename(from, to);
        };
        return files;
    }();
    intrusion = by;
    return operations;
}

} // namespace

TEST_CASE("save: of two processes that save one path, one is refused at a time, and the file stays "
          "whole") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    pid_t children[2];
    for (pid_t &child : children) {
        const uint64_t first = &child == children ? 40 : 70;
        child = process([&] {
            for (int done = 0; done < 60;) {
                const Status status = save_at(path, first + static_cast<uint64_t>(done % 3));
                if (status != Status::ok && status != Status::busy) {
                    _exit(2);
                }
                done += status == Status::ok ? 1 : 0;
            }
        });
    }
    for (int looks = 0; looks < 200; ++looks) {
        if (fs::exists(path)) {
            const uint64_t position = load(path, {}).log.size();
            CHECK((position / 10 == 4 || position / 10 == 7));
        }
    }
    CHECK(end_of(children[0]) == 0);
    CHECK(end_of(children[1]) == 0);
    CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE(
    "save: kill -9 of a process that saves without end leaves a whole file, free to be saved") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    REQUIRE(save_at(path, 40) == Status::ok);
    for (useconds_t round = 0; round < 30; ++round) {
        const pid_t child = process([&] {
            for (uint64_t i = 0;; ++i) {
                save_at(path, i % 2 == 0 ? 70 : 40);
            }
        });
        usleep(2000 + round * 997);
        kill(child, SIGKILL);
        REQUIRE(WIFSIGNALED(end_of(child)));
        const State there = load(path, {});
        check_same(at(there.log.size()), there);
        REQUIRE(save_at(path, 55) == Status::ok); // the lock has gone with its process
        check_same(at(55), load(path, {}));
    }
    CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("save: a file is for its owner alone, whatever the mask of the process says") {
    for (const mode_t mask : {0, 077, 0177, 0277, 0777}) {
        CAPTURE(mask);
        const ScratchFolder folder;
        const mode_t before = umask(mask);
        const Status first = save_at(folder.path("s"), 40);
        const Status later = save_at(folder.path("s"), 70);
        umask(before);
        CHECK(first == Status::ok);
        CHECK(later == Status::ok);
        CHECK(mode_of(folder.path("s")) == 0600);
    }
}

TEST_CASE("save: what is no regular file is neither written to nor replaced, under either name") {
    for (const bool replace : {false, true}) {
        for (const char *name : {"s", "s.saving"}) {
            const ScratchFolder folder;
            const std::string at_name = folder.path(name);
            const std::string victim = folder.path("victim");
            write_bytes(victim, {1, 2, 3});
            const auto refused = [&](const char *what) {
                CAPTURE(what);
                CAPTURE(name);
                const auto names = folder.names();
                CHECK(save_at(folder.path("s"), 40, replace) != Status::ok);
                CHECK(folder.names() == names);
                CHECK(read_bytes(victim) == Bytes{1, 2, 3});
                fs::remove(at_name);
            };
            fs::create_symlink(victim, at_name);
            refused("a link to a file");
            fs::create_symlink(folder.path("nowhere"), at_name);
            refused("a link to nothing");
            fs::create_symlink(at_name, at_name);
            refused("a link to itself");
            fs::create_directory(at_name);
            refused("a directory");
            REQUIRE(mkfifo(at_name.c_str(), 0600) == 0);
            refused("a pipe");
            if (mknod(at_name.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) { // root alone may
                refused("the null device");
            }
        }
    }
}

TEST_CASE(
    "save: a file that is put in another's place between opening and locking is not written to") {
    for (const bool replace : {false, true}) {
        const ScratchFolder folder;
        const std::string path = folder.path("s");
        const std::string other = folder.path("other");
        REQUIRE(save_at(path, 40) == Status::ok);
        REQUIRE(save_at(other, 50) == Status::ok);
        fs::create_hard_link(path, folder.path("old"));
        const Bytes old = read_bytes(path);
        const auto swap = [&] { fs::rename(other, path); };
        CHECK(save_at(path, 70, replace, intruded({"lock", "", swap})) == Status::ok);
        CHECK(intrusion.act == nullptr);
        check_same(at(70), load(path, {})); // it began again with the one that is there
        CHECK(read_bytes(folder.path("old")) == old);
    }
}

TEST_CASE("save: a link that is put in the file's place in the midst of a save is not followed") {
    for (const char *operation : {"open", "lock", "rename"}) {
        for (const bool existing : {false, true}) {
            CAPTURE(operation);
            CAPTURE(existing);
            const ScratchFolder folder;
            const std::string path = folder.path("s");
            write_bytes(folder.path("victim"), {1, 2, 3});
            if (existing) {
                REQUIRE(save_at(path, 40) == Status::ok);
            }
            save_at(path, 70, false, intruded({operation, "", [&] {
                                                   fs::remove(path);
                                                   fs::create_symlink(folder.path("victim"), path);
                                               }}));
            CHECK(read_bytes(folder.path("victim")) == Bytes{1, 2, 3});
            CHECK(!fs::exists(path + ".saving"));
        }
    }
}

TEST_CASE("save: a directory that is put in another's place in the midst of a save: whole files in "
          "both") {
    for (const char *operation : {"open", "lock", "rename"}) {
        for (const bool existing : {false, true}) {
            CAPTURE(operation);
            CAPTURE(existing);
            const ScratchFolder folder;
            fs::create_directory(folder.path("d"));
            const std::string path = folder.path("d/s"), moved = folder.path("moved/s");
            if (existing) {
                REQUIRE(save_at(path, 40) == Status::ok);
            }
            const Status status = save_at(
                path, 70, false, intruded({operation, "", [&] {
                                               fs::rename(folder.path("d"), folder.path("moved"));
                                               fs::create_directory(folder.path("d"));
                                           }}));
            CHECK((status == Status::ok || status == Status::io));
            if (std::exchange(intrusion.act, nullptr) != nullptr) {
                continue; // a commit renames nothing
            }
            const bool here = fs::exists(path), there = fs::exists(moved);
            CHECK((here || there || status != Status::ok));
            CHECK((there || !existing));
            if (here) {
                check_same(at(70), load(path, {}));
            }
            if (there) {
                const State state = load(moved, {});
                check_same(at(here || status != Status::ok ? 40 : 70), state);
            }
        }
    }
}
