// C5: blocks, masks, merging. What must not matter: slots that a row does not see, whatever bits
// lie in them, and the rows computed beside it.
#include <cmath>

#include "runtime/kernels/environment.h"
#include "tests/kernels/entries.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

using stasis::kernels::AttentionBlock;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::kPagePositions;
using stasis::kernels::Table;

namespace {

struct Block {
    size_t rows, head_dim, query_stride;
    float scale, softcap;
    std::vector<uint64_t> visible;
    std::vector<uint16_t> query, keys, values;
};

struct Partials {
    std::vector<float> maximum, sum, output;
    std::vector<uint16_t> weights;
    bool operator==(const Partials &other) const {
        return first_difference(maximum, other.maximum) == -1 &&
               first_difference(sum, other.sum) == -1 &&
               first_difference(output, other.output) == -1 &&
               first_difference(weights, other.weights) == -1;
    }
};

Block make_block(Numbers &numbers, size_t rows, size_t head_dim, Kind kind, float softcap) {
    Block block{rows, head_dim, head_dim + 3, 0.0F, softcap, {}, {}, {}, {}};
    block.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    // Huge keys with queries that keep the scores finite; what is not finite has its own test.
    block.query =
        numbers.bf16(rows * block.query_stride, kind == Kind::huge ? Kind::boundary : kind);
    block.keys = numbers.bf16(kPagePositions * head_dim, kind);
    block.values = numbers.bf16(kPagePositions * head_dim, kind);
    for (size_t r = 0; r < rows; ++r) { // nothing, everything, one slot, a prefix, holes
        const uint64_t masks[] = {0, ~uint64_t{0}, uint64_t{1} << numbers.below(64),
                                  ~uint64_t{0} >> numbers.below(64), numbers.bits()};
        block.visible.push_back(masks[numbers.below(5)]);
    }
    return block;
}

struct Naive {
    decltype(Table::attention_merge) attention_merge = naive::table().attention_merge;
    decltype(Table::attention_finish) attention_finish = naive::table().attention_finish;
};

void compute(const Block &block, AttentionBlock &task, const Naive &) {
    naive::attention_block(task, block.query.data(), block.query_stride);
}

void compute(const Block &block, AttentionBlock &task, const Table &table) {
    const Aligned query(table.packed_bytes(block.rows, block.head_dim));
    const Aligned scratch(stasis::kernels::kScratchBytes);
    table.pack({block.query.data(), block.query_stride, block.rows, block.head_dim, query.data()},
               0, block.rows);
    task.query = query.data();
    task.scratch = scratch.data();
    table.attention_block(task);
}

template <typename Kernels>
Partials run(const Block &block, const Kernels &kernels, bool with_weights = true) {
    // Rows without a visible slot keep what was there.
    Partials partials{std::vector<float>(block.rows, 3.0F), std::vector<float>(block.rows, 3.0F),
                      std::vector<float>(block.rows * block.head_dim, 3.0F),
                      std::vector<uint16_t>(block.rows * kPagePositions, uint16_t{0x4040})};
    AttentionBlock task{};
    task.visible = block.visible.data();
    task.keys = block.keys.data();
    task.values = block.values.data();
    task.rows = block.rows;
    task.head_dim = block.head_dim;
    task.scale = block.scale;
    task.softcap = block.softcap;
    task.maximum = partials.maximum.data();
    task.sum = partials.sum.data();
    task.output = partials.output.data();
    task.weights = with_weights ? partials.weights.data() : nullptr;
    compute(block, task, kernels);
    return partials;
}

// One row's whole attention over `blocks`, in the order given: partials, merge, division.
template <typename Kernels>
std::vector<uint16_t> attend(const std::vector<Block> &blocks, const Kernels &kernels) {
    const size_t head_dim = blocks[0].head_dim;
    float m = 0.0F;
    float l = 0.0F;
    std::vector<float> o(head_dim);
    for (const Block &block : blocks) {
        if (block.visible[0] == 0) {
            continue;
        }
        const Partials partials = run(block, kernels);
        kernels.attention_merge({1, head_dim, block.visible.data(), &m, &l, o.data(),
                                 partials.maximum.data(), partials.sum.data(),
                                 partials.output.data()});
    }
    std::vector<uint16_t> y(head_dim);
    kernels.attention_finish(o.data(), l, head_dim, y.data());
    return y;
}

std::vector<Block> make_row(uint64_t seed, size_t blocks, size_t head_dim, Kind kind) {
    Numbers numbers(seed);
    std::vector<Block> row;
    for (size_t i = 0; i < blocks; ++i) {
        row.push_back(make_block(numbers, 1, head_dim, kind, 0.0F));
        row[i].query = row[0].query;
        row[i].visible[0] = ~uint64_t{0};
    }
    return row;
}

} // namespace

