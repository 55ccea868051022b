// Products of every table against the naive restatement of NUMERICS.md, bit for bit: sizes that are
// no multiples of any vector width, strides, and all kinds of inputs. Single cases of other
// entries, which entries_test.cpp goes through.
#include <limits>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

using stasis::kernels::exp_f32;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::Table;

namespace {

void check_matmul(size_t rows, size_t outputs, size_t depth, Kind kind) {
    INFO("rows ", rows, " outputs ", outputs, " depth ", depth, " kind ", static_cast<int>(kind));
    Numbers numbers(depth * 1000 + outputs);
    const size_t x_stride = depth + 3;
    const size_t w_stride = depth + 5;
    const size_t y_stride = outputs + 2;
    std::vector<uint16_t> x = numbers.bf16(rows * x_stride, kind);
    std::vector<uint16_t> w = numbers.bf16(outputs * w_stride, kind);
    for (size_t i = 0; i < x.size(); ++i) {
        x[i] = i % x_stride < depth ? x[i] : kPoison;
    }
    for (size_t i = 0; i < w.size(); ++i) {
        w[i] = i % w_stride < depth ? w[i] : kPoison;
    }
    std::vector<float> expected(rows * y_stride, 7.0F); // gaps stay as they were
    naive::matmul(
        {x.data(), x_stride, w.data(), w_stride, expected.data(), y_stride, rows, outputs, depth});
    for_each_table([&](const Table &table) {
        std::vector<float> y(rows * y_stride, 7.0F);
        multiply(table, {x.data(), x_stride, w.data(), w_stride, y.data(), y_stride, rows, outputs,
                         depth});
        CHECK(first_difference(y, expected) == -1);
    });
}

} // namespace

TEST_CASE("matmul: every depth and width of 1 to 67, all kinds of numbers") {
    const FloatEnvironment environment;
    for (const Kind kind : kKinds) {
        for (size_t depth = 1; depth <= 67; ++depth) {
            check_matmul(1 + depth % 3, 68 - depth, depth, kind);
        }
        check_matmul(5, 33, 200, kind);
    }
}

TEST_CASE("matmul: rows and outputs do not depend on what is computed beside them") {
    const FloatEnvironment environment;
    Numbers numbers(1);
    const size_t depth = 77, rows = 9, outputs = 70;
    const std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::wide);
    const std::vector<uint16_t> w = numbers.bf16(outputs * depth, Kind::wide);
    for_each_table([&](const Table &table) {
        std::vector<float> together(rows * outputs), alone(rows * outputs);
        multiply(table, {x.data(), depth, w.data(), depth, together.data(), outputs, rows, outputs,
                         depth});
        for (size_t r = 0; r < rows; ++r) {
            for (size_t n = 0; n < outputs; ++n) {
                multiply(table, {&x[r * depth], depth, &w[n * depth], depth,
                                 &alone[r * outputs + n], 1, 1, 1, depth});
            }
        }
        CHECK(first_difference(together, alone) == -1);
    });
}

// a x cosine lies half-way between two floats, and b x sine decides from far below: rounding the
// sum to double first would lose it.
TEST_CASE("rope: its fma rounds once") {
    const FloatEnvironment environment;
    for (const float a : {1.0F + 0x1p-12F, 1.0F + 0x3p-12F}) { // ties to even, down and up
        for (const float b : {0x1p-40F, -0x1p-40F, 0.0F}) {
            for (const float sign : {1.0F, -1.0F}) {
                const float cosine = sign * (1.0F + 0x1p-12F);
                const float sine = 0x1p-30F;
                float expected[2] = {a, b};
                naive::table().rope(expected, &cosine, &sine, 2);
                for_each_table([&](const Table &table) {
                    float x[2] = {a, b};
                    table.rope(x, &cosine, &sine, 2);
                    CHECK(std::memcmp(x, expected, sizeof x) == 0);
                });
            }
        }
    }
}

TEST_CASE("find_nonfinite: names the first value that is not finite as a bf16") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float bad[] = {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 0x1.ffp+127F,
                         -0x1.fffffep+127F};
    const float good[] = {0.0F, 0x1.fefffep+127F, -0x1.fefffep+127F, 0x1p-149F};
    for_each_table([&](const Table &table) {
        for (size_t at = 0; at < 67; ++at) {
            std::vector<float> x(67, 1.0F);
            for (const float value : good) {
                x[at] = value;
                CHECK(table.find_nonfinite(x.data(), x.size()) == x.size());
            }
            x[66] = infinity;
            for (const float value : bad) {
                x[at] = value;
                CHECK(table.find_nonfinite(x.data(), x.size()) == at);
            }
        }
        CHECK(table.find_nonfinite(nullptr, 0) == 0);
    });
}

TEST_CASE(
    "first_largest: the first of equal ones, zeros of either sign and infinities among them") {
    const float infinity = std::numeric_limits<float>::infinity();
    for_each_table([&](const Table &table) {
        for (size_t n = 1; n <= 67; ++n) {
            const Guarded<float> all(std::vector<float>(n, -infinity), Edge::back);
            CHECK(table.first_largest(all.data(), n) == 0);
            for (size_t at = 0; at < n; ++at) {
                for (const float value : {-1.0F, 0.0F, -0.0F, 0x1p-126F, infinity}) {
                    std::vector<float> x(n, std::min(-value, -2.0F));
                    x[at] = value;
                    x[n - 1] = value == 0.0F ? -value : value;
                    const Guarded<float> placed(x, Edge::back);
                    CHECK(table.first_largest(placed.data(), n) == at);
                }
            }
        }
    });
}

TEST_CASE("draw_powers: what is removed, too far below, or beyond the finite range") {
    const FloatEnvironment environment;
    const float infinity = std::numeric_limits<float>::infinity();
    const float logits[] = {3.0F,
                            -infinity,
                            -0x1.fffffeP+127F,
                            0x1.fffffeP+127F,
                            -25.0F,
                            std::nextafter(-25.0F, -infinity)};
    for_each_table([&](const Table &table) {
        float scaled[6], powers[6];
        table.draw_powers(logits, 6, 1.0F, 3.0F, scaled, powers);
        CHECK(powers[0] == 1.0F);
        CHECK(powers[4] == exp_f32(-28.0F));
        CHECK((powers[1] == 0.0F && powers[2] == 0.0F && powers[5] == 0.0F));
        table.draw_powers(logits, 6, 0.5F, 0x1.fffffeP+127F, scaled, powers);
        CHECK(scaled[3] == 0x1.fffffeP+127F); // twice as much is beyond
        CHECK(powers[3] == 1.0F);
        // Where the best one is the least number that there is, a removed one still has no power.
        table.draw_powers(logits, 3, 0.5F, -0x1.fffffeP+127F, scaled, powers);
        CHECK(scaled[1] == -0x1.fffffeP+127F);
        CHECK((powers[1] == 0.0F && powers[2] == 1.0F));
    });
}

TEST_CASE("tables: found by name, unknown names are null, the fast build runs where it can") {
    const Table *reference = stasis::kernels::find_table("reference");
    REQUIRE(reference != nullptr);
    CHECK(reference == &stasis::kernels::reference_table());
    CHECK(std::string(reference->name) == "reference");
    CHECK(stasis::kernels::find_table("") == nullptr);
    CHECK(stasis::kernels::find_table("referenc") == nullptr);
    const Table &best = stasis::kernels::best_table();
    CHECK(stasis::kernels::find_table(best.name) == &best);
    const stasis::kernels::Reference *fast = stasis::kernels::reference_with_fma();
    CHECK((fast == nullptr || reference->matmul == fast->table.matmul));
}
