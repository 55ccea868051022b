// Every entry of every table but products and attention blocks, at the sizes of models and over the
// whole range of its functions, against the reference table (the naive restatement would take
// minutes). All arrays lie beside pages that may not be touched.
#include <limits>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;
using stasis::test::first_case;
using stasis::test::stride;

namespace {

struct EntryInputs {
    std::vector<float> x, z, weight, cosine, sine;
    std::vector<uint16_t> row;
};

// What the entries make of them, the gates' scale and the soft cap's included.
struct EntryResults {
    std::vector<float> norm, turned, total, merged, embedded, wide, capped;
    std::vector<uint16_t> rounded, divided, silu, gelu;
    size_t nonfinite = 0;
};

EntryInputs make_inputs(size_t n, Kind kind) {
    Numbers numbers(n);
    EntryInputs in;
    in.x = numbers.floats(n, kind);
    in.z = numbers.floats(n, kind);
    in.weight = numbers.floats(n, Kind::wide);
    in.cosine = numbers.floats(n / 2, Kind::plain);
    in.sine = numbers.floats(n / 2, Kind::plain);
    in.row = numbers.bf16(n, kind);
    return in;
}

EntryResults run(const Table &table, const EntryInputs &in, Edge edge) {
    const size_t n = in.x.size();
    const Guarded<float> x(in.x, edge), z(in.z, edge), weight(in.weight, edge),
        cosine(in.cosine, edge), sine(in.sine, edge), y(in.x, edge);
    const Guarded<uint16_t> row(in.row, edge), bits(in.row, edge);
    EntryResults results;
    table.rms_norm(x.data(), weight.data(), n, 1e-6F, y.data());
    results.norm = y.values();
    table.embed(row.data(), 11.3125F, n, y.data());
    results.embedded = y.values();
    table.embed_wide(x.data(), 11.3125F, n, y.data());
    results.wide = y.values();
    table.round_bf16(x.data(), n, bits.data());
    results.rounded = bits.values();
    table.attention_finish(x.data(), 3.0F, n, bits.data());
    results.divided = bits.values();
    table.silu_gate(x.data(), z.data(), n, bits.data());
    results.silu = bits.values();
    table.gelu_gate(x.data(), z.data(), n, bits.data());
    results.gelu = bits.values();
    results.nonfinite = table.find_nonfinite(x.data(), n);

    const Guarded<float> turned(in.x, edge), total(in.x, edge), merged(in.x, edge),
        capped(in.x, edge);
    table.rope(turned.data(), cosine.data(), sine.data(), n / 2 * 2);
    results.turned = turned.values();
    table.add(z.data(), n, total.data());
    results.total = total.values();
    float m = -1.5F;
    float l = 7.0F;
    table.attention_merge(&m, &l, merged.data(), 0.25F, 3.0F, z.data(), n);
    results.merged = merged.values();
    results.merged.insert(results.merged.end(), {m, l});
    table.softcap(capped.data(), n, 30.0F);
    results.capped = capped.values();
    return results;
}

void check_equal(const EntryResults &a, const EntryResults &b) {
    CHECK(first_difference(a.norm, b.norm) == -1);
    CHECK(first_difference(a.turned, b.turned) == -1);
    CHECK(first_difference(a.total, b.total) == -1);
    CHECK(first_difference(a.merged, b.merged) == -1);
    CHECK(first_difference(a.embedded, b.embedded) == -1);
    CHECK(first_difference(a.wide, b.wide) == -1);
    CHECK(first_difference(a.capped, b.capped) == -1);
    CHECK(first_difference(a.rounded, b.rounded) == -1);
    CHECK(first_difference(a.divided, b.divided) == -1);
    CHECK(first_difference(a.silu, b.silu) == -1);
    CHECK(first_difference(a.gelu, b.gelu) == -1);
    CHECK(a.nonfinite == b.nonfinite);
}

// All of the range at even steps, and what lies around the places where a function bends: the
// limits of exp, those of tanh through its 2x, and where tanh changes its form.
std::vector<float> whole_range() {
    std::vector<float> x(std::begin(kSensitive), std::end(kSensitive));
    for (uint64_t bits = 2003 * first_case(); bits < uint64_t{1} << 32; bits += 2003 * stride()) {
        x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float bend : {0.0F, 0x1p-126F, 0.625F, 1.0F, 9.0F, 43.5F, 0x1.62e42ep+5F, 87.0F,
                             0x1.62e42ep+6F, infinity}) {
        for (uint32_t step = 0; step <= 200; ++step) {
            const uint32_t above = std::bit_cast<uint32_t>(bend) + step;
            const uint32_t below = std::bit_cast<uint32_t>(bend) - step;
            for (const uint32_t bits : {above, below, above ^ 0x80000000U, below ^ 0x80000000U}) {
                x.push_back(std::bit_cast<float>(bits));
            }
        }
    }
    return x;
}

} // namespace

