// Coded weights (coded.h): what is coded is what was there, and products with it are those with the
// weights themselves. Tables without such products are counted as skipped.
#include <algorithm>
#include <functional>

#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;
using stasis::test::taken;

namespace {

enum class Order { pairs, chains, outputs }; // of terms: without VDPBF16PS, with it, with tiles

Order order_of(const std::string &table) {
    return table == "amx" ? Order::outputs : table.ends_with("bf16") ? Order::chains : Order::pairs;
}

// A matrix of rows one after the other, coded.
struct CodedMatrix {
    size_t lanes; // of the table that coded it, as the next
    Order order;
    std::vector<uint8_t> blocks;
    std::vector<std::vector<Escape>> escapes;
    std::vector<CodedStrip> strips; // their blocks and escapes are null
};

// As many escapes have room as there are weights.
CodedMatrix code(const Table &table, const std::vector<uint16_t> &w, size_t outputs, size_t depth,
                 Edge edge) {
    const std::string name = table.name;
    CodedMatrix coded{name == "avx2" ? size_t{8} : 16, order_of(name), {}, {}, {}};
    for (size_t output = 0; output < outputs; output += kCodedOutputs) {
        const size_t count = std::min(kCodedOutputs, outputs - output);
        const auto first = w.begin() + static_cast<ptrdiff_t>(output * depth);
        const std::vector<uint16_t> of_strip(first, first + static_cast<ptrdiff_t>(count * depth));
        const Guarded<uint16_t> rows(of_strip, edge);
        const Guarded<uint8_t> blocks(std::vector<uint8_t>(coded_strip_bytes(depth), 0xA5), edge);
        const Guarded<Escape> escapes(std::vector<Escape>(count * depth), edge);
        const Coded found = table.code_strip(
            {rows.data(), count, depth, blocks.data(), escapes.data(), count * depth});
        REQUIRE(found.escape_count <= count * depth);
        const std::vector<uint8_t> bytes = blocks.values();
        coded.blocks.insert(coded.blocks.end(), bytes.begin(), bytes.end());
        const std::vector<Escape> all = escapes.values();
        coded.escapes.emplace_back(all.begin(),
                                   all.begin() + static_cast<ptrdiff_t>(found.escape_count));
        CodedStrip &strip = coded.strips.emplace_back();
        strip.escape_count = static_cast<uint32_t>(found.escape_count);
        std::copy(std::begin(found.high), std::end(found.high), strip.high);
    }
    return coded;
}

// A weight of a strip, as coded.h describes it.
uint16_t weight_of(const CodedMatrix &coded, size_t output, size_t k, size_t depth) {
    const size_t strip = output / kCodedOutputs, lanes = coded.lanes, term = k % 32;
    const size_t blocks = (depth + 31) / 32, in_part = output % lanes * 2;
    size_t vector = term / 2, half = in_part + term % 2;
    if (coded.order == Order::chains) {
        vector = term / 4 * 2 + term % 2;
        half = in_part + (term % 4 < 2 ? 1 : 0);
    } else if (coded.order == Order::outputs) {
        vector = output % lanes;
        half = term;
    }
    const size_t block = output % kCodedOutputs / lanes * blocks + k / 32;
    const size_t place = block * lanes * 32 + vector * 2 * lanes + half;
    const std::vector<Escape> &escapes = coded.escapes[strip];
    const auto found =
        std::lower_bound(escapes.begin(), escapes.end(), place,
                         [](const Escape &escape, size_t at) { return escape.place < at; });
    if (found != escapes.end() && found->place == place) {
        return found->value;
    }
    const uint8_t *group = coded.blocks.data() + strip * coded_strip_bytes(depth) +
                           (block * 4 + vector / 4) * 12 * lanes;
    const size_t pair = vector % 4 / 2, at = half / 8 * 16 + vector % 2 * 8 + half % 8;
    const unsigned code = group[at] >> (4 * pair) & 15, low = group[(1 + pair) * 4 * lanes + at];
    return static_cast<uint16_t>(coded.strips[strip].high[code] << 8 | low);
}

void for_each_coder(const std::function<void(const Table &)> &check) {
    size_t count = 0;
    for_each_table(
        [&](const Table &table) {
            if (table.matmul_coded != nullptr) {
                check(table);
                ++count;
            }
        },
        instruction_set_tables());
    if (count == 0) {
        std::printf("SKIPPED: %s: no table of this machine codes weights\n",
                    doctest::getContextOptions()->currentTest->m_name);
    }
}

// Weights of which about one in `rare` has an exponent far from the others.
std::vector<uint16_t> with_outliers(Numbers &numbers, size_t count, size_t rare) {
    std::vector<uint16_t> values = numbers.bf16(count, Kind::plain);
    for (uint16_t &value : values) {
        if (numbers.below(rare) == 0) {
            value = static_cast<uint16_t>((value & 0x807F) | numbers.below(255) << 7);
        }
    }
    return values;
}

std::vector<float> multiply(const Table &table, const std::vector<uint16_t> &x,
                            const std::vector<uint16_t> &w, const CodedMatrix *coded, size_t rows,
                            size_t outputs, size_t depth, Edge edge) {
    const size_t y_stride = outputs + 2;
    const Guarded<float> y(std::vector<float>((rows - 1) * y_stride + outputs, 7.0F), edge);
    const Guarded<uint8_t> packed(std::vector<uint8_t>(table.packed_bytes(rows, depth)), edge, 64);
    const Guarded<uint8_t> scratch(std::vector<uint8_t>(kScratchBytes), edge, 64);
    for (size_t begin = 0; begin < rows; begin += kPackRows) {
        table.pack({x.data(), depth, rows, depth, packed.data()}, begin,
                   std::min(begin + kPackRows, rows));
    }
    if (coded == nullptr) {
        const Guarded<uint16_t> weights(w, edge);
        table.matmul({packed.data(), weights.data(), depth, y.data(), y_stride, rows, outputs,
                      depth, scratch.data()});
        return y.values();
    }
    const Guarded<uint8_t> blocks(coded->blocks, edge);
    std::vector<CodedStrip> strips = coded->strips;
    std::vector<Escape> escapes;
    escapes.reserve(outputs * depth);
    for (size_t i = 0; i < strips.size(); ++i) {
        strips[i].blocks = blocks.data() + i * coded_strip_bytes(depth);
        strips[i].escapes = escapes.data() + escapes.size();
        escapes.insert(escapes.end(), coded->escapes[i].begin(), coded->escapes[i].end());
    }
    table.matmul_coded(
        {packed.data(), strips.data(), y.data(), y_stride, rows, outputs, depth, scratch.data()});
    return y.values();
}

} // namespace

