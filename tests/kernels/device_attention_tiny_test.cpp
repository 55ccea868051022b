// C2 in the device's attention: for each operation whose exact result can lie below 2^-126 and be
// rounded up to it, inputs that do so, and inputs that round up only as denormals. One kind of
// device or the other has it wrong, unless the kernels ask again (cuda/arithmetic.h).
#include "tests/kernels/attention_case.h"

#include "runtime/kernels/math.h"

using namespace attention_case;

namespace {

// One query of numbers that the test sets; all others are zero. Positions not in `seen` are
// evicted.
Case nothing(uint64_t position, const std::vector<uint64_t> &seen,
             const std::function<void(Case &)> &set) {
    Case made;
    made.head_dim = 8;
    made.sequences = {{position, 1, std::vector<uint64_t>(position / 64 + 1, ~uint64_t{0}), {}}};
    for (const uint64_t p : seen) {
        made.sequences[0].evicted[p / 64] &= ~(uint64_t{1} << p % 64);
    }
    made.change = [=](Case &own) {
        std::fill(own.queries.begin(), own.queries.end(), uint16_t{0});
        for (std::vector<uint16_t> &page : own.pages) {
            std::fill(page.begin(), page.end(), uint16_t{0});
        }
        set(own);
    };
    return made;
}

void put(uint16_t *x, const std::vector<float> &values) {
    for (size_t i = 0; i < values.size(); ++i) {
        x[i] = f32_to_bf16(values[i]);
        REQUIRE(bf16_to_f32(x[i]) == values[i]); // exact
    }
}

// Both ways on every kind of device.
void check(const Case &made, uint16_t output) {
    const Expected expected = expected_of(made);
    REQUIRE(expected.output[0] == output);
    under_test::for_each_device([&](const under_test::Opened &on) {
        const Placed placed(on, made, expected.blocks);
        placed.attend_blocks();
        CHECK(first_difference(placed.output(), expected.output) == -1);
        check_partials(placed, expected);
        placed.clear_output();
        placed.attend_tiles(1);
        CHECK(first_difference(placed.output(), expected.output) == -1);
    });
}

constexpr uint16_t kLeast = 0x0080, kZero = 0; // 2^-126, +0

} // namespace

// 2^-126 + (1 + 2^-6) 2^-137 - (1 + 2^-7)^2 2^-137 = 2^-126 - 2^-151: the least exponents, 64 and
// 53, are two below those for which the plain fma is enough.
TEST_CASE("device attention: a tiny sum of query and key is rounded before it is flushed") {
    for (const size_t at : {0, 1}) { // either chain
        Case made = nothing(1, {0, 1}, [=](Case &own) {
            const float odd = 1.0F + 0x1p-7F;
            std::vector<float> query{0x1p-63F, 0, 0x1p-63F, 0, odd * 0x1p-63F, 0};
            std::vector<float> key{0x1p-63F, 0, (1.0F + 0x1p-6F) * 0x1p-74F, 0, -odd * 0x1p-74F, 0};
            put(own.query_at(0, 0) + at, query);
            put(own.key_at(0, 0, 0) + at, key);
            put(own.value_at(0, 0, 0), {1.0F});
        });
        made.scale = 0x1p126F;
        check(made, 0x3F3B); // 1 / (1 + exp(-1)), not a half
    }
}

// The same, less 2^-150: one below.
TEST_CASE("device attention: a sum of query and key that is near 2^-126 as a denormal is flushed") {
    Case made = nothing(1, {0, 1}, [=](Case &own) {
        const float odd = 1.0F + 0x1p-7F;
        put(own.query_at(0, 0), {0x1p-63F, 0, 0x1p-63F, 0, odd * 0x1p-63F, 0});
        put(own.key_at(0, 0, 0), {0x1p-63F, 0, (1.0F + 0x1p-6F) * 0x1p-73F, 0, -odd * 0x1p-73F, 0});
        put(own.value_at(0, 0, 0), {1.0F});
    });
    made.scale = 0x1p126F;
    check(made, 0x3F00); // a half
}

TEST_CASE("device attention: a tiny product of score and scale is rounded before it is flushed") {
    Case made = nothing(0, {0}, [](Case &own) {
        put(own.query_at(0, 0), {0x1.0ep-60F});
        put(own.key_at(0, 0, 0), {1.0F});
        put(own.value_at(0, 0, 0), {1.0F});
    });
    made.scale = 0x1.e573acp-1F * 0x1p-66F;
    CHECK(expected_of(made).maximum[0] == 0x1p-126F);
    check(made, 0x3F80);
}

TEST_CASE("device attention: a maximum of zero is stored as +0") {
    Case made = nothing(0, {0}, [](Case &own) { put(own.value_at(0, 0, 0), {1.0F}); });
    made.scale = -1.0F; // the score is -0
    check(made, 0x3F80);
}