TEST_CASE("attention_block: head sizes, row counts, masks, caps and all kinds of numbers") {
    const FloatEnvironment environment;
    for (const Kind kind : kKinds) {
        for (const size_t head_dim : {1, 2, 16, 24, 31, 32, 33, 67}) {
            for (const size_t rows : {1, 5, 18}) {
                INFO("head_dim ", head_dim, " rows ", rows, " kind ", static_cast<int>(kind));
                Numbers numbers(head_dim * 100 + rows);
                const float softcap = head_dim % 2 == 0 ? 0.0F : 20.0F;
                const Block block = make_block(numbers, rows, head_dim, kind, softcap);
                const Partials expected = run(block, Naive{});
                for_each_table([&](const Table &table) { CHECK(run(block, table) == expected); });
            }
        }
    }
}

TEST_CASE("attention_block: slots that are not visible are never read as numbers") {
    const FloatEnvironment environment;
    for (const uint64_t visible : {uint64_t{0x00000000FFFFFFFF}, uint64_t{0x1},
                                   uint64_t{0x8000000000000000}, uint64_t{0xF0F0FFFF00001234}}) {
        Numbers numbers(visible);
        Block block = make_block(numbers, 3, 40, Kind::plain, 0.0F);
        block.visible.assign(3, visible);
        Block damaged = block;
        const uint16_t garbage[] = {0x7FC0, 0xFF81, 0x7F80, 0xFF80, 0x0001, 0x8000, 0xFF7F};
        for (size_t i = 0; i < damaged.keys.size(); ++i) {
            if ((visible >> (i / 40) & 1U) == 0) {
                damaged.keys[i] = garbage[i % 7];
                damaged.values[i] = garbage[(i + 3) % 7];
            }
        }
        for_each_table(
            [&](const Table &table) { CHECK(run(block, table) == run(damaged, table)); });
    }
}

TEST_CASE("attention_block: the weights, when asked for, are p, and change nothing else") {
    const FloatEnvironment environment;
    Numbers numbers(11);
    const Block block = make_block(numbers, 21, 40, Kind::plain, 0.0F);
    for_each_table([&](const Table &table) {
        const Partials asked = run(block, table);
        Partials plain = run(block, table, false);
        CHECK(plain.weights == std::vector<uint16_t>(block.rows * kPagePositions, 0x4040));
        plain.weights = asked.weights;
        CHECK(plain == asked);
        for (size_t r = 0; r < block.rows; ++r) {
            float largest = 0.0F;
            for (size_t s = 0; s < kPagePositions; ++s) {
                const uint16_t p = asked.weights[r * kPagePositions + s];
                if (block.visible[r] == 0) {
                    CHECK(p == 0x4040); // nothing written
                } else if ((block.visible[r] >> s & 1U) == 0) {
                    CHECK(p == 0);
                }
                largest = std::max(largest, naive::from_bf16(p));
            }
            CHECK((block.visible[r] == 0 || largest == 1.0F));
        }
    });
}

// The first half of the block leaves c = 1.5 x 2^-126, the second adds -1.75 x 2^-126: flushed to
// -0.
TEST_CASE("attention_block: a zero is stored as +0") {
    const FloatEnvironment environment;
    Numbers numbers(5);
    Block block = make_block(numbers, 1, 8, Kind::plain, 0.0F);
    block.visible[0] = uint64_t{1} << 32 | 1;
    block.query.assign(block.query.size(), 0x8000); // every score is a zero, p is 1
    std::fill_n(block.values.begin(), 8, uint16_t{0x00C0});
    std::fill_n(block.values.begin() + 32 * 8, 8, uint16_t{0x80E0});
    block.scale = -1.0F; // makes the zeros negative
    for_each_table([&](const Table &table) {
        const Partials partials = run(block, table);
        CHECK(first_difference(partials.maximum, {0.0F}) == -1);
        CHECK(first_difference(partials.sum, {2.0F}) == -1);
        CHECK(first_difference(partials.output, std::vector<float>(8, 0.0F)) == -1);
    });
}

