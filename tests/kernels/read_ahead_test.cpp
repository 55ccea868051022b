// How a kernel finds out whether to fetch ahead (read_ahead.h), with a clock of the test's own.
#include "runtime/kernels/read_ahead.h"

#include <doctest/doctest.h>

using stasis::kernels::Pace;

namespace {

uint64_t now = 0;

// Calls `count` times a work of 64 bytes that takes so long; returns how many calls fetched.
unsigned fetched(Pace &pace, unsigned count, uint64_t plain, uint64_t fetching) {
    unsigned fetches = 0;
    for (unsigned i = 0; i < count; ++i) {
        pace.run(
            64,
            [&](bool fetch) {
                now += fetch ? fetching : plain;
                fetches += fetch ? 1 : 0;
            },
            [] { return now; });
    }
    return fetches;
}

} // namespace

TEST_CASE("pace: a kernel fetches while that is faster, and tries the other way now and then") {
    Pace pace;
    CHECK(fetched(pace, 8 * Pace::kEvery, 1000, 2000) == 8);
    // The host changes: the next trials tell, and then all calls fetch but the trials.
    fetched(pace, 8 * Pace::kEvery, 1000, 500);
    CHECK(fetched(pace, 8 * Pace::kEvery, 1000, 500) == 8 * Pace::kEvery - 8);
    fetched(pace, 8 * Pace::kEvery, 300, 500);
    CHECK(fetched(pace, 8 * Pace::kEvery, 300, 500) == 8);
}

TEST_CASE("pace: a gain of less than 3 % changes nothing") {
    Pace pace;
    CHECK(fetched(pace, 64 * Pace::kEvery, 1000, 980) == 64);
}

TEST_CASE("pace: one call that was interrupted changes nothing") {
    Pace pace;
    fetched(pace, 4 * Pace::kEvery + 1, 1000, 1100);
    fetched(pace, 1, 1000000000, 1000000000);
    CHECK(fetched(pace, 8 * Pace::kEvery, 1000, 1100) == 8);
}