TEST_CASE("device attention: a tiny product of cap and tanh is rounded before it is flushed") {
    Case made = nothing(0, {0}, [](Case &own) {
        put(own.query_at(0, 0), {0x1p-63F});
        put(own.key_at(0, 0, 0), {0x1p-63F});
        put(own.value_at(0, 0, 0), {1.0F});
    });
    made.softcap = 0x1.01p-1F;
    CHECK(expected_of(made).maximum[0] == 0x1p-126F);
    check(made, 0x3F80);
}

// p is exp(-42), about 2^-60.6: the sum of weighted values is 2^-126 - 2^-151.6.
TEST_CASE("device attention: a tiny sum of weights and values is rounded before it is flushed") {
    for (const uint64_t at : {0, 1, 30, 32, 61}) { // in either chain, either block of the rule
        check(nothing(at + 2, {at, at + 2},
                      [=](Case &own) {
                          put(own.query_at(0, 0), {1.0F});
                          put(own.key_at(0, 0, at + 2), {-42.0F});
                          put(own.value_at(0, 0, at), {0x1p-126F});
                          put(own.value_at(0, 0, at + 2), {-0x1p-91F});
                      }),
              kLeast);
    }
}

TEST_CASE("device attention: a tiny sum of partials is rounded before it is flushed") {
    check(nothing(64, {0, 64},
                  [](Case &own) {
                      put(own.query_at(0, 0), {1.0F});
                      put(own.key_at(0, 0, 64), {-42.0F});
                      put(own.value_at(0, 0, 0), {0x1p-126F});
                      put(own.value_at(0, 0, 64), {-0x1p-91F});
                  }),
          kLeast);
}

// Less 2^-150.6.
TEST_CASE("device attention: a sum of partials that is 2^-126 only as a denormal is flushed") {
    check(nothing(64, {0, 64},
                  [](Case &own) {
                      put(own.query_at(0, 0), {1.0F});
                      put(own.key_at(0, 0, 64), {-42.0F});
                      put(own.value_at(0, 0, 0), {0x1p-126F});
                      put(own.value_at(0, 0, 64), {-0x1p-90F});
                  }),
          kZero);
}

// The sum of weighted values is 2^-125 - 2^-149, that of weights 2.
TEST_CASE("device attention: a quotient that is 2^-126 only as a denormal is flushed") {
    check(nothing(4, {0, 2, 4},
                  [](Case &own) {
                      put(own.query_at(0, 0), {1.0F});
                      put(own.key_at(0, 0, 4), {-42.0F});
                      put(own.value_at(0, 0, 0), {0x1p-126F});
                      put(own.value_at(0, 0, 2), {0x1p-126F});
                      put(own.value_at(0, 0, 4), {-0x1p-89F});
                  }),
          kZero);
}

// A value, and a scale whose exp(-scale) takes it to between 2^-126 - 2^-150 and 2^-126 - 2^-151.
TEST_CASE("device attention: a share that is 2^-126 only as a denormal is flushed") {
    const FloatEnvironment environment;
    float value = 0.0F, scale = 0.0F;
    for (uint32_t bits = 0x1C00; bits < 0x2400 && value == 0.0F; ++bits) {
        const float tried = bf16_to_f32(static_cast<uint16_t>(bits));
        for (int units = -2; units <= 2 && value == 0.0F; ++units) {
            const auto least = static_cast<float>(std::log(double{tried} * 0x1p126));
            const float by =
                std::bit_cast<float>(std::bit_cast<uint32_t>(least) + static_cast<uint32_t>(units));
            const double product = double{tried} * double{exp_f32(-by)};
            if (product >= 0x1p-126 - 0x1p-150 && product < 0x1p-126 - 0x1p-151) {
                value = tried, scale = by;
            }
        }
    }
    REQUIRE(value != 0.0F);
    Case made = nothing(64, {0, 64}, [=](Case &own) {
        put(own.query_at(0, 0), {1.0F});
        put(own.key_at(0, 0, 64), {1.0F});
        put(own.value_at(0, 0, 0), {value});
    });
    made.scale = scale;
    check(made, kZero);
}

// exp of minus the scale, times the value, is less than 2^-126 by less than 2^-151 (found by
// search).
TEST_CASE("device attention: a tiny share of the partials so far is rounded before it is flushed") {
    Case made = nothing(64, {0, 64}, [](Case &own) {
        put(own.query_at(0, 0), {1.0F});
        put(own.key_at(0, 0, 64), {1.0F});
        put(own.value_at(0, 0, 0), {0x1.d2p-63F});
    });
    made.scale = 0x1.622364p+5F;
    check(made, kLeast);
}
