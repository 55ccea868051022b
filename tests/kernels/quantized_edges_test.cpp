// Integer weights (C8) at their edges: shapes around every tile, strip and group of rows with
// forbidden pages on either side, integers and scales at their extremes, activations around the
// least that count. Every table equals the naive restatement bit for bit.
#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive_quantized.h"

using namespace stasis::kernels;

namespace {

constexpr Quant kTypes[] = {Quant::q8_0, Quant::q4_0, Quant::q4_1, Quant::q5_0,
                            Quant::q5_1, Quant::q4_k, Quant::q5_k, Quant::q6_k};
constexpr float kUntouched = 7.0F;

struct Product {
    Quant type;
    size_t rows, outputs, blocks;
    std::vector<uint16_t> x;
    std::vector<uint8_t> w;

    size_t depth() const { return blocks * quant_block(type).elements; }
    size_t stride() const { return quant_row_bytes(type, depth()); }
    size_t y_stride() const { return outputs + 1; }
    std::vector<float> untouched() const {
        return std::vector<float>((rows - 1) * y_stride() + outputs, kUntouched);
    }
};

std::vector<float> expected(const Product &p) {
    std::vector<float> y = p.untouched();
    naive::matmul({p.type, p.x.data(), p.depth(), p.w.data(), p.stride(), y.data(), p.y_stride(),
                   p.rows, p.outputs, p.depth()});
    return y;
}

std::vector<float> run(const Table &table, const Product &p, Edge edge) {
    const size_t group = quant_block(p.type).elements;
    const Guarded<uint16_t> x(p.x, edge);
    const Guarded<uint8_t> w(in_strips(p.type, p.w.data(), p.stride(), p.outputs, p.depth()), edge);
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
    const std::vector<float> y = expected(p);
    for_each_table(
        [&](const Table &table) { CHECK(first_difference(run(table, p, edge), y) == -1); });
}

void set_scales(Product &p, size_t block, uint16_t f16) {
    uint8_t *bytes = p.w.data() + block * quant_block(p.type).bytes;
    for (const size_t offset : quant_scales(p.type)) {
        bytes[offset] = static_cast<uint8_t>(f16);
        bytes[offset + 1] = static_cast<uint8_t>(f16 >> 8);
    }
}

// Weights of any bytes, with scales of ordinary size.
Product random_product(Numbers &numbers, Quant type, size_t rows, size_t outputs, size_t blocks) {
    Product p{type, rows, outputs, blocks, {}, {}};
    p.x = numbers.bf16(rows * p.depth(), Kind::plain);
    p.w.resize(outputs * p.stride());
    for (uint8_t &byte : p.w) {
        byte = static_cast<uint8_t>(numbers.bits());
    }
    for (size_t block = 0; block < outputs * blocks; ++block) {
        set_scales(p, block, static_cast<uint16_t>(0x2000 | (numbers.bits() & 0x9FFFU)));
    }
    return p;
}

} // namespace

TEST_CASE("integer weights: shapes around every group and tile, nothing outside is touched") {
    const FloatEnvironment environment;
    Numbers numbers(11);
    for (const Quant type : kTypes) {
        for (const size_t rows : {1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 16, 17, 32, 33, 48, 49}) {
            const size_t outputs = 1 + numbers.below(33);
            const size_t blocks = 1 + numbers.below(5);
            check(random_product(numbers, type, rows, outputs, blocks), kEdges[numbers.below(2)]);
        }
        for (const size_t outputs : {1, 7, 8, 9, 15, 16, 17, 31, 32}) {
            check(random_product(numbers, type, 2, outputs, 3), Edge::back);
        }
    }
}

TEST_CASE("integer weights: more blocks than a table keeps together") {
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

TEST_CASE("integer weights: integers at their extremes") {
    const FloatEnvironment environment;
    Numbers numbers(13);
    for (const Quant type : kTypes) {
        for (const uint8_t fill : {uint8_t{0x00}, uint8_t{0xFF}, uint8_t{0x80}, uint8_t{0x7F}}) {
            for (const size_t rows : {1, 4, 18}) {
                Product p = random_product(numbers, type, rows, 17, 2);
                for (size_t i = 0; i < p.x.size(); ++i) { // all +a, all -a, both
                    const bool minus = i % p.depth() % 3 == 0 || i / p.depth() % 3 == 1;
                    p.x[i] = minus && i / p.depth() % 3 != 0 ? 0xBFB3 : 0x3FB3;
                }
                std::fill(p.w.begin(), p.w.end(), fill);
                const size_t bytes = quant_block(type).bytes;
                for (size_t block = 0; block < p.outputs * p.blocks; ++block) {
                    set_scales(p, block, block % 2 == 0 ? 0x3C01 : 0xB7FF);
                    for (size_t j = 0; type == Quant::q6_k && j < 16; ++j) { // sc, any of both
                        p.w[block * bytes + 192 + j] = block % 3 == 0 ? 0x80 : 0x7F;
                    }
                }
                check(p, Edge::back);
            }
        }
    }
}

// The threshold of C8 is 2^-100; a product of scales may be flushed (C2).
TEST_CASE("integer weights: groups of activations around the least that count") {
    const FloatEnvironment environment;
    Numbers numbers(14);
    constexpr uint16_t kLargest[] = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080,
                                     0x0D7F, 0x0D80, 0x0D81, 0x1000, 0x7F7F};
    static_assert(0x0D80 >> 7 == 127 - 100);
    for (const Quant type : kTypes) {
        const size_t elements = quant_block(type).elements;
        for (const size_t rows : {2, 6, 20}) {
            Product p = random_product(numbers, type, rows, 5, std::size(kLargest));
            for (size_t i = 0; i < p.x.size(); ++i) {
                const uint16_t largest = kLargest[(i / elements + i / p.depth()) % p.blocks];
                const uint64_t below = (largest & 0x7FFFU) + uint64_t{1};
                p.x[i] =
                    i % elements == 3
                        ? largest
                        : static_cast<uint16_t>(numbers.below(below) | (numbers.bits() & 0x8000U));
            }
            constexpr uint16_t kScales[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF};
            for (size_t block = 0; block < p.outputs * p.blocks; ++block) {
                set_scales(p, block, kScales[numbers.below(std::size(kScales))]);
            }
            check(p, Edge::front);
        }
    }
}
