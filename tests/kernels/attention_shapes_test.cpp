// Attention blocks at the sizes of models and at the edges of every table's tiles, against the
// reference table. All arrays lie beside pages that may not be touched.
#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;
using stasis::test::taken;

namespace {

struct BlockCase {
    size_t rows, head_dim;
    float softcap;
    std::vector<uint64_t> visible;
    std::vector<uint16_t> query, keys, values; // query rows head_dim + 3 apart
};

// Masks as a prompt has them (each row sees one slot more), as an old block has them (all), and
// with holes.
BlockCase make_case(Numbers &numbers, size_t rows, size_t head_dim, Kind kind) {
    BlockCase made{rows, head_dim, numbers.below(2) == 0 ? 0.0F : 20.0F, {}, {}, {}, {}};
    const size_t shape = numbers.below(3);
    for (size_t r = 0; r < rows; ++r) {
        const uint64_t prefix = (uint64_t{2} << (r % 64)) - 1;
        made.visible.push_back(shape == 0 ? prefix : shape == 1 ? ~uint64_t{0} : numbers.bits());
    }
    made.visible[numbers.below(rows)] = rows > 1 ? 0 : 1;
    const Kind query = kind == Kind::huge ? Kind::boundary : kind; // so that scores are finite
    made.query = numbers.bf16((rows - 1) * (head_dim + 3) + head_dim, query);
    made.keys = numbers.bf16(kPagePositions * head_dim, kind);
    made.values = numbers.bf16(kPagePositions * head_dim, kind);
    return made;
}

// Maximum, sum and output of every row, one after the other.
std::vector<float> run(const Table &table, const BlockCase &c, Edge edge) {
    const Guarded<uint64_t> visible(c.visible, edge);
    const Guarded<uint16_t> query(c.query, edge), keys(c.keys, edge), values(c.values, edge);
    const Guarded<float> maximum(std::vector<float>(c.rows, 3.0F), edge),
        sum(std::vector<float>(c.rows, 3.0F), edge),
        output(std::vector<float>(c.rows * c.head_dim, 3.0F), edge);
    const Guarded<uint16_t> weights(std::vector<uint16_t>(c.rows * kPagePositions, 0x4040), edge);
    const Guarded<uint8_t> scratch(std::vector<uint8_t>(kScratchBytes), edge, 64);
    const size_t packed_bytes = table.packed_bytes(c.rows, c.head_dim);
    const Guarded<uint8_t> packed(std::vector<uint8_t>(packed_bytes), edge, 64);
    table.pack({query.data(), c.head_dim + 3, c.rows, c.head_dim, packed.data()}, 0, c.rows);
    table.attention_block({.query = packed.data(),
                           .visible = visible.data(),
                           .keys = keys.data(),
                           .values = values.data(),
                           .rows = c.rows,
                           .head_dim = c.head_dim,
                           .scale = 0.125F,
                           .softcap = c.softcap,
                           .maximum = maximum.data(),
                           .sum = sum.data(),
                           .output = output.data(),
                           .weights = weights.data(),
                           .next_keys = keys.data(),
                           .next_values = values.data(),
                           .scratch = scratch.data()});
    std::vector<float> results = maximum.values();
    for (const std::vector<float> &more : {sum.values(), output.values()}) {
        results.insert(results.end(), more.begin(), more.end());
    }
    for (const uint16_t weight : weights.values()) {
        results.push_back(bf16_to_f32(weight));
    }
    return results;
}

} // namespace

TEST_CASE(
    "attention_block: rows and head sizes around every tile equal the reference, stay inside") {
    const FloatEnvironment environment;
    Numbers numbers(1);
    size_t count = 0;
    for (const size_t head_dim : {1, 8, 15, 16, 17, 48, 64, 80, 96, 128, 256, 288, 544}) {
        for (const size_t rows : {1, 2, 4, 7, 8, 15, 16, 17, 32, 33, 49, 128, 145, 300}) {
            for (const Kind kind : kKinds) {
                if (!taken(count++)) {
                    continue;
                }
                const Edge edge = kEdges[numbers.below(2)];
                INFO("head_dim ", head_dim, " rows ", rows, " kind ", static_cast<int>(kind));
                const BlockCase made = make_case(numbers, rows, head_dim, kind);
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
