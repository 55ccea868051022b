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

// What the file at the path opens as, all its pages read; zero if there is none.
Digest found_at(const std::string &path) {
    return std::filesystem::exists(path) ? load(path, {}).digest : Digest{};
}

// The operations of a save of the new state.
std::vector<std::string> operations_of_save(const std::string &path) {
    save(new_state(), path, {}, faulty_files({}));
    return operations_seen();
}

bool has_parts(const std::vector<std::string> &seen, const std::vector<std::string> &begin,
               const std::vector<std::string> &end) {
    return seen.size() >= begin.size() + end.size() &&
           std::equal(begin.begin(), begin.end(), seen.begin()) &&
           std::equal(end.rbegin(), end.rend(), seen.rbegin());
}

} // namespace

TEST_CASE("a save uses its operations in the order that makes it safe") {
    const ScratchFolder folder;
    // Nothing there; create, lock and look whether it is still there; still nothing there; write
    // the sections, then the slot; make them last; rename; make that last.
    const std::vector<std::string> first = operations_of_save(folder.path("s"));
    CHECK(has_parts(first, {"path_status", "open", "lock", "path_status", "status", "path_status"},
                    {"write_at", "write_at", "open", "sync", "rename", "sync"}));
    // Open what is there, lock it and look whether it still is. At the end: sections and the slot
    // in force, made to last together with the directory; then the other slot.
    save(old_state(), folder.path("t"), {});
    const std::vector<std::string> later = operations_of_save(folder.path("t"));
    CHECK(has_parts(later, {"path_status", "open", "lock", "path_status", "status"},
                    {"write_at", "write_at", "sync", "sync", "write_at", "sync"}));
    CHECK(std::count(later.begin(), later.end(), "write_at") == 3);
    CHECK(std::find(later.begin(), later.end(), "set_size") == later.end());
}

TEST_CASE("every single operation of a save may fail, with any error") {
    for (bool existing : {false, true}) {
        for (int error : {EIO, ENOSPC, EDQUOT, EACCES}) {
            for (bool torn : {false, true}) {
                bool reached = true;
                for (int at = 0; reached; ++at) {
                    const ScratchFolder folder;
                    const std::string path = folder.path("s.stasis");
                    if (existing) {
                        save(old_state(), path, {});
                    }
                    const Status status =
                        save_under({.at = at, .error = error, .torn = torn}, path);
                    const auto &seen = operations_seen();
                    reached = static_cast<size_t>(at) < seen.size();
                    CAPTURE(at);
                    CAPTURE(error);
                    const Digest found = found_at(path);
                    if (!reached) {
                        CHECK(status == Status::ok);
                        CHECK(found == new_state().digest);
                        continue;
                    }
                    CAPTURE(seen[static_cast<size_t>(at)]);
                    // Only the last sync fails when the new state is in place already.
                    const auto syncs = std::count(seen.begin(), seen.begin() + at, "sync");
                    const bool last =
                        seen[static_cast<size_t>(at)] == "sync" && syncs == (existing ? 2 : 1);
                    const bool harmless = existing &&
                                          seen[static_cast<size_t>(at)] == "path_status" &&
                                          status == Status::ok; // the look for a leftover
                    if (!harmless) {
                        CHECK(status == Status::io);
                    }
                    CHECK(found == (last || harmless ? new_state().digest
                                    : existing       ? old_state().digest
                                                     : Digest{}));
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
    for (bool replace : {false, true}) {
        bool reached = true;
        for (int at = 0; reached; ++at) {
            const ScratchFolder folder;
            const std::string path = folder.path("s.stasis");
            save(old_state(), path, {});
            try {
                save(new_state(), path, {.replace = replace},
                     faulty_files({.at = at, .dead = true, .torn = true}));
            } catch (const Error &) {
            }
            reached = static_cast<size_t>(at) < operations_seen().size();
            CAPTURE(at);
            const Digest found = found_at(path);
            CHECK((found == old_state().digest || found == new_state().digest));
            save(new_state(), path, {});
            check_same(new_state(), load(path, {}));
            CHECK(folder.names() == std::vector<std::string>{"s.stasis"});
        }
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
