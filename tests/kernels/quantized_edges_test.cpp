// Integer weights (C8) at their edges: shapes around every tile, strip and group of rows with
// forbidden pages on either side, integers and scales at their extremes, activations around the
// least that count. Every table equals the naive restatement bit for bit.
#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/quantized_case.h"

using namespace stasis::kernels;
using quantized_case::kTypes;
using quantized_case::Product;
using quantized_case::random_product;

namespace {

std::vector<float> run(const Table &table, const Product &p, Edge edge) {
    const size_t group = quant_block(p.type).elements;
    const Guarded<uint16_t> x(p.x, edge);
    const Guarded<uint8_t> w(p.strips(), edge);
    const Guarded<float> y(p.untouched(), edge);
    const std::vector<uint8_t> unset(table.quantized_bytes(p.rows, p.depth(), group), 0xFF);
    const Guarded<uint8_t> packed(unset, edge, 64);
    const Guarded<uint8_t> scratch(std::vector<uint8_t>(kScratchBytes, 0xFF), edge, 64);
    const Quantize task{x.data(), p.depth(), p.rows, p.depth(), group, packed.data()};
    for (size_t end = p.rows; end > 0;) { // in any order
        const size_t begin = (end - 1) / kPackRows * kPackRows;
        table.quantize(task, begin, end);
        end = begin;
    }
    table.matmul_quantized({packed.data(), p.type, w.data(), y.data(), p.y_stride(), p.rows,
                            p.outputs, p.depth(), scratch.data()});
    return y.values();
}

void check(const Product &p, Edge edge) {
    INFO("type ", static_cast<int>(p.type), " rows ", p.rows, " outputs ", p.outputs, " blocks ",
         p.blocks);
    const std::vector<float> y = quantized_case::expected(p, p.y_stride());
    for_each_table(
        [&](const Table &table) { CHECK(first_difference(run(table, p, edge), y) == -1); });
}

} // namespace

TEST_CASE("matmul_quantized: shapes around every group and tile, nothing outside is touched") {
    const FloatEnvironment environment;
    Numbers numbers(11);
    for (const Quant type : kTypes) {
        for (const size_t rows :
             {1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 16, 17, 24, 25, 32, 33, 48, 49}) {
            const size_t outputs = 1 + numbers.below(33);
            const size_t blocks = 1 + numbers.below(5);
            check(random_product(numbers, type, rows, outputs, blocks), kEdges[numbers.below(2)]);
        }
        for (const size_t outputs : {1, 7, 8, 9, 15, 16, 17, 31, 32}) {
            check(random_product(numbers, type, 2, outputs, 3), Edge::back);
        }
    }
}

TEST_CASE("matmul_quantized: more blocks than a table keeps together") {
    const FloatEnvironment environment;
    Numbers numbers(12);
    for (const Quant type : kTypes) {
        for (const size_t blocks : {5, 9}) {
            const size_t many = quant_block(type).elements == 256 ? blocks : blocks * 8 - 7;
            check(random_product(numbers, type, 17, 17, many), Edge::back);
            check(random_product(numbers, type, 6, 3, many), Edge::back);
        }
    }
}

TEST_CASE("matmul_quantized: more rows than stay in a cache together") {
    const FloatEnvironment environment;
    Numbers numbers(15);
    for (const Quant type : {Quant::q8_0, Quant::q5_1, Quant::q4_k, Quant::q6_k}) {
        const size_t blocks = size_t{16} * 1024 / quant_block(type).elements;
        check(random_product(numbers, type, 40, 17, blocks), Edge::back);
    }
}

TEST_CASE("matmul_quantized: integers at their extremes") {
    const FloatEnvironment environment;
    Numbers numbers(13);
    for (const Quant type : kTypes) {
        for (const uint8_t fill : quantized_case::kFills) {
            for (const size_t rows : {1, 4, 18}) {
                check(quantized_case::extreme_product(numbers, type, fill, rows), Edge::back);
            }
        }
    }
}

TEST_CASE("matmul_quantized: groups of activations around the least that count") {
    const FloatEnvironment environment;
    Numbers numbers(14);
    for (const Quant type : kTypes) {
        for (const size_t rows : {2, 6, 20}) {
            check(quantized_case::tiny_product(numbers, type, rows), Edge::front);
        }
    }
}