TEST_CASE("entries: sizes 1 to 67 and of models, all kinds, equal the reference and stay inside") {
    const FloatEnvironment environment;
    std::vector<size_t> sizes = {128, 255, 256, 1000, 2048, 6912, 6925};
    for (size_t n = 1 + first_case(); n <= 67; n += stride()) {
        sizes.push_back(n);
    }
    for (const size_t n : sizes) {
        for (const Kind kind : kKinds) {
            INFO("n ", n, " kind ", static_cast<int>(kind));
            const EntryInputs inputs = make_inputs(n, kind);
            const EntryResults expected = run(reference_table(), inputs, Edge::back);
            for_each_table(
                [&](const Table &table) {
                    for (const Edge edge : kEdges) {
                        check_equal(run(table, inputs, edge), expected);
                    }
                },
                instruction_set_tables());
        }
    }
}

// With a cap of 1 the soft cap is tanh itself. The gates round to bf16, which hides most last
// bits: factors at random let some show.
TEST_CASE("entries: tanh, silu and gelu over the whole range equal the reference") {
    const FloatEnvironment environment;
    const std::vector<float> x = whole_range();
    const size_t n = x.size();
    Numbers numbers(1);
    std::vector<float> ones(n, 1.0F);
    const std::vector<float> factors = numbers.floats(n, Kind::plain);
    const auto run_all = [&](const Table &table, std::vector<float> &capped,
                             std::vector<uint16_t>(&gated)[4]) {
        capped = x;
        table.softcap(capped.data(), n, 1.0F);
        for (size_t i = 0; i < 4; ++i) {
            gated[i].resize(n);
            const auto gate = i < 2 ? table.silu_gate : table.gelu_gate;
            gate(x.data(), i % 2 == 0 ? ones.data() : factors.data(), n, gated[i].data());
        }
    };
    std::vector<float> expected_capped, capped;
    std::vector<uint16_t> expected[4], gated[4];
    run_all(reference_table(), expected_capped, expected);
    for_each_table(
        [&](const Table &table) {
            run_all(table, capped, gated);
            CHECK(first_difference(capped, expected_capped) == -1);
            for (size_t i = 0; i < 4; ++i) {
                CHECK(first_difference(gated[i], expected[i]) == -1);
            }
        },
        instruction_set_tables());
}

// Merging maxima 0 and x leaves exp of 0 and of -|x|, one in l and the other in o.
TEST_CASE("entries: exp over the whole range equals the reference") {
    const FloatEnvironment environment;
    const std::vector<float> range = whole_range();
    const auto run_all = [&](const Table &table) {
        std::vector<float> results;
        for (const float x : range) {
            float m = x, l = 1.0F, o = 0.0F;
            const float one = 1.0F;
            table.attention_merge(&m, &l, &o, 0.0F, 0.0F, &one, 1);
            results.insert(results.end(), {m, l, o});
        }
        return results;
    };
    const std::vector<float> expected = run_all(reference_table());
    for_each_table(
        [&](const Table &table) { CHECK(first_difference(run_all(table), expected) == -1); },
        instruction_set_tables());
}

TEST_CASE(
    "entries: the tables of the instruction sets have their own, and the names they are found by") {
    const auto differ = [](const Table &a, const Table &b) {
        return a.rms_norm != b.rms_norm && a.round_bf16 != b.round_bf16 && a.rope != b.rope &&
               a.attention_merge != b.attention_merge && a.attention_finish != b.attention_finish &&
               a.silu_gate != b.silu_gate && a.gelu_gate != b.gelu_gate && a.add != b.add &&
               a.embed != b.embed && a.embed_wide != b.embed_wide && a.softcap != b.softcap &&
               a.find_nonfinite != b.find_nonfinite;
    };
    const Table *avx2 = find_table("avx2");
    for (const Candidate &candidate : instruction_set_tables()) {
        if (candidate.table != nullptr) {
            CHECK(candidate.table->name == candidate.name);
            CHECK(differ(*candidate.table, reference_table()));
            CHECK((candidate.table == avx2 || differ(*candidate.table, *avx2)));
        }
    }
}
