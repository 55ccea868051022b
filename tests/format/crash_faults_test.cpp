// Any operation of a save fails, once or for good, or is the last one of its process: the file at
// the path holds the old or the new state, whole, and the next save works.
#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "crash_scenarios.h"
#include "format/reader.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

bool is(const Operation &operation, const char *name) {
    return std::strcmp(operation.name, name) == 0;
}

std::vector<Fault> faults_at(int at, const Operation &operation) {
    std::vector<Fault> faults = {
        {at, Blow::error, EIO},
        {at, Blow::error, EINTR},
        {at, Blow::kill},
        {.at = at, .starved = true},
        {.at = at, .blow = Blow::error, .starved = true},
    };
    if (is(operation, "read_at")) {
        faults.push_back({at, Blow::partial, EIO, operation.bytes / 2});
        return faults;
    }
    for (const int error : {ENOSPC, EDQUOT, EACCES}) {
        faults.push_back({at, Blow::error, error});
    }
    faults.push_back({at, Blow::full, ENOSPC});
    if (is(operation, "write_at")) {
        for (const size_t bytes : {size_t{1}, size_t{511}, operation.bytes / 2, operation.bytes}) {
            faults.push_back({at, Blow::full, ENOSPC, bytes});
            faults.push_back({at, Blow::kill, EIO, bytes});
            faults.push_back({at, Blow::partial, EIO, bytes});
        }
    }
    for (uint64_t seed = 0; is(operation, "sync") && seed < 8; ++seed) {
        faults.push_back({at, Blow::dropped, EIO, 0, seed});
        faults.push_back({at, Blow::evicted, EIO, 0, seed});
    }
    return faults;
}

std::vector<Operation> operations_of(const Scenario &scenario, Disk disk) {
    REQUIRE(attempt(disk, scenario.save, {}) == Status::ok);
    std::vector<Operation> operations = disk.seen();
    CHECK(found(disk, {&scenario.next}) == 0);
    return operations;
}

// The states that a failed save may leave: the one before (none: -1), and the new one.
std::vector<const State *> allowed(const Scenario &scenario) {
    std::vector<const State *> states = {&scenario.next};
    if (!scenario.earlier.empty()) {
        states.push_back(&scenario.earlier.back());
    }
    return states;
}

// The file holds an allowed state, which is the new one if the save reported success.
void check_found(Disk &disk, const Scenario &scenario, Status status) {
    const int there = found(disk, allowed(scenario));
    CHECK(there != -2);
    CHECK((there != -1 || scenario.earlier.empty()));
    CHECK((there == 0 || status != Status::ok));
}

// `looked_at`: disks after a power loss, and what is asked of them.
void check_fault(const Scenario &scenario, Disk disk, const Fault &fault, bool last,
                 std::set<std::string> &looked_at) {
    std::string message;
    const Status status = attempt(disk, scenario.save, fault, &message);
    CAPTURE(message);
    const auto struck = static_cast<size_t>(fault.at);
    const bool kept = struck < disk.seen().size() && is(disk.seen()[struck], "remove");
    disk.restart();
    check_found(disk, scenario, status);
    const bool alive = fault.blow != Blow::kill;
    if (alive && status != Status::ok) {
        // The new state may only be there where the last step failed, and then the message says so.
        const bool same =
            !scenario.earlier.empty() && scenario.earlier.back().digest == scenario.next.digest;
        const bool old = same || found(disk, allowed(scenario)) != 0;
        CHECK((old || (last && message.find("may not survive a power loss") != std::string::npos)));
        CHECK((!disk.exists("s.stasis.saving") || scenario.leftover || kept));
    }
    for (const Loss::Which which : {Loss::none, Loss::all}) {
        Disk rebooted = disk.after({which});
        if (!looked_at.insert(rebooted.image() + (status == Status::ok ? "new" : "any")).second) {
            continue;
        }
        check_found(rebooted, scenario, status);
        check_next_save(rebooted, at(135));
    }
    check_next_save(disk, at(135));
}

} // namespace

TEST_CASE("save: every operation of a save may fail in every way, or be its process's last") {
    size_t count = 0;
    for (const Scenario &scenario : scenarios()) {
        CAPTURE(scenario.name);
        const Disk base = before(scenario);
        std::set<std::string> looked_at;
        const std::vector<Operation> operations = operations_of(scenario, base);
        REQUIRE(is(operations.back(), "status")); // the stamp; before it the last sync
        for (size_t i = 0; i < operations.size(); ++i) {
            for (const Fault &fault : faults_at(static_cast<int>(i), operations[i])) {
                CAPTURE(i);
                CAPTURE(operations[i].name);
                CAPTURE(static_cast<int>(fault.blow));
                CAPTURE(fault.error);
                CAPTURE(fault.bytes);
                CAPTURE(fault.seed);
                CAPTURE(fault.starved);
                check_fault(scenario, base, fault, i + 2 == operations.size(), looked_at);
                ++count;
            }
        }
    }
    std::printf("faults: %zu injected\n", count);
    CHECK(count > 1000);
}