// C9: a score that overflowed must not vanish; the append that computed it has to fail.
TEST_CASE("attention_block: an infinite or undefined score gives no finite output") {
    const FloatEnvironment environment;
    for (const uint16_t bad : {uint16_t{0x7F80}, uint16_t{0x7FC0}}) {
        for (const size_t slot : {0, 5, 63}) {
            Numbers numbers(slot);
            Block block = make_block(numbers, 1, 33, Kind::plain, 0.0F);
            block.visible[0] = ~uint64_t{0};
            block.query[0] = 0x3F80;
            block.keys[slot * 33] = bad;
            for_each_table([&](const Table &table) {
                for (const float value : run(block, table).output) {
                    CHECK(!std::isfinite(value));
                }
            });
        }
    }
}

TEST_CASE("attention_block: rows do not depend on the rows computed beside them") {
    const FloatEnvironment environment;
    Numbers numbers(9);
    const Block block = make_block(numbers, 35, 48, Kind::wide, 0.0F);
    for_each_table([&](const Table &table) {
        const Partials together = run(block, table);
        for (size_t r = 0; r < block.rows; ++r) {
            Block alone = block;
            alone.rows = 1;
            alone.visible = {block.visible[r]};
            alone.query.assign(block.query.begin() + static_cast<long>(r * block.query_stride),
                               block.query.end());
            const Partials partials = run(alone, table);
            CHECK(std::memcmp(&partials.maximum[0], &together.maximum[r], sizeof(float)) == 0);
            CHECK(std::memcmp(&partials.sum[0], &together.sum[r], sizeof(float)) == 0);
            CHECK(std::memcmp(partials.output.data(), &together.output[r * 48],
                              48 * sizeof(float)) == 0);
            CHECK(std::memcmp(partials.weights.data(), &together.weights[r * kPagePositions],
                              kPagePositions * sizeof(uint16_t)) == 0);
        }
    });
}

TEST_CASE("attention: several blocks merged in ascending order equal the naive restatement") {
    const FloatEnvironment environment;
    for (const Kind kind : {Kind::plain, Kind::wide, Kind::denormal}) {
        for (uint64_t seed = 0; seed < 8; ++seed) {
            const std::vector<Block> row = make_row(seed, 1 + seed % 4, 40, kind);
            const std::vector<uint16_t> expected = attend(row, Naive{});
            for_each_table([&](const Table &table) {
                CHECK(first_difference(attend(row, table), expected) == -1);
            });
        }
    }
}

TEST_CASE("attention_merge: all kinds of numbers, far apart and equal maxima") {
    const FloatEnvironment environment;
    for (const Kind kind : kKinds) {
        for (size_t n = 1; n <= 67; ++n) {
            INFO("n ", n, " kind ", static_cast<int>(kind));
            Numbers numbers(n);
            const std::vector<float> o = numbers.floats(n, kind);
            const std::vector<float> o_b = numbers.floats(n, kind);
            const float spread = n % 2 == 0 ? 100.0F : 1.0F;
            const float m = numbers.next(Kind::plain) * spread;
            const float m_b = n % 5 == 0 ? m : numbers.next(Kind::plain) * spread;
            const float l = 1.0F + std::fabs(numbers.next(Kind::plain));
            const float l_b = 1.0F + std::fabs(numbers.next(Kind::plain));
            std::vector<float> expected = o;
            float expected_ml[2] = {m, l};
            entries::merge(naive::table().attention_merge, expected_ml[0], expected_ml[1],
                           expected.data(), m_b, l_b, o_b.data(), n);
            std::vector<uint16_t> divided(n);
            naive::table().attention_finish(expected.data(), expected_ml[1], n, divided.data());
            for_each_table([&](const Table &table) {
                std::vector<float> y = o;
                float ml[2] = {m, l};
                entries::merge(table.attention_merge, ml[0], ml[1], y.data(), m_b, l_b, o_b.data(),
                               n);
                CHECK(std::memcmp(ml, expected_ml, sizeof ml) == 0);
                CHECK(first_difference(y, expected) == -1);
                std::vector<uint16_t> rounded(n);
                table.attention_finish(y.data(), ml[1], n, rounded.data());
                CHECK(first_difference(rounded, divided) == -1);
            });
        }
    }
}

