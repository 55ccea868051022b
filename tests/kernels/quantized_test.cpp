// Integer weights (C8): blocks stand for what is published, and products of every table equal the
// naive restatement, bit for bit.
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/kernels/environment.h"
#include "tests/data_files.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive_quantized.h"

using namespace stasis::kernels;

namespace {

struct Named {
    const char *name;
    Quant type;
};
constexpr Named kNamedTypes[] = {
    {"Q8_0", Quant::q8_0},  {"Q4_0", Quant::q4_0},     {"Q4_1", Quant::q4_1},
    {"Q5_0", Quant::q5_0},  {"Q5_1", Quant::q5_1},     {"Q4_K", Quant::q4_k},
    {"Q5_K", Quant::q5_k},  {"Q6_K", Quant::q6_k},     {"Q2_K", Quant::q2_k},
    {"Q3_K", Quant::q3_k},  {"IQ4_NL", Quant::iq4_nl}, {"IQ4_XS", Quant::iq4_xs},
    {"MXFP4", Quant::mxfp4}};

// The blocks of blocks.json of one type, field by field as make.py writes them.
std::vector<std::string> published(const std::string &type, const std::string &field) {
    std::ifstream file(test_data("quant-blocks/blocks.json"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::string> found;
    size_t at = text.find("\"" + type + "\"");
    REQUIRE(at != std::string::npos);
    const size_t end = text.find(']', at);
    const std::string key = "\"" + field + "\": \"";
    while ((at = text.find(key, at)) < end) {
        at += key.size();
        const std::string hex = text.substr(at, text.find('"', at) - at);
        std::string &bytes = found.emplace_back();
        for (size_t i = 0; i < hex.size(); i += 2) {
            bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
        }
    }
    return found;
}

const uint8_t *bytes_of(const std::string &text) {
    return reinterpret_cast<const uint8_t *>(text.data());
}

// Rows of blocks of any bytes whose scales are ordinary numbers, denormal f16 and zeros among them.
std::vector<uint8_t> random_rows(Numbers &numbers, Quant type, size_t rows, size_t depth,
                                 size_t stride) {
    const QuantBlock shape = quant_block(type);
    std::vector<uint8_t> bytes(rows * stride);
    for (uint8_t &byte : bytes) {
        byte = static_cast<uint8_t>(numbers.bits());
    }
    const bool two = naive::scales(type, bytes.data()).has;
    const size_t first = quant_scales(type).offset[0];
    for (size_t row = 0; row < rows; ++row) {
        for (size_t block = 0; block < depth / shape.elements; ++block) {
            uint8_t *scales = bytes.data() + row * stride + block * shape.bytes + first;
            if (type == Quant::mxfp4) { // denormals, powers of two as those of f16, and beyond
                const size_t exponent =
                    numbers.below(4) == 0 ? numbers.below(4) : numbers.below(64);
                scales[0] = static_cast<uint8_t>(exponent < 4 ? exponent : exponent + 80);
                continue;
            }
            for (size_t i = 0; i < (two ? 2 : 1); ++i) { // any exponent but that of infinity
                const size_t exponent = numbers.below(4) == 0 ? 0 : numbers.below(31);
                const size_t f16 = numbers.below(2) << 15 | exponent << 10 | numbers.below(1024);
                scales[2 * i] = static_cast<uint8_t>(f16);
                scales[2 * i + 1] = static_cast<uint8_t>(f16 >> 8);
            }
        }
    }
    return bytes;
}

std::vector<float> run(const Table &table, const naive::QuantizedProduct &p) {
    const size_t group = quant_block(p.type).elements;
    const Aligned packed(table.quantized_bytes(p.rows, p.depth, group)), scratch(kScratchBytes);
    const Quantize task{p.x, p.x_stride, p.rows, p.depth, group, packed.data()};
    for (size_t begin = 0; begin < p.rows; begin += kPackRows) {
        table.quantize(task, begin, std::min(begin + kPackRows, p.rows));
    }
    std::vector<uint8_t> strips = in_strips(p.type, p.w, p.w_stride, p.outputs, p.depth);
    const size_t offset = 1 + p.rows % 40; // any alignment
    strips.insert(strips.begin(), offset, 0);
    std::vector<float> y(p.rows * p.y_stride, 7.0F);
    table.matmul_quantized({packed.data(), p.type, strips.data() + offset, y.data(), p.y_stride,
                            p.rows, p.outputs, p.depth, scratch.data()});
    return y;
}

void check_product(const Named &named, size_t rows, size_t outputs, size_t blocks, Kind kind) {
    INFO(named.name, ": rows ", rows, " outputs ", outputs, " blocks ", blocks, " kind ",
         static_cast<int>(kind));
    Numbers numbers(rows * 1000 + outputs + blocks);
    const size_t depth = blocks * quant_block(named.type).elements;
    const size_t stride = quant_row_bytes(named.type, depth) + 7; // any alignment
    const std::vector<uint16_t> x = numbers.bf16(rows * (depth + 3), kind);
    const std::vector<uint8_t> w = random_rows(numbers, named.type, outputs, depth, stride);
    std::vector<float> expected(rows * (outputs + 2), 7.0F); // gaps stay as they were
    naive::QuantizedProduct task{named.type, x.data(),    depth + 3, w.data(), stride,
                                 nullptr,    outputs + 2, rows,      outputs,  depth};
    task.y = expected.data();
    naive::matmul(task);
    for_each_table(
        [&](const Table &table) { CHECK(first_difference(run(table, task), expected) == -1); });
}

// The published words of a block in the order of a strip.
std::vector<size_t> words_of_strip(Quant type, size_t count) {
    std::vector<size_t> order;
    const auto range = [&](size_t first, size_t words) {
        for (size_t i = 0; i < words; ++i) {
            order.push_back(first + i);
        }
    };
    const auto in_turn = [&](size_t low, size_t high) {
        for (size_t i = 0; i < 8; ++i) {
            order.insert(order.end(), {low + i, high + i});
        }
    };
    if (type == Quant::q2_k) { // d and m, scales and integers
        range(20, 1), range(0, 20);
    } else if (type == Quant::q3_k) { // scales, low and high bits, low bits
        range(24, 3), in_turn(8, 0), range(16, 8);
    } else if (type == Quant::q5_k) { // d, m and scales, low and high bits, low bits
        range(0, 4), in_turn(12, 4), range(20, 24);
    } else if (type == Quant::q6_k) { // scales, then of each half low and high bits, low bits
        range(48, 4), in_turn(0, 32), range(8, 8), in_turn(16, 40), range(24, 8);
    } else {
        range(0, count);
    }
    return order;
}

} // namespace

TEST_CASE("matmul_quantized: blocks stand for what the published reader says") {
    const FloatEnvironment environment;
    for (const Named &named : kNamedTypes) {
        INFO(named.name);
        const std::vector<std::string> blocks = published(named.name, "bytes");
        const std::vector<std::string> values = published(named.name, "values");
        const QuantBlock shape = quant_block(named.type);
        REQUIRE(blocks.size() == 4);
        for (size_t i = 0; i < blocks.size(); ++i) {
            REQUIRE(blocks[i].size() == shape.bytes);
            std::vector<float> expected(shape.elements), found(shape.elements);
            REQUIRE(values[i].size() == 4 * shape.elements);
            std::memcpy(expected.data(), values[i].data(), values[i].size());
            naive::embed(named.type, bytes_of(blocks[i]), 1.0F, shape.elements, found.data());
            CHECK(first_difference(found, expected) == -1);
            for_each_table([&](const Table &table) {
                table.embed_quantized(named.type, bytes_of(blocks[i]), 1.0F, shape.elements,
                                      found.data());
                CHECK(first_difference(found, expected) == -1);
            });
        }
    }
}

TEST_CASE("matmul_quantized: a strip holds the words of its outputs' blocks in reading order") {
    struct Layout { // offsets in a published block; the fifth bits' word, 99: none
        size_t words, first, rest, fifth;
    };
    constexpr Layout kLayouts[] = {
        {8, 2, 0, 99},   {4, 2, 0, 99},   {5, 0, 99, 99},   {5, 2, 0, 0},    {6, 0, 99, 1},
        {36, 0, 99, 99}, {44, 0, 99, 99}, {52, 0, 208, 99}, {21, 0, 99, 99}, {27, 0, 108, 99},
        {4, 2, 0, 99},   {34, 0, 99, 99}, {4, 1, 0, 99}};
    static_assert(std::size(kLayouts) == std::size(kNamedTypes));
    Numbers numbers(5);
    for (size_t t = 0; t < std::size(kNamedTypes); ++t) {
        const char *name = kNamedTypes[t].name;
        const Quant type = kNamedTypes[t].type;
        INFO(name);
        const Layout layout = kLayouts[t];
        const QuantBlock block = quant_block(type);
        constexpr size_t kOutputs = 21, kBlocks = 3;
        const size_t depth = kBlocks * block.elements, stride = quant_row_bytes(type, depth) + 3;
        const std::vector<uint8_t> w = random_rows(numbers, type, kOutputs, depth, stride);
        const std::vector<uint8_t> strips = in_strips(type, w.data(), stride, kOutputs, depth);
        REQUIRE(strips.size() == 2 * kBlocks * 16 * block.bytes);
        const std::vector<size_t> order = words_of_strip(type, layout.words);
        REQUIRE(order.size() == layout.words);
        size_t wrong = 0;
        for (size_t n = 0; n < 32; ++n) {
            for (size_t b = 0; b < kBlocks; ++b) {
                const std::vector<uint8_t> none(block.bytes);
                const uint8_t *from =
                    n < kOutputs ? w.data() + n * stride + b * block.bytes : none.data();
                const uint8_t *to = strips.data() + (n / 16 * kBlocks + b) * 16 * block.bytes;
                for (size_t at = 0; at < layout.words; ++at) {
                    uint8_t word[4];
                    std::memcpy(word, from + layout.first + 4 * order[at], 4);
                    if (order[at] == layout.fifth) { // bit 8 k + i is that of element 4 i + k
                        uint8_t ordered[4] = {};
                        for (size_t e = 0; e < 32; ++e) {
                            ordered[e % 4] |= (word[e / 8] >> e % 8 & 1) << e / 4;
                        }
                        std::memcpy(word, ordered, 4);
                    }
                    wrong += std::memcmp(to + 64 * at + n % 16 * 4, word, 4) != 0;
                }
                if (layout.rest != 99) {
                    const size_t bytes = block.bytes - 4 * layout.words;
                    wrong += std::memcmp(to + 64 * layout.words + n % 16 * bytes,
                                         from + layout.rest, bytes) != 0;
                }
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("matmul_quantized: products of every type, shape and kind of numbers") {
    const FloatEnvironment environment;
    for (const Named &named : kNamedTypes) {
        for (const Kind kind : kKinds) {
            check_product(named, 1, 5, 1, kind);
            check_product(named, 3, 17, 2, kind);
        }
        const size_t most = quant_block(named.type).elements == 256 ? 3 : 20;
        check_product(named, 17, 33, most, Kind::plain);
        check_product(named, 50, 3, 2, Kind::wide);
    }
}

TEST_CASE("matmul_quantized: embeddings are scaled") {
    const FloatEnvironment environment;
    Numbers numbers(3);
    for (const Named &named : kNamedTypes) {
        INFO(named.name);
        const size_t n = 2 * quant_block(named.type).elements;
        const std::vector<uint8_t> row =
            random_rows(numbers, named.type, 1, n, quant_row_bytes(named.type, n));
        std::vector<float> expected(n), found(n);
        naive::embed(named.type, row.data(), 25.25F, n, expected.data());
        for_each_table([&](const Table &table) {
            table.embed_quantized(named.type, row.data(), 25.25F, n, found.data());
            CHECK(first_difference(found, expected) == -1);
        });
    }
}

TEST_CASE("matmul_quantized: what is not finite shows in its row, in no others") {
    const FloatEnvironment environment;
    Numbers numbers(4);
    for (const Named &named : kNamedTypes) {
        const size_t depth = 2 * quant_block(named.type).elements, rows = 3, outputs = 19;
        const size_t stride = quant_row_bytes(named.type, depth);
        const std::vector<uint8_t> w = random_rows(numbers, named.type, outputs, depth, stride);
        for (const uint16_t bad : {uint16_t{0x7F80}, uint16_t{0xFF80}, uint16_t{0x7FC1}}) {
            std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::plain);
            const naive::QuantizedProduct task{named.type, x.data(), depth, w.data(), stride,
                                               nullptr,    outputs,  rows,  outputs,  depth};
            for_each_table([&](const Table &table) {
                const std::vector<float> whole = run(table, task);
                const size_t at = depth + numbers.below(depth);
                const uint16_t kept = std::exchange(x[at], bad);
                const std::vector<float> y = run(table, task);
                for (size_t n = 0; n < outputs; ++n) {
                    CHECK(!std::isfinite(y[outputs + n]));
                    CHECK(std::memcmp(&y[n], &whole[n], sizeof(float)) == 0);
                    CHECK(std::memcmp(&y[2 * outputs + n], &whole[2 * outputs + n],
                                      sizeof(float)) == 0);
                }
                x[at] = kept;
            });
        }
    }
}