TEST_CASE("coded: every weight is what it was") {
    Numbers numbers(11);
    std::vector<uint16_t> all(65536); // every bf16 there is, in strips of 4096 and of 32 terms
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = static_cast<uint16_t>(i * 40503U);
    }
    for_each_coder([&](const Table &table) {
        const auto check = [&](const std::vector<uint16_t> &w, size_t outputs, size_t depth) {
            const CodedMatrix coded = code(table, w, outputs, depth, kEdges[outputs % 2]);
            for (size_t i = 0; i < w.size(); ++i) {
                REQUIRE(weight_of(coded, i / depth, i % depth, depth) == w[i]);
            }
        };
        check(all, 16, 4096);
        check(all, 2048, 32);
        for (const Kind kind : kKinds) {
            check(numbers.bf16(19 * 100, kind), 19, 100);
        }
        check(with_outliers(numbers, 33 * 77, 40), 33, 77);
    });
}

TEST_CASE(
    "coded: weights as trained ones are take hardly an escape, and those without room are told") {
    Numbers numbers(12);
    const std::vector<uint16_t> w = numbers.bf16(size_t{16} * 2048, Kind::plain);
    for_each_coder([&](const Table &table) {
        const CodedMatrix coded = code(table, w, 16, 2048, Edge::back);
        CHECK(coded.escapes[0].size() < 30); // evenly spread: one in 2^15 is below 2^-15
        std::vector<uint8_t> blocks(coded_strip_bytes(2048));
        const std::vector<uint16_t> wide = with_outliers(numbers, w.size(), 2);
        const Guarded<Escape> room(std::vector<Escape>(5), Edge::back);
        const Coded found =
            table.code_strip({wide.data(), 16, 2048, blocks.data(), room.data(), 5});
        CHECK(found.escape_count > w.size() / 4);
    });
}

