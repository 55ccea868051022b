// Matrix products at the edges of every table's tiles, against the reference table. All arrays lie
// beside pages that may not be touched, at addresses that suit their type and no more.
#include <limits>

#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;
using stasis::test::first_case;
using stasis::test::kSanitized;
using stasis::test::stride;
using stasis::test::taken;

namespace {

constexpr float kUntouched = 7.0F;

struct ProductCase {
    size_t rows, outputs, depth;
    std::vector<uint16_t> x, w; // strides depth + 3 and depth + 5, no gap after the last row
    size_t x_stride() const { return depth + 3; }
    size_t w_stride() const { return depth + 5; }
    size_t y_stride() const { return outputs + 2; }
};

std::vector<uint16_t> matrix(Numbers &numbers, size_t rows, size_t columns, size_t stride,
                             Kind kind) {
    std::vector<uint16_t> values = numbers.bf16((rows - 1) * stride + columns, kind);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = i % stride < columns ? values[i] : kPoison;
    }
    return values;
}

ProductCase make_case(Numbers &numbers, size_t rows, size_t outputs, size_t depth, Kind kind) {
    ProductCase made{rows, outputs, depth, {}, {}};
    made.x = matrix(numbers, rows, depth, made.x_stride(), kind);
    made.w = matrix(numbers, outputs, depth, made.w_stride(), kind);
    return made;
}

// y with its gaps, and what lies in them before.
std::vector<float> run(const Table &table, const ProductCase &c, Edge edge) {
    const std::vector<float> before((c.rows - 1) * c.y_stride() + c.outputs, kUntouched);
    const Guarded<uint16_t> x(c.x, edge), w(c.w, edge);
    const Guarded<float> y(before, edge);
    const std::vector<uint8_t> packed_bytes(table.packed_bytes(c.rows, c.depth));
    const Guarded<uint8_t> packed(packed_bytes, edge, 64);
    const Guarded<uint8_t> scratch(std::vector<uint8_t>(kScratchBytes), edge, 64);
    const Pack task{x.data(), c.x_stride(), c.rows, c.depth, packed.data()};
    for (size_t begin = 0; begin < c.rows; begin += kPackRows) {
        table.pack(task, begin, std::min(begin + kPackRows, c.rows));
    }
    table.matmul({packed.data(), w.data(), c.w_stride(), y.data(), c.y_stride(), c.rows, c.outputs,
                  c.depth, scratch.data()});
    return y.values();
}

} // namespace

// By groups of blocks, whole, and shared by 2 to 16 rows; and by strips (528, 608 and 5632).
TEST_CASE("matmul: one row equals the reference, stays inside") {
    const FloatEnvironment environment;
    Numbers numbers(2);
    for (const size_t outputs : {7, 8, 16, 17, 40, 48}) {
        for (const size_t depth : {256, 512, 528, 544, 576, 608, 768, 1152, 2048, 5632}) {
            const Kind kind = kKinds[numbers.below(std::size(kKinds))];
            const Edge edge = kEdges[numbers.below(2)];
            INFO("outputs ", outputs, " depth ", depth, " kind ", static_cast<int>(kind));
            const ProductCase made = make_case(numbers, 1, outputs, depth, kind);
            const std::vector<float> expected = run(reference_table(), made, edge);
            for_each_table(
                [&](const Table &table) {
                    CHECK(first_difference(run(table, made, edge), expected) == -1);
                },
                instruction_set_tables());
        }
    }
}

TEST_CASE("matmul: rows, outputs and depths around every tile equal the reference, stay inside") {
    const FloatEnvironment environment;
    Numbers numbers(1);
    size_t count = 0;
    for (const size_t rows :
         {1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100}) {
        for (const size_t outputs : {1, 15, 16, 17, 47, 48, 49, 96, 100}) {
            for (const size_t depth :
                 {1, 31, 32, 33, 64, 100, 160, 192, 224, 256, 288, 1000, 2048}) {
                if (!taken(count++)) {
                    continue;
                }
                const Kind kind = kKinds[numbers.below(std::size(kKinds))];
                const Edge edge = kEdges[numbers.below(2)];
                INFO("rows ", rows, " outputs ", outputs, " depth ", depth, " kind ",
                     static_cast<int>(kind));
                const ProductCase made = make_case(numbers, rows, outputs, depth, kind);
                const std::vector<float> expected = run(reference_table(), made, edge);
                for_each_table(
                    [&](const Table &table) {
                        CHECK(first_difference(run(table, made, edge), expected) == -1);
                    },
                    instruction_set_tables());
            }
        }
    }
}

