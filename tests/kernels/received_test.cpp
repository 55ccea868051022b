// C10: attention received, in fixed point.
#include <cmath>
#include <limits>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "runtime/kernels/received.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

using namespace stasis::kernels;

namespace {

using Received = std::vector<uint64_t>;

Received received(const std::vector<uint16_t> &p, float m_b, float m, float l) {
    Received sums(kPagePositions);
    add_received(p.data(), m_b, m, l, sums.data());
    return sums;
}

std::vector<uint16_t> weights(Numbers &numbers) {
    std::vector<uint16_t> p(kPagePositions);
    for (uint16_t &value : p) {
        value = numbers.below(5) == 0
                    ? uint16_t{0}
                    : naive::to_bf16(naive::exp(-std::fabs(numbers.next(Kind::wide))));
    }
    p[numbers.below(kPagePositions)] = 0x3F80;
    return p;
}

} // namespace

TEST_CASE("receive: attention received is the floor of weights in fixed point") {
    const FloatEnvironment environment;
    Numbers numbers(3);
    for (int i = 0; i < 300; ++i) {
        const std::vector<uint16_t> p = weights(numbers);
        const float m = numbers.next(Kind::plain) * 30.0F;
        const float below = std::fabs(numbers.next(Kind::plain)) * (i % 3 == 0 ? 0.0F : 40.0F);
        const float m_b = m - below;
        const float l = 1.0F + std::fabs(numbers.next(Kind::wide));
        const double share = exp_f64(double{m_b} - double{m}) / double{l};
        const Received sums = received(p, m_b, m, l);
        for (size_t s = 0; s < kPagePositions; ++s) {
            CHECK(sums[s] == naive::received(p[s], share));
        }
    }
}

TEST_CASE("attention received: all of it is one, no more, and what is far below is nothing") {
    const FloatEnvironment environment;
    std::vector<uint16_t> p(kPagePositions);
    p[7] = 0x3F80;
    Received expected(kPagePositions);
    expected[7] = uint64_t{1} << 32;
    CHECK(received(p, -3.0F, -3.0F, 1.0F) == expected);
    expected[7] = uint64_t{1} << 30;
    CHECK(received(p, -3.0F, -3.0F, 4.0F) == expected);
    CHECK(received(p, -30.0F, 0.0F, 1.0F) == Received(kPagePositions)); // e^-30 < 2^-32
    CHECK(received(p, -std::numeric_limits<float>::max(), std::numeric_limits<float>::max(),
                   1.0F) == Received(kPagePositions));
    Received sums(kPagePositions, 5); // it adds
    add_received(p.data(), 0.0F, 0.0F, 2.0F, sums.data());
    CHECK(sums[7] == 5 + (uint64_t{1} << 31));
    CHECK(sums[8] == 5);
}

TEST_CASE("attention received: what is not finite adds nothing") {
    const FloatEnvironment environment;
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<uint16_t> ones(kPagePositions, 0x3F80);
    for (const float bad : {infinity, -infinity, nan}) {
        CHECK(received(ones, bad, bad, 1.0F) == Received(kPagePositions));
        CHECK(received(ones, 0.0F, 0.0F, nan) == Received(kPagePositions));
        CHECK(received(ones, 0.0F, nan, 1.0F) == Received(kPagePositions));
    }
    for (const uint16_t bad : {uint16_t{0x7F80}, uint16_t{0x7FC0}, uint16_t{0xFF80}}) {
        CHECK(received(std::vector<uint16_t>(kPagePositions, bad), 0.0F, 0.0F, 1.0F) ==
              Received(kPagePositions));
    }
}
