// Whatever operation of a save fails, and wherever it is killed, the file at the path is the old
// one or the new one, whole.
#include "faults.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const State &old_state() {
    static const State state = sample_state({.position = 40});
    return state;
}
const State &new_state() {
    static const State state = sample_state({.position = 70});
    return state;
}

// Runs a save under a fault; the status it ended with.
Status save_under(const Fault &fault, const std::string &path) {
    try {
        save(new_state(), path, {}, faulty_files(fault));
        return Status::ok;
    } catch (const Error &error) {
        return error.status();
    }
}

} // namespace

TEST_CASE("a save uses its operations in the order that makes it safe") {
    const ScratchFolder folder;
    save(new_state(), folder.path("s"), {}, faulty_files({}));
    std::vector<std::string> seen = operations_seen();
    // Create, lock and look whether it is still there; nothing there before; write; then make it
    // last.
    const std::vector<std::string> begin = {"open", "lock", "path_status", "status", "path_status"};
    const std::vector<std::string> end = {"write_at", "open", "sync", "rename", "sync"};
    REQUIRE(seen.size() > begin.size() + end.size());
    CHECK(std::equal(begin.begin(), begin.end(), seen.begin()));
    CHECK(std::equal(end.begin(), end.end(), seen.end() - 5));
    const auto renamed = std::find(seen.begin(), seen.end(), "rename");
    CHECK(std::find(renamed, seen.end(), "write_at") == seen.end());
}

TEST_CASE("every single operation of a save may fail, with any error") {
    const Bytes old_bytes = saved(old_state());
    const Bytes new_bytes = saved(new_state());
    for (bool existing : {false, true}) {
        for (int error : {EIO, ENOSPC, EDQUOT, EACCES}) {
            for (bool torn : {false, true}) {
                bool reached = true;
                for (int at = 0; reached; ++at) {
                    const ScratchFolder folder;
                    const std::string path = folder.path("s.stasis");
                    if (existing) {
                        write_bytes(path, old_bytes);
                    }
                    const Status status =
                        save_under({.at = at, .error = error, .torn = torn}, path);
                    const auto &seen = operations_seen();
                    reached = static_cast<size_t>(at) < seen.size();
                    CAPTURE(at);
                    CAPTURE(error);
                    const Bytes found = read_bytes(path);
                    if (!reached) {
                        CHECK(status == Status::ok);
                        CHECK(found == new_bytes);
                        continue;
                    }
                    CAPTURE(seen[static_cast<size_t>(at)]);
                    CHECK(status == Status::io);
                    const bool renamed =
                        std::find(seen.begin(), seen.begin() + at, "rename") != seen.begin() + at;
                    CHECK(found == (renamed ? new_bytes : existing ? old_bytes : Bytes{}));
                    CHECK(std::filesystem::exists(path) == (existing || renamed));
                    CHECK(!std::filesystem::exists(path + ".saving"));
                }
            }
        }
    }
}

TEST_CASE("once renamed, only the sync of the directory can fail, and says where the file is") {
    const ScratchFolder folder;
    const std::string path = folder.path("s.stasis");
    save(new_state(), path, {}, faulty_files({}));
    const int last = static_cast<int>(operations_seen().size()) - 1;
    std::filesystem::remove(path);
    const auto starved = [&](int at) {
        const FileOperations &files = faulty_files({.at = at, .starved = true});
        try {
            save(new_state(), path, {}, files);
            refuse_memory(false);
            return std::string();
        } catch (const std::exception &error) { // std::bad_alloc, too
            refuse_memory(false);
            return std::string(error.what());
        }
    };
    CHECK(starved(-1) == "");
    std::filesystem::remove(path);
    CHECK(starved(last) == path + ": the new file is in place, but may not survive a power loss: "
                                  "cannot sync its directory");
    CHECK(read_bytes(path) == saved(new_state()));
    CHECK(!std::filesystem::exists(path + ".saving"));
}

TEST_CASE("a save that dies at any operation leaves the old file, and the next save succeeds") {
    const Bytes old_bytes = saved(old_state());
    const Bytes new_bytes = saved(new_state());
    bool reached = true;
    for (int at = 0; reached; ++at) {
        const ScratchFolder folder;
        const std::string path = folder.path("s.stasis");
        write_bytes(path, old_bytes);
        save_under({.at = at, .dead = true, .torn = true}, path);
        reached = static_cast<size_t>(at) < operations_seen().size();
        CAPTURE(at);
        const Bytes found = read_bytes(path);
        CHECK((found == old_bytes || found == new_bytes));
        save(new_state(), path, {});
        CHECK(read_bytes(path) == new_bytes);
        CHECK(folder.names() == std::vector<std::string>{"s.stasis"});
    }
}

TEST_CASE("short counts and interruptions change nothing") {
    const ScratchFolder folder;
    const std::string path = folder.path("s.stasis");
    const State state = sample_state({.position = 150, .head_dim = 32});
    save(state, path, {}, faulty_files({.short_counts = true}));
    CHECK(read_bytes(path) == saved(state));
    check_same(state, load(path, {}, faulty_files({.short_counts = true})));
}

TEST_CASE("every single operation of a load may fail") {
    const ScratchFolder folder;
    save(old_state(), folder.path("s"), {});
    bool reached = true;
    for (int at = 0; reached; ++at) {
        try {
            load(folder.path("s"), {}, faulty_files({.at = at}));
            reached = false;
        } catch (const Error &error) {
            CHECK(error.status() == Status::io);
        }
        CHECK(reached == (static_cast<size_t>(at) < operations_seen().size()));
    }
}

TEST_CASE("kill -9 at any moment leaves a whole file") {
    const ScratchFolder folder;
    const std::string path = folder.path("s.stasis");
    save(old_state(), path, {});
    for (useconds_t round = 0; round < 20; ++round) {
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            for (;;) {
                save(old_state(), path, {});
                save(new_state(), path, {});
            }
        }
        usleep(3000 + round * 997);
        kill(child, SIGKILL);
        int status = 0;
        waitpid(child, &status, 0);
        REQUIRE(WIFSIGNALED(status));
        const Digest digest = load(path, {}).digest;
        CHECK((digest == old_state().digest || digest == new_state().digest));
    }
    save(new_state(), path, {});
    CHECK(folder.names() == std::vector<std::string>{"s.stasis"});
}
