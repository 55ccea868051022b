// The power fails at any operation of a save: whatever subset of the unsynced writes, torn between
// sectors, has reached the disk, the file at the path holds an allowed state, whole, and the next
// save works. Also after a save that failed or was killed.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "crash_scenarios.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

std::vector<Loss> losses(size_t changes, uint64_t random, uint64_t seed) {
    std::vector<Loss> result = {{Loss::none}, {Loss::all}};
    for (size_t i = 0; i < changes; ++i) {
        result.push_back({Loss::alone, i});
        result.push_back({Loss::all_but, i});
        result.push_back({Loss::prefix, i});
    }
    for (uint64_t i = 0; i < random; ++i) {
        result.push_back({Loss::random, 0, seed + i});
    }
    return result;
}

struct Count {
    uint64_t random = 40;             // losses that coins decide, at each moment
    size_t losses = 0;                // injected
    std::set<std::string> disks = {}; // different ones that they left, each looked at once
};

// Tries all losses of a disk: the file holds one of `states` or, unless it must exist, is missing.
void check_losses(const Disk &disk, const std::vector<const State *> &states, bool must,
                  Count &count) {
    for (const Loss &loss : losses(disk.changes(), count.random, count.losses)) {
        Disk rebooted = disk.after(loss);
        ++count.losses;
        if (!count.disks.insert(rebooted.image()).second) {
            continue;
        }
        CAPTURE(static_cast<int>(loss.which));
        CAPTURE(loss.index);
        CAPTURE(loss.seed);
        const int there = found(rebooted, states);
        CHECK(there != -2);
        CHECK((there >= 0 || !must));
        check_next_save(rebooted, at(135));
    }
}

// Runs `save` on `base` up to each of its operations, in the middle of those that write, and past
// the last one, and cuts the power there.
void check_every_moment(const Disk &base, const std::function<void(const FileOperations &)> &save,
                        std::vector<const State *> states, bool must, Count &count) {
    Disk whole = base;
    REQUIRE(attempt(whole, save, {}) == Status::ok);
    const std::vector<Operation> operations = whole.seen();
    for (size_t i = 0; i < operations.size(); ++i) {
        for (const uint64_t bytes : {uint64_t{0}, operations[i].bytes / 2}) {
            CAPTURE(i);
            CAPTURE(operations[i].name);
            CAPTURE(bytes);
            Disk disk = base;
            attempt(disk, save, {static_cast<int>(i), Blow::kill, 5, bytes});
            disk.restart();
            check_losses(disk, states, must, count);
        }
    }
    // A save that returned is durable, whatever came before it.
    Count done;
    check_losses(whole, {states.front()}, true, done);
    count.losses += done.losses;
}

} // namespace

TEST_CASE("save: the power goes at every operation of a save, and any unsynced writes are lost") {
    for (const Scenario &scenario : scenarios()) {
        CAPTURE(scenario.name);
        Count count;
        std::vector<const State *> states = {&scenario.next};
        if (!scenario.earlier.empty()) {
            states.push_back(&scenario.earlier.back());
        }
        check_every_moment(before(scenario), scenario.save, states, !scenario.earlier.empty(),
                           count);
        std::printf("power losses, %s: %zu, leaving %zu different disks\n", scenario.name,
                    count.losses, count.disks.size());
        CHECK(count.losses > 100);
    }
}

// A save that failed, or a process that was killed, may leave bytes that can be read but are not on
// the disk. The next save must not build on them.
TEST_CASE("save: the power goes during the save after one that failed or was killed") {
    for (const Scenario &scenario : scenarios()) {
        if (scenario.leftover) {
            continue;
        }
        CAPTURE(scenario.name);
        const State after = at(135);
        std::vector<const State *> states = {&after, &scenario.next};
        if (!scenario.earlier.empty()) {
            states.push_back(&scenario.earlier.back());
        }
        const Disk base = before(scenario);
        Disk whole = base;
        REQUIRE(attempt(whole, scenario.save, {}) == Status::ok);
        Count count{.random = 4};
        for (size_t i = 0; i < whole.seen().size(); ++i) {
            const bool sync = std::strcmp(whole.seen()[i].name, "sync") == 0;
            for (const Blow blow : {Blow::kill, Blow::dropped, Blow::evicted}) {
                for (uint64_t seed = 0; sync && seed < 2; ++seed) {
                    CAPTURE(static_cast<int>(blow));
                    CAPTURE(seed);
                    Disk disk = base;
                    attempt(disk, scenario.save, {static_cast<int>(i), blow, EIO, 0, seed});
                    disk.restart();
                    const auto save = [&](const FileOperations &files) {
                        format::save(after, kPath, {}, files);
                    };
                    check_every_moment(disk, save, states, !scenario.earlier.empty(), count);
                }
            }
        }
        std::printf("power losses after a failed save, %s: %zu, leaving %zu different disks\n",
                    scenario.name, count.losses, count.disks.size());
    }
}
