// C6: rounding to bf16 against MPFR, for every upper half of a float and the lower halves that
// matter.
#include <cmath>

#include "runtime/kernels/environment.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

TEST_CASE("bf16: every upper half with the lower halves around a tie") {
    std::vector<float> x;
    for (uint32_t high = 0; high < 0x10000; ++high) {
        for (const uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
            x.push_back(std::bit_cast<float>(high << 16 | low));
        }
    }
    std::vector<uint16_t> expected(x.size());
    naive::table().round_bf16(x.data(), x.size(), expected.data());
    const auto check = [&](const stasis::kernels::Table &table) {
        std::vector<uint16_t> y(x.size());
        table.round_bf16(x.data(), x.size(), y.data());
        size_t wrong = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            const bool is_nan = (y[i] & 0x7FFFU) > 0x7F80U;
            wrong += std::isnan(x[i]) ? !is_nan || (y[i] & 0x0040U) == 0 : y[i] != expected[i];
        }
        CHECK(wrong == 0);
    };
    for_each_table(check); // the host's environment: rounding is done on the bits
    const stasis::kernels::FloatEnvironment environment;
    for_each_table(check);
}

TEST_CASE("bf16: zeros and denormals become +0, ties go to even, overflow to infinity") {
    const auto round = [](uint32_t bits) {
        return stasis::kernels::f32_to_bf16(std::bit_cast<float>(bits));
    };
    CHECK(round(0x80000000) == 0);      // -0
    CHECK(round(0x807FFFFF) == 0);      // the largest denormal, negative
    CHECK(round(0x00800000) == 0x0080); // the smallest normal number
    CHECK(round(0x3F808000) == 0x3F80); // tie, even below
    CHECK(round(0x3F818000) == 0x3F82); // tie, even above
    CHECK(round(0x7F7F7FFF) == 0x7F7F);
    CHECK(round(0x7F7F8000) == 0x7F80);
    CHECK(round(0xFF800000) == 0xFF80);
    CHECK(round(0x7F800001) == 0x7FC0); // NaN does not turn into infinity
}