TEST_CASE("save: a save writes and syncs as often as it must, and no more") {
    const auto calls = [](const Disk &disk, const char *name) {
        return std::count_if(disk.seen().begin(), disk.seen().end(),
                             [&](const Operation &operation) { return is(operation, name); });
    };
    Disk disk;
    const auto save_at = [&](uint64_t position) {
        const auto saving = [&](const FileOperations &files) {
            save(at(position), kPath, {}, files);
        };
        CHECK(attempt(disk, saving, {}) == Status::ok);
    };
    save_at(40); // sections, slot; file, directory
    CHECK(calls(disk, "write_at") == 2);
    CHECK(calls(disk, "sync") == 2);
    save_at(70); // sections, the slot in force, zeros; file, directory; the other slot, file
    CHECK(calls(disk, "write_at") == 4);
    CHECK(calls(disk, "sync") == 3);
    save_at(90); // the other slot is good: no zeros
    CHECK(calls(disk, "write_at") == 3);
    CHECK(calls(disk, "sync") == 3);
    CHECK(calls(disk, "set_size") == 0);
    CHECK(calls(disk, "rename") == 0);
}

TEST_CASE("save: short counts and interruptions change nothing") {
    for (const size_t bytes : {size_t{1}, size_t{999}}) {
        for (const Scenario &scenario : scenarios()) {
            CAPTURE(scenario.name);
            Disk disk = before(scenario), other = disk;
            CHECK(attempt(disk, scenario.save, {0, Blow::slow, EIO, bytes}) == Status::ok);
            CHECK(attempt(other, scenario.save, {}) == Status::ok);
            CHECK(disk.contents("s.stasis") == other.contents("s.stasis"));
            disk.strike({0, Blow::slow, EIO, bytes});
            check_same(scenario.next, load(kPath, {}, disk.files()));
        }
    }
}

TEST_CASE("Snapshot::open: every operation of a load may fail") {
    Disk disk = before({"", {at(40), at(100)}, {}, {}});
    const auto loading = [](const FileOperations &files) { load(kPath, {}, files); };
    REQUIRE(attempt(disk, loading, {}) == Status::ok);
    const auto operations = static_cast<int>(disk.seen().size());
    CHECK(operations > 10);
    for (int i = 0; i < operations; ++i) {
        CAPTURE(i);
        CHECK(attempt(disk, loading, {i, Blow::error}) == Status::io);
        const Status starved = attempt(disk, loading, {.at = i, .starved = true});
        CHECK((starved == Status::no_memory || i + 1 == operations));
    }
}

TEST_CASE("save: a commit touches nothing of what the file holds but the older root slot") {
    size_t commits = 0;
    for (const Scenario &scenario : scenarios()) {
        CAPTURE(scenario.name);
        const Disk base = before(scenario);
        Disk whole = base;
        REQUIRE(attempt(whole, scenario.save, {}) == Status::ok);
        if (!base.exists("s.stasis") || whole.number("s.stasis") != base.number("s.stasis")) {
            continue; // another file has taken its place
        }
        ++commits;
        const Bytes &old = base.contents("s.stasis");
        for (int i = 0; i <= static_cast<int>(whole.seen().size()); ++i) {
            CAPTURE(i);
            Disk disk = base;
            attempt(disk, scenario.save, {i, Blow::kill, EIO, 2000});
            const Bytes &now = disk.contents("s.stasis");
            REQUIRE(now.size() >= old.size());
            CHECK(std::equal(old.begin(), old.begin() + kSlotA, now.begin()));
            CHECK(
                std::equal(old.begin() + kSectionsBegin, old.end(), now.begin() + kSectionsBegin));
            const auto same = [&](uint64_t slot) {
                return std::equal(old.begin() + slot, old.begin() + slot + kBlockBytes,
                                  now.begin() + slot);
            };
            const bool a_is_older = scenario.earlier.size() % 2 == 0;
            CHECK(same(a_is_older ? kSlotB : kSlotA));
        }
    }
    CHECK(commits >= 6);
}
