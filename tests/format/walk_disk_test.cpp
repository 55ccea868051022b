// A random walk of saves on one path of a disk that fails, dies and loses power again and again:
// after each step the path holds one of the states that it may. STASIS_SEED repeats a walk,
// STASIS_WALK_STEPS lengthens it.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "crash_scenarios.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const State &state_of(size_t number) {
    static const std::vector<State> states = [] {
        std::vector<State> result;
        for (const uint64_t position : {0, 1, 30, 31, 32, 33, 64, 70, 100, 139, 140}) {
            for (const uint64_t parting : {UINT64_MAX, uint64_t{1}, uint64_t{31}, uint64_t{66}}) {
                if (parting == UINT64_MAX || parting < position) {
                    result.push_back(at(position, parting));
                }
            }
        }
        return result;
    }();
    return states[number % states.size()];
}

Fault some_fault(std::mt19937_64 &dice) {
    static const Blow blows[] = {Blow::kill,    Blow::kill,    Blow::error,   Blow::full,
                                 Blow::partial, Blow::dropped, Blow::evicted, Blow::none};
    static const int errors[] = {EIO, ENOSPC, EINTR, EACCES};
    Fault fault;
    fault.at = static_cast<int>(dice() % 40);
    fault.blow = blows[dice() % std::size(blows)];
    if (fault.blow == Blow::error) { // no other may be EINTR again and again
        fault.error = errors[dice() % std::size(errors)];
    }
    fault.bytes = dice() % 3 == 0 ? 0 : dice() % 5000;
    fault.seed = dice();
    fault.starved = dice() % 8 == 0;
    return fault;
}

struct Walk {
    std::mt19937_64 dice;
    Disk disk = {};
    std::vector<const State *> allowed =
        {}; // states that the file may hold; the first was seen last
    bool may_be_absent = true;
    size_t saved = 0, failed = 0, losses = 0;

    void save_once() {
        const State &state = state_of(dice());
        const auto save = [&](const FileOperations &files) {
            format::save(state, kPath, {.replace = dice() % 10 == 0}, files);
        };
        const bool disturbed = dice() % 4 != 0;
        std::string message;
        const Status status = attempt(disk, save, disturbed ? some_fault(dice) : Fault{}, &message);
        CAPTURE(message);
        disk.restart();
        REQUIRE((disturbed || status == Status::ok));
        if (status == Status::ok) {
            allowed = {&state};
            may_be_absent = false;
            ++saved;
        } else {
            allowed.push_back(&state);
            ++failed;
        }
    }

    void lose_power() {
        static const Loss::Which kinds[] = {Loss::none, Loss::all, Loss::prefix, Loss::random,
                                            Loss::random};
        const Loss loss{kinds[dice() % std::size(kinds)], dice() % (disk.changes() + 1), dice()};
        CAPTURE(static_cast<int>(loss.which));
        CAPTURE(loss.index);
        CAPTURE(loss.seed);
        disk = disk.after(loss);
        ++losses;
        look();
        // The contents that survive a power loss are on the disk.
        const int there = found(disk, allowed);
        may_be_absent = there < 0;
        allowed = there < 0 ? std::vector<const State *>{} : std::vector{allowed[size_t(there)]};
    }

    void look() {
        const int there = found(disk, allowed);
        REQUIRE(there != -2);
        REQUIRE((there >= 0 || may_be_absent));
    }
};

} // namespace

TEST_CASE(
    "save: a random walk of disturbed saves and power losses leaves only states that it may") {
    const char *given = std::getenv("STASIS_SEED");
    const char *longer = std::getenv("STASIS_WALK_STEPS");
    const uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
    const uint64_t steps = longer != nullptr ? std::strtoull(longer, nullptr, 10) : 10000;
    std::printf("walk on a failing disk: seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    Walk walk{std::mt19937_64(seed)};
    for (uint64_t step = 0; step < steps; ++step) {
        CAPTURE(seed);
        CAPTURE(step);
        walk.save_once();
        walk.look();
        if (walk.dice() % 4 == 0) {
            walk.lose_power();
        }
        if (walk.disk.names().empty() || step % 50 == 49) { // not for ever on a disk that grows
            walk.disk = {};
            walk.allowed = {};
            walk.may_be_absent = true;
        }
    }
    std::printf("walk on a failing disk: %zu saves done, %zu disturbed, %zu power losses\n",
                walk.saved, walk.failed, walk.losses);
    CHECK(walk.failed > walk.saved / 4);
}
