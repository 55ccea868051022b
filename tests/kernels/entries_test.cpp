// Every entry of every table but products and attention blocks: at small sizes against the naive
// restatement of NUMERICS.md; at the sizes of models and over the whole range of its functions
// against the reference table, for the restatement would take minutes. All arrays lie beside pages
// that may not be touched.
#include <limits>

#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "tests/data_files.h"
#include "tests/kernels/entries.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;
using stasis::test::first_case;
using stasis::test::stride;

namespace {

struct Inputs {
    std::vector<float> x, z, weight, cosine, sine;
    std::vector<uint16_t> row;
};

Inputs make_inputs(size_t n, Kind kind) {
    Numbers numbers(n);
    Inputs in;
    in.x = numbers.floats(n, kind);
    if (kind == Kind::plain) { // where sigmoid and tanh bend, saturate and reach the floor
        for (float &x : in.x) {
            x *= static_cast<float>(numbers.below(200));
        }
    }
    in.z = numbers.floats(n, kind);
    in.weight = numbers.floats(n, Kind::wide);
    in.cosine = numbers.floats(n / 2, Kind::plain);
    in.sine = numbers.floats(n / 2, Kind::plain);
    in.row = numbers.bf16(n, kind);
    return in;
}

struct Results {
    std::vector<float> y, scalars;
    std::vector<uint16_t> bits;
    size_t found;
};

// Inputs beside pages that may not be touched.
class Placed {
  public:
    Placed(const Inputs &in, Edge edge)
        : in_(in), x_(in.x, edge), z_(in.z, edge), weight_(in.weight, edge),
          cosine_(in.cosine, edge), sine_(in.sine, edge), y_(in.x, edge), row_(in.row, edge),
          bits_(in.row, edge) {}

    Results run(const Table &table, const entries::Call &call) const {
        std::copy(in_.x.begin(), in_.x.end(), y_.data());
        std::copy(in_.row.begin(), in_.row.end(), bits_.data());
        entries::Operands operands{in_.x.size(),   x_.data(),      z_.data(),
                                   weight_.data(), cosine_.data(), sine_.data(),
                                   row_.data(),    y_.data(),      bits_.data()};
        call.of(table, operands);
        return {y_.values(), {operands.m, operands.l}, bits_.values(), operands.found};
    }

  private:
    const Inputs &in_;
    const Guarded<float> x_, z_, weight_, cosine_, sine_, y_;
    const Guarded<uint16_t> row_, bits_;
};

void check_equal(const Results &a, const Results &b) {
    CHECK(first_difference(a.y, b.y) == -1);
    CHECK(first_difference(a.scalars, b.scalars) == -1);
    CHECK(first_difference(a.bits, b.bits) == -1);
    CHECK(a.found == b.found);
}

// Compares every call of the tables with that of the expected one.
void check_calls(size_t n, Kind kind, const Table &expected_table,
                 const std::vector<const Table *> &tables) {
    const Inputs inputs = make_inputs(n, kind);
    const Placed front(inputs, Edge::front), back(inputs, Edge::back);
    for (const entries::Call &call : entries::kCalls) {
        INFO(call.name, " n ", n, " kind ", static_cast<int>(kind));
        const Results expected = back.run(expected_table, call);
        for (const Table *table : tables) {
            INFO("table: ", table->name);
            check_equal(front.run(*table, call), expected);
            check_equal(back.run(*table, call), expected);
        }
    }
}

// Those that this machine runs.
std::vector<const Table *> runnable(const std::vector<Candidate> &candidates) {
    std::vector<const Table *> tables;
    for_each_table([&](const Table &table) { tables.push_back(&table); }, candidates);
    return tables;
}

template <auto... each> bool all_differ(const Table &a, const Table &b, entries::List<each...>) {
    return ((a.*each != b.*each) && ...);
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

// Of sizes above 67, of which rope makes as many pairs as others have numbers, a share.
TEST_CASE("entries: sizes 1 to 134, all kinds, equal the naive restatement and stay inside") {
    const FloatEnvironment environment;
    const std::vector<const Table *> tables = runnable(all_tables());
    for (size_t n = 1; n <= 134; n = n < 67 ? n + 1 : n == 67 ? 68 + first_case() : n + stride()) {
        for (const Kind kind : kKinds) {
            check_calls(n, kind, naive::table(), tables);
        }
    }
}

TEST_CASE("entries: sizes of models, all kinds, equal the reference and stay inside") {
    const FloatEnvironment environment;
    const std::vector<const Table *> tables = runnable(instruction_set_tables());
    for (const size_t n : {255, 256, 1000, 2048, 6912, 6925}) {
        for (const Kind kind : kKinds) {
            check_calls(n, kind, reference_table(), tables);
        }
    }
}

// With a cap of 1 the soft cap is tanh itself. The gates round to bf16, which hides most last
// bits: factors at random let some show.
TEST_CASE("entries: tanh, silu, gelu and limited gates over the whole range equal the reference") {
    const FloatEnvironment environment;
    const std::vector<float> x = whole_range();
    const size_t n = x.size();
    Numbers numbers(1);
    std::vector<float> ones(n, 1.0F);
    const std::vector<float> factors = numbers.floats(n, Kind::plain);
    const auto run_all = [&](const Table &table, std::vector<float> &capped,
                             std::vector<uint16_t>(&gated)[5]) {
        capped = x;
        table.softcap(capped.data(), n, 1.0F);
        for (size_t i = 0; i < 4; ++i) {
            gated[i].resize(n);
            const auto gate = i < 2 ? table.silu_gate : table.gelu_gate;
            gate(x.data(), i % 2 == 0 ? ones.data() : factors.data(), n, gated[i].data());
        }
        gated[4].resize(n);
        table.limited_gate(x.data(), factors.data(), n, 7.0F, gated[4].data());
    };
    std::vector<float> expected_capped, capped;
    std::vector<uint16_t> expected[5], gated[5];
    run_all(reference_table(), expected_capped, expected);
    for_each_table(
        [&](const Table &table) {
            run_all(table, capped, gated);
            CHECK(first_difference(capped, expected_capped) == -1);
            for (size_t i = 0; i < 5; ++i) {
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
            entries::merge(table.attention_merge, m, l, &o, 0.0F, 0.0F, &one, 1);
            results.insert(results.end(), {m, l, o});
        }
        return results;
    };
    const std::vector<float> expected = run_all(reference_table());
    for_each_table(
        [&](const Table &table) { CHECK(first_difference(run_all(table), expected) == -1); },
        instruction_set_tables());
}

TEST_CASE("entries: the tables that are tested are the library's own") {
    for (const Candidate &candidate : instruction_set_tables()) {
        const Table *own = find_table(candidate.name.c_str());
        if (own == nullptr && candidate.table != nullptr) {
            STASIS_SKIP("this machine has no tiles: AMX's kernels ran over emulated ones alone");
        }
        CHECK(candidate.table == own);
    }
}

TEST_CASE(
    "entries: the tables of the instruction sets have their own, and the names they are found by") {
    Table reference = reference_table();
    reference.embed_quantized = nullptr; // of which there is one
    const Table *avx2 = find_table("avx2");
    for (const Candidate &candidate : instruction_set_tables()) {
        if (candidate.table != nullptr) {
            CHECK(candidate.table->name == candidate.name);
            CHECK(all_differ(*candidate.table, reference, entries::All()));
            Table other = *avx2;
            other.embed_quantized = nullptr;
            CHECK((candidate.table == avx2 || all_differ(*candidate.table, other, entries::All())));
        }
    }
}