// Of rows that see nothing of the block, whatever lies there; that have seen nothing before; and of
// more and fewer than lanes.
TEST_CASE("attention_merge: rows are merged each for itself, at the edges of memory") {
    const FloatEnvironment environment;
    for (size_t rows = 1; rows <= 50; ++rows) {
        Numbers numbers(rows);
        const size_t head_dim = 1 + numbers.below(40);
        const Kind kind = kKinds[numbers.below(std::size(kKinds))];
        INFO("rows ", rows, " head_dim ", head_dim, " kind ", static_cast<int>(kind));
        std::vector<uint64_t> visible(rows);
        std::vector<float> m(rows), l(rows), m_b(rows), l_b(rows);
        for (size_t r = 0; r < rows; ++r) {
            visible[r] = numbers.below(4) == 0 ? 0 : uint64_t{1} << numbers.below(64);
            m[r] = numbers.next(Kind::plain), m_b[r] = numbers.next(Kind::plain);
            l[r] = numbers.below(4) == 0 ? 0.0F : 1.0F + std::fabs(numbers.next(Kind::plain));
            l_b[r] = 1.0F + std::fabs(numbers.next(Kind::plain));
        }
        const std::vector<float> o = numbers.floats(rows * head_dim, kind);
        const std::vector<float> o_b = numbers.floats(rows * head_dim, kind);
        const auto merged = [&](decltype(Table::attention_merge) entry, Edge edge) {
            const Guarded<uint64_t> sees(visible, edge);
            const Guarded<float> maximum(m, edge), sum(l, edge), output(o, edge);
            const Guarded<float> block_maximum(m_b, edge), block_sum(l_b, edge);
            const Guarded<float> block_output(o_b, edge);
            entry({rows, head_dim, sees.data(), maximum.data(), sum.data(), output.data(),
                   block_maximum.data(), block_sum.data(), block_output.data()});
            std::vector<float> all = output.values();
            const std::vector<float> maxima = maximum.values(), sums = sum.values();
            all.insert(all.end(), maxima.begin(), maxima.end());
            all.insert(all.end(), sums.begin(), sums.end());
            return all;
        };
        const auto expected = merged(naive::table().attention_merge, Edge::back);
        for_each_table([&](const Table &table) {
            for (const Edge edge : kEdges) {
                CHECK(first_difference(merged(table.attention_merge, edge), expected) == -1);
            }
        });
    }
}

TEST_CASE("attention: a masked page in the middle is as if it were not there") {
    const FloatEnvironment environment;
    const std::vector<Block> row = make_row(3, 3, 32, Kind::plain);
    std::vector<Block> masked = row;
    masked[1].visible[0] = 0;
    for_each_table([&](const Table &table) {
        CHECK(attend(masked, table) == attend({row[0], row[2]}, table));
        CHECK(attend(masked, table) != attend(row, table));
    });
}

// Guards the clause itself: if order did not show, the equality above would prove nothing about it.
TEST_CASE("attention_merge: the order of blocks shows in the bits") {
    const FloatEnvironment environment;
    Numbers numbers(4);
    const std::vector<float> a = numbers.floats(64, Kind::plain);
    const std::vector<float> b = numbers.floats(64, Kind::plain);
    const std::vector<float> c = numbers.floats(64, Kind::plain);
    for_each_table([&](const Table &table) {
        const auto merge = [&](const std::vector<float> &x, float m_x, const std::vector<float> &y,
                               float m_y, const std::vector<float> &z, float m_z) {
            std::vector<float> o = x;
            float m = m_x;
            float l = 1.0F;
            entries::merge(table.attention_merge, m, l, o.data(), m_y, 1.0F, y.data(), 64);
            entries::merge(table.attention_merge, m, l, o.data(), m_z, 1.0F, z.data(), 64);
            return o;
        };
        CHECK(first_difference(merge(a, 0.1F, b, 0.7F, c, 0.4F),
                               merge(c, 0.4F, b, 0.7F, a, 0.1F)) != -1);
    });
}

TEST_CASE("attention: it is softmax attention, to the accuracy of bf16") {
    const FloatEnvironment environment;
    const size_t head_dim = 64;
    const std::vector<Block> row = make_row(8, 4, head_dim, Kind::plain);
    double total = 0.0;
    std::vector<double> expected(head_dim, 0.0);
    for (const Block &block : row) {
        for (size_t s = 0; s < kPagePositions; ++s) {
            double score = 0.0;
            for (size_t i = 0; i < head_dim; ++i) {
                score += static_cast<double>(naive::from_bf16(block.query[i])) *
                         naive::from_bf16(block.keys[s * head_dim + i]);
            }
            const double p = std::exp(score * block.scale);
            total += p;
            for (size_t i = 0; i < head_dim; ++i) {
                expected[i] += p * naive::from_bf16(block.values[s * head_dim + i]);
            }
        }
    }
    for_each_table([&](const Table &table) {
        const std::vector<uint16_t> y = attend(row, table);
        for (size_t i = 0; i < head_dim; ++i) {
            CHECK(std::fabs(naive::from_bf16(y[i]) - expected[i] / total) < 0.002);
        }
    });
}
