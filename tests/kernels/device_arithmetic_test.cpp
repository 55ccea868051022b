// The arithmetic that device kernels are written in, on each kind of device that C2 speaks of,
// against multiple precision and the reference's functions.
#include <array>

#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/environment.h"
#include "tests/kernels/edges.h"
#include "tests/kernels/soft_float.h"

namespace device = stasis::kernels::device;
using device::host_grid::Tiny;
using stasis::kernels::FloatEnvironment;

namespace {

// A device that decides what is tiny so, in the contract's environment.
class Deciding {
  public:
    explicit Deciding(Tiny tiny) { device::host_grid::tiny = tiny; }
    ~Deciding() { device::host_grid::tiny = Tiny::rounded; }

  private:
    FloatEnvironment environment_;
};

struct Operands {
    float a, b, c;
};

bool same(float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

// So many units in the last place further away from zero.
float moved(float x, int units) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(units));
}

int few(Numbers &numbers) {
    return static_cast<int>(numbers.below(7)) - 3;
}

float of_exponent(Numbers &numbers, int low, int high) {
    const int exponent = low + static_cast<int>(numbers.below(static_cast<size_t>(high - low + 1)));
    return std::ldexp(numbers.next(Kind::plain), exponent + 1);
}

// Factors whose product is near 2^-126, or tiny, or one of them denormal.
Operands near_product(Numbers &numbers) {
    const float a = of_exponent(numbers, -125, 60);
    switch (numbers.below(4)) {
    case 0:
        return {numbers.next(Kind::denormal), of_exponent(numbers, -126, 127), 0.0F};
    case 1:
        return {a, of_exponent(numbers, -126, 0), 0.0F};
    default: // the greater half: dense around the edge
        return {a, moved(partner(a), numbers.below(2) == 0 ? few(numbers) : 0), 0.0F};
    }
}

// Sums of a product and a number near 2^-126: one of them may be far below, or both greater and
// nearly cancel.
Operands near_sum(Numbers &numbers) {
    Operands x = near_product(numbers);
    const float sign = numbers.below(2) == 0 ? 1.0F : -1.0F;
    switch (numbers.below(6)) {
    case 0:
        x.c = sign * 0.0F;
        break;
    case 1: // a neighbour of 2^-126, and a product down to nothing
        x.c = sign * moved(0x1p-126F, static_cast<int>(numbers.below(4)));
        x.b = of_exponent(numbers, -60, -20), x.a = of_exponent(numbers, -115, -66);
        break;
    case 2:
        x.c = numbers.next(Kind::denormal);
        break;
    case 3: // what is left of c is near 2^-126
    case 4: {
        x.c = of_exponent(numbers, -126, -110);
        x.a = of_exponent(numbers, -90, -20);
        const double left = std::copysign(0x1p-126, x.c) - double{x.c};
        x.b = moved(static_cast<float>(left / double{x.a}), few(numbers));
        break;
    }
    default: // also beyond 2^-60, where c2_fma looks no further
        x.c = of_exponent(numbers, -66, -54);
        x.a = of_exponent(numbers, -40, -20);
        x.b = static_cast<float>(-double{x.c} / double{x.a});
    }
    return x;
}

// How often the operation that a device has itself differs, where it decides by the exact result,
// and by the denormal.
struct Differences {
    size_t exact, denormal;
};

