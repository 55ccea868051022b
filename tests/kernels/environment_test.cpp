// C2: inside the guard every host gets the same bits; after it the host's environment is untouched.
#include "runtime/kernels/environment.h"

#include <cfenv>

#include "tests/data_files.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

using stasis::kernels::FloatEnvironment;
using stasis::kernels::Table;

namespace {

// Results that depend on rounding mode, flushing, and (overflow, division) on masked exceptions.
struct Work {
    std::vector<uint16_t> x, w;
    std::vector<float> row, weight;

    Work() {
        Numbers numbers(77);
        for (const Kind kind : kKinds) {
            const std::vector<uint16_t> more = numbers.bf16(64 * 40, kind);
            x.insert(x.end(), more.begin(), more.end());
        }
        w = x;
        row = numbers.floats(100, Kind::wide);
        weight = numbers.floats(100, Kind::boundary);
    }

    std::vector<float> run(const Table &table) const {
        std::vector<float> y(x.size() / 64 + 200);
        for (size_t i = 0; i < x.size() / 64; ++i) {
            multiply(table, {&x[i * 64], 64, &w[i * 64], 64, &y[i], 1, 1, 1, 64});
        }
        table.rms_norm(row.data(), weight.data(), 100, 1e-6F, &y[y.size() - 100]);
        // Around 2^-126: a matrix product in tiles flushes whatever the host has set.
        table.embed_wide(weight.data(), 0x1.8p-64F, 100, &y[y.size() - 200]);
        return y;
    }
};

} // namespace

#ifdef __x86_64__

TEST_CASE("FloatEnvironment: any host setting gives the same bits and is restored bit for bit") {
    const Work work;
    for_each_table([&](const Table &table) {
        std::vector<float> expected;
        {
            const FloatEnvironment environment;
            expected = work.run(table);
        }
        const uint32_t own = _mm_getcsr();
        for (const uint32_t mxcsr : {
                 0x1F80U, // the default
                 0x3F80U, // round down
                 0x5F80U, // round up
                 0x7F80U, // round to zero
                 0x9FC0U, // the contract's own
                 0x8000U, // every exception unmasked, flush to zero
                 0x0000U, // every exception unmasked
                 0x6040U, // unmasked, round to zero, denormals are zero
                 0x1FBFU, // default with every exception flag raised
             }) {
            _mm_setcsr(mxcsr);
            std::vector<float> y;
            {
                const FloatEnvironment environment;
                y = work.run(table);
            }
            const uint32_t after = _mm_getcsr();
            _mm_setcsr(own);
            INFO("mxcsr ", mxcsr);
            CHECK(after == mxcsr);
            CHECK(first_difference(y, expected) == -1);
        }
    });
}

// If it did not, the test above would pass without a guard.
TEST_CASE("FloatEnvironment: without the guard the host's setting shows") {
    const Work work;
    for_each_table([&](const Table &table) {
        std::vector<float> expected;
        {
            const FloatEnvironment environment;
            expected = work.run(table);
        }
        const uint32_t own = _mm_getcsr();
        _mm_setcsr(0x1F80);
        const std::vector<float> without_flush = work.run(table);
        _mm_setcsr(0xDFC0);
        const std::vector<float> rounded_up = work.run(table);
        _mm_setcsr(own);
        CHECK(first_difference(without_flush, expected) != -1);
        CHECK(first_difference(rounded_up, expected) != -1);
    });
}

TEST_CASE("FloatEnvironment: guards nest") {
    const uint32_t before = _mm_getcsr();
    {
        const FloatEnvironment outer;
        { const FloatEnvironment inner; }
        CHECK((_mm_getcsr() & ~0x3FU) == 0x9FC0);
    }
    CHECK(_mm_getcsr() == before);
}

#else

TEST_CASE("FloatEnvironment: the host's rounding mode is restored") {
    std::fesetround(FE_UPWARD);
    {
        const FloatEnvironment environment;
        CHECK(std::fegetround() == FE_TONEAREST);
    }
    CHECK(std::fegetround() == FE_UPWARD);
    std::fesetround(FE_TONEAREST);
}

#endif

// The boundary of flushing, both ways: tiny is decided after rounding (C2). Terms 0 and 2 fall into
// one chain of the block rule, 1 and 3 into the other.
TEST_CASE("FloatEnvironment: results around 2^-126") {
    constexpr uint16_t k1 = 0x3F80, kMin = 0x0080; // 1, 2^-126
    constexpr uint16_t k76 = 0x1980, k75 = 0x1A00; // 2^-76, 2^-75
    constexpr uint16_t kMinus = 0x8000;            // sign
    struct Case {
        uint16_t a[4], b[4];
        float sum;
    };
    const Case cases[] = {
        {{kMin}, {k1}, 0x1p-126F},                           // kept
        {{kMin}, {0x3F7F}, 0.0F},                            // 2^-126 (1 - 2^-8): flushed
        {{kMin | kMinus}, {0x3F7F}, 0.0F},                   // to -0, and +0 + -0 = +0
        {{0x007F}, {0x4000}, 0.0F},                          // denormal input: zero at once
        {{0x00FF}, {0x3F01}, 0x1.00fep-126F},                // just above
        {{kMin, 0, k76}, {k1, 0, kMinus | k76}, 0x1p-126F},  // 2^-126 - 2^-152 rounds up: kept
        {{kMin, 0, k76}, {k1, 0, kMinus | k75}, 0x1p-126F},  // - 2^-151: the tie goes up: kept
        {{kMin, 0, k75}, {k1, 0, kMinus | k75}, 0.0F},       // - 2^-150: exact: flushed
        {{0x00C0, kMin}, {k1, kMinus | k1}, 0.0F},           // e + o = 2^-127: flushed
        {{0x0100, kMin}, {k1, kMinus | k1}, 0x1p-126F},      // e + o = 2^-126: kept
        {{kMin, 0, kMin}, {0x3F00, 0, 0x3F00}, 0.0F},        // each half is flushed alone
        {{kMin, 0, kMin}, {k1, 0, kMinus | 0x3F00}, 0.0F},   // 2^-127 by cancellation
        {{kMin | kMinus, 0, k76}, {k1, 0, k76}, -0x1p-126F}, // the same, negative
        {{kMin | kMinus, 0, k75}, {k1, 0, k75}, 0.0F},
    };
    const FloatEnvironment environment;
    for_each_table([&](const Table &table) {
        for (const Case &c : cases) {
            float y = 7.0F;
            multiply(table, {c.a, 4, c.b, 4, &y, 1, 1, 1, 4});
            const float naive = naive::dot(c.a, 1, c.b, 1, 4);
            INFO("case ", &c - cases, " y ", y, " naive ", naive);
            CHECK(std::memcmp(&y, &naive, sizeof y) == 0);
            CHECK(std::memcmp(&y, &c.sum, sizeof y) == 0);
        }
    });
}
