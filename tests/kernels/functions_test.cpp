// Accuracy of the contract's own functions against MPFR (C3): the largest error found is printed
// and held against what NUMERICS.md states; and bits that are promised.
#include <mpfr.h>

#include <cmath>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

using namespace stasis::kernels;

namespace {

using Exact = int(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

int exact_sigmoid(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
    mpfr_neg(y, x, round);
    mpfr_exp(y, y, round);
    mpfr_add_ui(y, y, 1, round);
    return mpfr_ui_div(y, 1, y, round);
}

int exact_softplus(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t round) {
    mpfr_exp(y, x, round);
    return mpfr_log1p(y, y, round);
}

// Largest error in units in the last place of the exact result, `digits` bits wide.
class Errors {
  public:
    Errors(const char *name, int digits, double stated)
        : name_(name), digits_(digits), stated_(stated) {
        mpfr_inits2(200, x_, y_, exact_, static_cast<mpfr_ptr>(nullptr));
    }
    ~Errors() {
        std::printf("%s: at most %.3f ulp (stated: %g)\n", name_, worst_, stated_);
        CHECK(worst_ <= stated_);
        CHECK(worst_ > 0.0);
        mpfr_clears(x_, y_, exact_, static_cast<mpfr_ptr>(nullptr));
    }
    Errors(const Errors &) = delete;
    Errors &operator=(const Errors &) = delete;

    void add(Exact *function, double x, double result) {
        mpfr_set_d(x_, x, MPFR_RNDN);
        function(exact_, x_, MPFR_RNDN);
        compare(result);
    }
    void add_power(double base, double exponent, double result) {
        mpfr_set_d(x_, base, MPFR_RNDN);
        mpfr_set_d(y_, exponent, MPFR_RNDN);
        mpfr_pow(exact_, x_, y_, MPFR_RNDN);
        compare(result);
    }

  private:
    void compare(double result) {
        if (mpfr_zero_p(exact_) != 0) {
            CHECK(result == 0.0);
            return;
        }
        const mpfr_exp_t unit = mpfr_get_exp(exact_) - digits_;
        mpfr_sub_d(y_, exact_, result, MPFR_RNDN);
        mpfr_mul_2si(y_, y_, -unit, MPFR_RNDN);
        const double error = std::fabs(mpfr_get_d(y_, MPFR_RNDN));
        worst_ = error <= worst_ ? worst_ : error; // NaN stays
    }

    const char *name_;
    int digits_;
    double stated_, worst_ = 0.0;
    mpfr_t x_, y_, exact_;
};

std::vector<Reference> builds() {
    std::vector<Reference> found = {portable::reference()};
    if (reference_with_fma() != nullptr) {
        found.push_back(*reference_with_fma());
    }
    return found;
}

bool same_bits(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

} // namespace

TEST_CASE("functions: accuracy of exp, tanh, sigmoid and softplus in single precision") {
    const FloatEnvironment environment;
    Numbers numbers(1);
    Errors exp_errors("exp", 24, 1.0), tanh_errors("tanh", 24, 1.5),
        sigmoid_errors("sigmoid", 24, 2.5), softplus_errors("softplus", 24, 2.5);
    // The worst found among every seventh float of the domains.
    exp_errors.add(mpfr_exp, 0x1.4cc14ap+2, exp_f32(0x1.4cc14ap+2F));
    tanh_errors.add(mpfr_tanh, 0x1.41bb3cp-1, best_reference().tanh(0x1.41bb3cp-1F));
    sigmoid_errors.add(exact_sigmoid, -0x1.b92162p+1, best_reference().sigmoid(-0x1.b92162p+1F));
    for (int i = 0; i < 60000; ++i) {
        const float unit = static_cast<float>(numbers.bits() >> 40) * 0x1p-24F;
        const float x = i % 3 == 0 ? numbers.next(Kind::wide) : -87.0F + unit * 175.7F;
        if (x >= kExpFloor && x <= 88.7F) {
            exp_errors.add(mpfr_exp, x, exp_f32(x));
            sigmoid_errors.add(exact_sigmoid, x, best_reference().sigmoid(x));
            softplus_errors.add(exact_softplus, x, best_reference().softplus(x));
        }
        const float y = i % 2 == 0 ? x / 16.0F : x / 256.0F;
        tanh_errors.add(mpfr_tanh, y, best_reference().tanh(y));
    }
}

TEST_CASE("functions: exp, tanh, sigmoid, softplus equal the naive restatement in every build") {
    const FloatEnvironment environment;
    Numbers numbers(2);
    std::vector<float> inputs = {
        0.0F,      -0.0F,   kExpFloor,      std::nextafter(kExpFloor, -100.0F),
        0.625F,    -0.625F, 1.0F,           -1e30F,
        1e30F,     88.72F,  0x1.62e42ep+6F, 0x1.62e430p+6F,
        -INFINITY, INFINITY};
    inputs.insert(inputs.end(), std::begin(kSensitive), std::end(kSensitive));
    for (int i = 0; i < 20000; ++i) {
        inputs.push_back(numbers.next(Kind::wide));
        inputs.push_back(numbers.next(Kind::plain) * 90.0F);
    }
    for (const Kind kind : kKinds) {
        const std::vector<float> more = numbers.floats(500, kind);
        inputs.insert(inputs.end(), more.begin(), more.end());
    }
    for (const float x : inputs) {
        const float expected[] = {naive::exp(x), naive::tanh(x), naive::sigmoid(x),
                                  naive::softplus(x)};
        for (const Reference &build : builds()) {
            const bool equal = same_bits(build.exp(x), expected[0]) &&
                               same_bits(build.tanh(x), expected[1]) &&
                               same_bits(build.sigmoid(x), expected[2]) &&
                               same_bits(build.softplus(x), expected[3]);
            CHECK_MESSAGE(equal, "x = ", x);
        }
    }
}

TEST_CASE("functions: promised values of exp, tanh, sigmoid, softplus") {
    const FloatEnvironment environment;
    for (const Reference &build : builds()) {
        CHECK(same_bits(build.exp(0.0F), 1.0F));
        CHECK(same_bits(build.exp(-0.0F), 1.0F));
        CHECK(same_bits(build.exp(0x1p-140F), 1.0F));
        CHECK(build.exp(kExpFloor) >= 0x1p-126F);
        CHECK(same_bits(build.exp(std::nextafter(kExpFloor, -100.0F)), 0.0F));
        CHECK(same_bits(build.exp(-INFINITY), 0.0F));
        CHECK(same_bits(build.exp(INFINITY), INFINITY));
        CHECK(same_bits(build.exp(0x1.62e430p+6F), INFINITY));
        CHECK(std::isfinite(build.exp(0x1.62e42ep+6F)));
        CHECK(same_bits(build.tanh(40.0F), 1.0F));
        CHECK(same_bits(build.tanh(-INFINITY), -1.0F));
        CHECK(same_bits(build.sigmoid(0.0F), 0.5F));
        CHECK(same_bits(build.sigmoid(-88.0F), 0.0F));
        CHECK(same_bits(build.sigmoid(INFINITY), 1.0F));
        CHECK(same_bits(build.softplus(-88.0F), 0.0F));
        CHECK(same_bits(build.softplus(-INFINITY), 0.0F));
        CHECK(same_bits(build.softplus(20.0F), 20.0F));
        CHECK(same_bits(build.softplus(INFINITY), INFINITY));
        // NaN stays NaN whatever its payload, which must not leak into an exponent.
        for (const uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7FC00001U, 0xFFFFFFFFU}) {
            const float nan = std::bit_cast<float>(bits);
            CHECK(std::isnan(build.exp(nan)));
            CHECK(std::isnan(build.tanh(nan)));
            CHECK(std::isnan(build.sigmoid(nan)));
            CHECK(std::isnan(build.softplus(nan)));
        }
    }
}

TEST_CASE("functions: accuracy of exp, log and pow in double precision") {
    Numbers numbers(3);
    Errors exp_errors("exp_f64", 53, 1.0), log_errors("log_f64", 53, 1.0),
        pow_errors("pow_f64, |y log x| <= 32", 53, 1.0),
        far_errors("pow_f64, |y log x| <= 700", 53, 4.0);
    for (int i = 0; i < 30000; ++i) {
        const double unit = static_cast<double>(numbers.bits() >> 11) * 0x1p-53;
        const double x = i % 2 == 0 ? -708.0 + unit * 1417.0 : unit * 4.0 - 2.0;
        exp_errors.add(mpfr_exp, x, exp_f64(x));
        const double y = std::ldexp(1.0 + unit, static_cast<int>(numbers.below(2000)) - 1000);
        const double near = 0.7 + 0.8 * unit;
        log_errors.add(mpfr_log, i % 2 == 0 ? y : near, log_f64(i % 2 == 0 ? y : near));
        const double base = i % 3 == 0 ? 10000.0 : i % 3 == 1 ? 1e6 : 1.5 + unit * 1e5;
        const double power = (2.0 * unit - 1.0) * 32.0 / std::log(base);
        pow_errors.add_power(base, power, pow_f64(base, power));
        far_errors.add_power(base, power * 21.0, pow_f64(base, power * 21.0));
    }
    CHECK(exp_f64(0.0) == 1.0);
    CHECK(log_f64(1.0) == 0.0);
    CHECK(pow_f64(10000.0, 0.0) == 1.0);
    CHECK(pow_f64(10000.0, -0.0) == 1.0);
    CHECK(pow_f64(2.0, 10.0) == 1024.0);
    CHECK(exp_f64(-708.5) == 0.0);
    CHECK(exp_f64(-INFINITY) == 0.0);
    CHECK(exp_f64(710.0) == INFINITY);
    CHECK(std::isfinite(exp_f64(0x1.62e42fefa39efp+9)));
    CHECK(std::isnan(exp_f64(std::bit_cast<double>(uint64_t{0x7FF8000000000001}))));
}

TEST_CASE("functions: accuracy of sin and cos in double precision, |x| up to 2^40") {
    Numbers numbers(4);
    Errors sin_errors("sin_f64", 53, 1.0), cos_errors("cos_f64", 53, 1.0);
    const auto add = [&](double x) {
        for (const double value : {x, -x}) {
            sin_errors.add(mpfr_sin, value, sin_f64(value));
            cos_errors.add(mpfr_cos, value, cos_f64(value));
        }
    };
    mpfr_t turn;
    mpfr_init2(turn, 200);
    for (int i = 0; i < 12000; ++i) {
        const double unit = static_cast<double>(numbers.bits() >> 11) * 0x1p-53;
        add(std::ldexp(1.0 + unit, static_cast<int>(numbers.below(70)) - 31));
        add(static_cast<double>(numbers.bits() >> 24));
        // Doubles next to multiples of pi/2, where the most bits cancel, and of pi/4, where the
        // quadrant changes.
        mpfr_const_pi(turn, MPFR_RNDN);
        const uint64_t multiple = numbers.bits() >> (26 + numbers.below(36));
        mpfr_mul_ui(turn, turn, multiple, MPFR_RNDN);
        mpfr_div_ui(turn, turn, i % 2 == 0 ? 2 : 4, MPFR_RNDN);
        const double near = mpfr_get_d(turn, MPFR_RNDN);
        add(near);
        add(std::nextafter(near, 0.0));
        add(std::nextafter(near, 2e12));
    }
    mpfr_clear(turn);
    add(0x1p40);
    CHECK(sin_f64(0.0) == 0.0);
    CHECK(cos_f64(0.0) == 1.0);
}

TEST_CASE("functions: double precision does not depend on flushing") {
    Numbers numbers(5);
    for (int i = 0; i < 2000; ++i) {
        const double unit = static_cast<double>(numbers.bits() >> 11) * 0x1p-53;
        const double inputs[] = {unit * 1400.0 - 700.0, std::ldexp(1.0 + unit, i % 2000 - 1000),
                                 unit * 0x1p40, unit * 1e-9};
        const auto run = [&] {
            return std::vector<double>{exp_f64(inputs[0]), log_f64(inputs[1]),  sin_f64(inputs[2]),
                                       cos_f64(inputs[2]), pow_f64(5e5, -unit), sin_f64(inputs[3]),
                                       cos_f64(inputs[3])};
        };
        const std::vector<double> outside = run();
        const FloatEnvironment environment;
        const std::vector<double> inside = run();
        REQUIRE(std::memcmp(outside.data(), inside.data(), outside.size() * sizeof(double)) == 0);
    }
}

// Recorded once; every compiler and machine must give the same bits (FNV-1a over them).
TEST_CASE("functions: double precision gives the recorded bits") {
    Numbers numbers(6);
    uint64_t hash = 0xCBF29CE484222325;
    const auto add = [&](double value) {
        for (uint64_t bits = std::bit_cast<uint64_t>(value), i = 0; i < 8; ++i, bits >>= 8) {
            hash = (hash ^ (bits & 0xFFU)) * 0x100000001B3;
        }
    };
    for (int i = 0; i < 5000; ++i) {
        const double unit = static_cast<double>(numbers.bits() >> 11) * 0x1p-53;
        add(exp_f64(unit * 1400.0 - 700.0));
        add(log_f64(std::ldexp(1.0 + unit, i % 2000 - 1000)));
        add(pow_f64(1e6, -unit));
        add(sin_f64(unit * std::ldexp(1.0, i % 41)));
        add(cos_f64(unit * std::ldexp(1.0, i % 41)));
    }
    CHECK(hash == 14407244979546603889U);
}