// Compares a device's operation with the exact one, on each kind.
template <typename Make, typename Plain, typename Whole, typename Exact>
Differences compare(size_t cases, const Make &make, const Plain &plain, const Whole &whole,
                    const Exact &exact) {
    constexpr size_t kBatch = 4096;
    Numbers numbers(cases);
    size_t differ[3] = {}, wrong = 0;
    for (size_t done = 0; done < cases; done += kBatch) {
        std::vector<Operands> x(kBatch);
        std::vector<float> expected(kBatch);
        for (size_t i = 0; i < kBatch; ++i) {
            x[i] = make(numbers);
            expected[i] = exact(x[i]);
        }
        for (const Tiny tiny : device::host_grid::kEveryTiny) {
            const Deciding deciding(tiny);
            for (size_t i = 0; i < kBatch; ++i) {
                differ[static_cast<size_t>(tiny)] += same(plain(x[i]), expected[i]) ? 0 : 1;
                wrong += same(whole(x[i]), expected[i]) ? 0 : 1;
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(differ[0] == 0);
    return {differ[1], differ[2]};
}

} // namespace

TEST_CASE("device arithmetic: products around 2^-126 are the contract's on every kind of device") {
    const Differences differ = compare(
        2'000'000, near_product, [](const Operands &x) { return device::mul(x.a, x.b); },
        [](const Operands &x) { return device::c2_mul(x.a, x.b); },
        [](const Operands &x) { return soft::mul(x.a, x.b); });
    CHECK(differ.exact > 10'000); // the cases are where they should be
    CHECK(differ.denormal > 10'000);
}

TEST_CASE("device arithmetic: fma around 2^-126 is the contract's on every kind of device") {
    const Differences differ = compare(
        2'000'000, near_sum, [](const Operands &x) { return device::fma(x.a, x.b, x.c); },
        [](const Operands &x) { return device::c2_fma(x.a, x.b, x.c); },
        [](const Operands &x) { return soft::fma(x.a, x.b, x.c); });
    CHECK(differ.exact > 10'000);
    CHECK(differ.denormal > 10'000);
}

TEST_CASE("device arithmetic: quotients around 2^-126 are the contract's on every kind of device") {
    const auto make = [](Numbers &numbers) {
        const bool power = numbers.below(4) == 0; // of two: the divisor
        const float b = power ? std::ldexp(1.0F, static_cast<int>(numbers.below(253)) - 126)
                              : of_exponent(numbers, -126, 120);
        const float a = moved(std::fabs(b) * 0x1p-126F, few(numbers)); // 0 or near the edge
        return Operands{numbers.below(2) == 0 ? a : -a, b, 0.0F};
    };
    const Differences differ = compare(
        1'000'000, make, [](const Operands &x) { return device::div(x.a, x.b); },
        [](const Operands &x) { return device::c2_div(x.a, x.b); },
        [](const Operands &x) { return soft::div(x.a, x.b); });
    CHECK(differ.exact == 0); // none of them is between 2^-126 - 2^-151 and 2^-126
    CHECK(differ.denormal > 1000);
    // Of other divisors none is between 2^-126 - 2^-150 and 2^-126 - 2^-151 either.
    const auto odd = [&](Numbers &numbers) {
        Operands x = make(numbers);
        for (; (std::bit_cast<uint32_t>(x.b) & 0x007FFFFFU) == 0;) {
            x = make(numbers);
        }
        return x;
    };
    const auto plain = [](const Operands &x) { return device::div(x.a, x.b); };
    const auto exact = [](const Operands &x) { return soft::div(x.a, x.b); };
    CHECK(compare(500'000, odd, plain, plain, exact).denormal == 0);
}

TEST_CASE("device arithmetic: sums of squares need no care around 2^-126") {
    Numbers numbers(6);
    const auto make = [](Numbers &from) {
        const bool near = from.below(2) == 0;
        const float x = near ? moved(0x1p-63F, static_cast<int>(from.below(4001)) - 2000)
                             : of_exponent(from, -100, -50);
        const float c = from.below(2) == 0 ? 0.0F : std::fabs(of_exponent(from, -126, -100));
        return Operands{x, x, c};
    };
    const auto plain = [](const Operands &x) { return device::fma(x.a, x.b, x.c); };
    const auto exact = [](const Operands &x) { return soft::fma(x.a, x.b, x.c); };
    const Differences differ = compare(500'000, make, plain, plain, exact);
    CHECK(differ.exact == 0);
    CHECK(differ.denormal == 0);
}

namespace {

// fma(a, b, c) of bf16 factors whose biased exponents have this sum: how often a kind of device
// differs from the contract.
size_t differences_of_factors(Tiny tiny, uint32_t exponents, size_t cases) {
    Numbers numbers(exponents);
    size_t differ = 0;
    for (size_t i = 0; i < cases; ++i) {
        const auto first = static_cast<uint32_t>(1 + numbers.below(exponents - 1));
        std::array<float, 2> factor = {};
        for (const size_t which : {0, 1}) {
            const uint32_t exponent = which == 0 ? first : exponents - first;
            const uint64_t bits = numbers.bits();
            const auto value = static_cast<uint16_t>((bits & 0x807FU) | exponent << 7);
            differ += device::exponent_of(value) == exponent ? 0 : cases;
            factor[which] = stasis::kernels::bf16_to_f32(value);
        }
        // A sum so far that comes close to cancelling, or has been reached by few terms.
        const double product = double{factor[0]} * double{factor[1]};
        const double near = -product + (numbers.below(2) == 0 ? 0x1p-126 : -0x1p-126);
        float c = numbers.below(4) == 0 ? of_exponent(numbers, -126, -120)
                                        : moved(static_cast<float>(near), few(numbers));
        c = std::fabs(c) < 0x1p-126F ? 0.0F : c;
        const Deciding deciding(tiny);
        const float one = device::fma(factor[0], factor[1], c);
        device::host_grid::tiny = Tiny::rounded;
        differ += same(one, device::fma(factor[0], factor[1], c)) ? 0 : 1;
    }
    return differ;
}

} // namespace

TEST_CASE("device arithmetic: bf16 factors of kSafeExponents need no care, smaller ones do") {
    CHECK(device::exponent_of(0x8000) == device::kNoExponent);
    CHECK(device::exponent_of(0x007F) == device::kNoExponent);
    for (const Tiny tiny : {Tiny::exact, Tiny::denormal}) {
        for (const uint32_t more : {0, 1, 2, 8}) {
            CHECK(differences_of_factors(tiny, device::kSafeExponents + more, 200'000) == 0);
        }
        for (const uint32_t less : {2, 3, 8}) {
            CHECK(differences_of_factors(tiny, device::kSafeExponents - less, 200'000) > 0);
        }
    }
    CHECK(differences_of_factors(Tiny::exact, device::kSafeExponents - 1, 200'000) == 0);
    CHECK(differences_of_factors(Tiny::denormal, device::kSafeExponents - 1, 200'000) > 0);
    // The bound is sharp: one below it, what is left is 2^-126 - 2^-150; two, 2^-126 - 2^-151.
    const auto left = [](float power, int units, Tiny tiny, float plain, float whole) {
        const Deciding deciding(tiny);
        const float a = 129.0F * power, b = 129.0F * 0x1p-75F;
        const float c = moved(0x1p-126F, units); // of 2^-149
        const uint32_t exponents = device::exponent_of(stasis::kernels::f32_to_bf16(a)) +
                                   device::exponent_of(stasis::kernels::f32_to_bf16(b));
        CHECK(device::fma(-a, b, c) == plain);
        CHECK(device::c2_fma(-a, b, c) == whole);
        return device::kSafeExponents - exponents;
    };
    CHECK(left(0x1p-75F, 129 * 129 / 2, Tiny::denormal, 0x1p-126F, 0.0F) == 1);
    CHECK(left(0x1p-76F, 129 * 129 / 4, Tiny::exact, 0.0F, 0x1p-126F) == 2);
}

TEST_CASE("device arithmetic: exp, tanh and sigmoid are the reference's over the whole range") {
    const stasis::kernels::Reference &reference = stasis::kernels::portable::reference();
    std::vector<uint32_t> inputs;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 2'999) { // of every exponent
        inputs.push_back(static_cast<uint32_t>(bits));
    }
    for (const float at : {0x1p-126F, 0x1p-63F, 0x1p-42F, 0x1p-24F, 0.625F, 1.0F, 9.0F, 87.0F,
                           44.0F, 0x1.62e42ep+6F, __builtin_inff()}) {
        for (int units = -2000; units <= 2000; ++units) {
            inputs.push_back(std::bit_cast<uint32_t>(moved(at, units)));
            inputs.push_back(std::bit_cast<uint32_t>(-moved(at, units)));
        }
    }
    for (const float sensitive : kSensitive) {
        inputs.push_back(std::bit_cast<uint32_t>(sensitive));
    }
    for (const Tiny tiny : device::host_grid::kEveryTiny) {
        const Deciding deciding(tiny);
        size_t wrong = 0;
        for (const uint32_t bits : inputs) {
            const float x = std::bit_cast<float>(bits);
            wrong += same(device::exp(x), reference.exp(x)) ? 0 : 1;
            wrong += same(device::tanh(x), reference.tanh(x)) ? 0 : 1;
            wrong += same(device::sigmoid(x), reference.sigmoid(x)) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("device arithmetic: what tanh multiplies plainly vanishes where it may be tiny") {
    Numbers numbers(7);
    const FloatEnvironment environment;
    size_t found = 0, wrong = 0;
    for (size_t i = 0; i < 200'000; ++i) { // x * x^2 around 2^-126
        const float x = moved(0x1p-42F, static_cast<int>(numbers.below(200'001)) - 100'000);
        const float square = x * x, cube = x * square;
        found += std::fabs(cube) == 0x1p-126F || cube == 0.0F ? 1 : 0;
        const float p = -1.0F / 3.0F;
        wrong += same(device::fma(0.0F, p, x), device::fma(0x1p-126F, p, x)) ? 0 : 1;
        wrong += same(device::fma(cube, p, x), x) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(found > 1000);
}