TEST_CASE("coded: zeros beside other weights take no escapes, nor does what fills a block") {
    Numbers numbers(14);
    for_each_coder([&](const Table &table) {
        for (const size_t outputs : {1, 5, 15, 16}) {
            for (const size_t depth : {1, 31, 33, 34, 35, 36, 2047}) {
                std::vector<uint16_t> w(outputs * depth, 0x3F80); // all with one code
                CHECK(code(table, w, outputs, depth, Edge::back).escapes[0].empty());
                for (size_t i = 0; i < w.size(); ++i) {
                    const unsigned exponent = 118 + numbers.below(8);
                    const bool zero = numbers.below(2) == 0;
                    w[i] = static_cast<uint16_t>(zero ? i % 2 << 15
                                                      : numbers.below(2) << 15 | exponent << 7 |
                                                            numbers.below(128));
                }
                CHECK(code(table, w, outputs, depth, Edge::back).escapes[0].empty());
            }
        }
    });
}

TEST_CASE("coded: a small weight that no sample of the strip shows takes no escape") {
    constexpr size_t kDepth = 2048;
    for_each_coder([&](const Table &table) {
        std::vector<uint16_t> w(16 * kDepth);
        for (size_t i = 0; i < w.size(); ++i) {
            w[i] = static_cast<uint16_t>((112 + i % 14) << 7); // seven pairs of exponents
        }
        w[3 * kDepth + 1000] = 110 << 7;
        CHECK(code(table, w, 16, kDepth, Edge::back).escapes[0].empty());
    });
}

TEST_CASE("coded: what fills a block adds nothing, where codes stand for infinities and NaN too") {
    const FloatEnvironment environment;
    Numbers numbers(15);
    const auto near = [&](unsigned exponent) { // with either sign
        return static_cast<uint16_t>(numbers.below(2) << 15 | exponent << 7 | numbers.below(128));
    };
    for_each_coder([&](const Table &table) {
        for (const size_t outputs : {1, 15, 16, 17}) {
            for (const size_t depth : {1, 31, 33, 63, 100}) {
                INFO("outputs ", outputs, " depth ", depth);
                std::vector<uint16_t> x(depth), w(outputs * depth);
                std::generate(x.begin(), x.end(), [&] { return near(27); });
                std::generate(w.begin(), w.end(), [&] { return near(254); }); // the greatest
                const CodedMatrix coded = code(table, w, outputs, depth, Edge::back);
                const auto &high = coded.strips[0].high;
                REQUIRE(std::find(std::begin(high), std::end(high), 0xFF) != std::end(high));
                CHECK(first_difference(
                          multiply(table, x, w, &coded, 1, outputs, depth, Edge::back),
                          multiply(table, x, w, nullptr, 1, outputs, depth, Edge::back)) == -1);
            }
        }
    });
}

TEST_CASE("coded: products are those with the weights themselves, and stay inside") {
    const FloatEnvironment environment;
    Numbers numbers(13);
    for_each_coder([&](const Table &table) {
        const auto check = [&](size_t rows, size_t outputs, size_t depth, size_t rare) {
            INFO("rows ", rows, " outputs ", outputs, " depth ", depth, " rare ", rare);
            const Edge edge = kEdges[numbers.below(2)];
            const Kind kind = kKinds[numbers.below(std::size(kKinds))];
            const std::vector<uint16_t> x = numbers.bf16(rows * depth, kind);
            const std::vector<uint16_t> w = rare == 0
                                                ? numbers.bf16(outputs * depth, kind)
                                                : with_outliers(numbers, outputs * depth, rare);
            const CodedMatrix coded = code(table, w, outputs, depth, edge);
            CHECK(first_difference(multiply(table, x, w, &coded, rows, outputs, depth, edge),
                                   multiply(table, x, w, nullptr, rows, outputs, depth, edge)) ==
                  -1);
        };
        size_t count = 0; // no list has as many entries as a share of the sweep leaves out
        for (const size_t rows :
             {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 33, 48, 49, 64, 65, 100}) {
            for (const size_t outputs : {1, 15, 16, 17, 32, 33, 48, 49, 100}) {
                for (const size_t depth : {1, 31, 32, 33, 100, 600, 1152}) {
                    if (taken(count++)) {
                        check(rows, outputs, depth, count % 2 == 0 ? 0 : 1 + count % 300);
                    }
                }
            }
        }
        for (const size_t depth : {2049, 4200}) { // several panels
            check(65, 33, depth, 0);
            check(70, 17, depth, 40);
        }
    });
}