// More rows, outputs and terms than a table keeps together: it takes them in several turns.
TEST_CASE("matmul: what exceeds every table's panels equals the reference, stays inside") {
    const FloatEnvironment environment;
    constexpr size_t kShapes[][3] = {{65, 33, 257},  {97, 31, 1},     {129, 300, 513},
                                     {512, 256, 64}, {513, 257, 300}, {1030, 40, 290},
                                     {65, 33, 2049}, {130, 17, 4200}};
    Numbers numbers(2);
    for (const auto &shape : kShapes) {
        const size_t rows = shape[0], outputs = shape[1], depth = shape[2];
        for (const Kind kind : kKinds) {
            INFO("rows ", rows, " outputs ", outputs, " depth ", depth, " kind ",
                 static_cast<int>(kind));
            const ProductCase made = make_case(numbers, rows, outputs, depth, kind);
            const std::vector<float> expected = run(reference_table(), made, Edge::back);
            for_each_table(
                [&](const Table &table) {
                    CHECK(first_difference(run(table, made, Edge::back), expected) == -1);
                },
                instruction_set_tables());
            if (kSanitized) {
                break;
            }
        }
    }
}

// A model reserves one piece of memory, for its most rows and its greatest depth.
TEST_CASE("packed_bytes: memory suffices for fewer rows and lesser depths") {
    for_each_table([](const Table &table) {
        for (size_t rows = 1; rows <= 100; ++rows) {
            for (size_t depth = 1, least = 0; depth <= 10000; depth += depth < 600 ? 1 : 31) {
                const size_t bytes = table.packed_bytes(rows, depth);
                REQUIRE(bytes >= least);
                REQUIRE(table.packed_bytes(rows + 1, depth) >= bytes);
                least = bytes;
            }
            for (const size_t group : {32, 256}) {
                for (size_t depth = group, least = 0; depth <= 10000; depth += group) {
                    const size_t bytes = table.quantized_bytes(rows, depth, group);
                    REQUIRE(bytes >= least);
                    REQUIRE(table.quantized_bytes(rows + 1, depth, group) >= bytes);
                    least = bytes;
                }
            }
        }
    });
}

// C9: no bits are promised of what is not finite, but that it is not.
TEST_CASE("matmul: an input that is not finite shows in the outputs it belongs to, in no others") {
    const FloatEnvironment environment;
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (uint64_t seed = first_case(); seed < 60; seed += stride()) {
        Numbers numbers(seed);
        ProductCase made = make_case(numbers, 1 + numbers.below(40), 1 + numbers.below(60),
                                     1 + numbers.below(150), Kind::plain);
        for (const float bad : {infinity, -infinity, nan}) {
            const uint16_t bits = f32_to_bf16(bad);
            made.x[numbers.below(made.rows) * made.x_stride() + numbers.below(made.depth)] = bits;
            made.w[numbers.below(made.outputs) * made.w_stride() + numbers.below(made.depth)] =
                bits;
        }
        const std::vector<float> expected = run(reference_table(), made, Edge::back);
        for_each_table(
            [&](const Table &table) {
                const std::vector<float> y = run(table, made, Edge::back);
                size_t wrong = 0;
                for (size_t i = 0; i < y.size(); ++i) {
                    wrong += std::isfinite(expected[i])
                                 ? std::memcmp(&y[i], &expected[i], sizeof(float)) != 0
                                 : std::isfinite(y[i]);
                }
                CHECK(wrong == 0);
            },
            instruction_set_tables());
    }
}
