// Inputs for the kernel tests: reproducible numbers of several kinds, the tables to be compared,
// and comparison by memcmp.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/reference.h"
#include "tests/kernels/naive.h"
#include "tests/tiles/emulated.h"

// A table that must give the same bits as the others. Null: it does not run on this machine.
struct Candidate {
    std::string name;
    const stasis::kernels::Table *table;
};

// The tables that are compiled for some instruction set.
inline std::vector<Candidate> instruction_set_tables() {
    std::vector<Candidate> all;
    for (const char *const *name = stasis::kernels::table_names(); *name != nullptr; ++name) {
        if (std::string(*name) != "reference") {
            const stasis::kernels::Table *table = stasis::kernels::find_table(*name);
            const bool emulated = table == nullptr && std::string(*name) == "amx";
            all.push_back({*name, emulated ? stasis::test::emulated_amx() : table});
        }
    }
    return all;
}

inline std::vector<Candidate> all_tables() {
    const stasis::kernels::Reference *fast = stasis::kernels::reference_with_fma();
    std::vector<Candidate> all = instruction_set_tables();
    all.push_back({"reference, portable build", &stasis::kernels::portable::reference().table});
    all.push_back({"reference, fma build", fast != nullptr ? &fast->table : nullptr});
    return all;
}

// Runs `check(table)` for each table; those that this machine lacks are reported and counted.
template <typename Check>
void for_each_table(const Check &check, const std::vector<Candidate> &tables = all_tables()) {
    for (const Candidate &candidate : tables) {
        INFO("table: ", candidate.name);
        if (candidate.table != nullptr) {
            check(*candidate.table);
        } else {
            std::printf("SKIPPED: %s: this machine cannot run table '%s'\n",
                        doctest::getContextOptions()->currentTest->m_name, candidate.name.c_str());
        }
    }
}

// Memory of the alignment that kernels expect.
class Aligned {
  public:
    explicit Aligned(size_t size_bytes)
        : data_(std::aligned_alloc(64, (size_bytes + 64) / 64 * 64)) {}
    ~Aligned() { std::free(data_); }
    Aligned(const Aligned &) = delete;
    Aligned &operator=(const Aligned &) = delete;
    void *data() const { return data_; }

  private:
    void *data_;
};

// The product by a table: x packed, then multiplied.
inline void multiply(const stasis::kernels::Table &table, const naive::Product &p) {
    using namespace stasis::kernels;
    const Aligned packed(table.packed_bytes(p.rows, p.depth)), scratch(kScratchBytes);
    const Pack task{p.x, p.x_stride, p.rows, p.depth, packed.data()};
    for (size_t begin = 0; begin < p.rows; begin += kPackRows) {
        table.pack(task, begin, std::min(begin + kPackRows, p.rows));
    }
    table.matmul({packed.data(), p.w, p.w_stride, p.y, p.y_stride, p.rows, p.outputs, p.depth,
                  scratch.data()});
}

// A matrix of integer weights in the order that products read.
inline std::vector<uint8_t> in_strips(stasis::kernels::Quant type, const uint8_t *w,
                                      size_t w_stride, size_t outputs, size_t depth) {
    using namespace stasis::kernels;
    std::vector<uint8_t> strips(strips_bytes(type, outputs, depth), 0xA5);
    for (size_t output = 0; output < outputs; output += kStripOutputs) {
        make_strip(type, w + output * w_stride, w_stride, std::min(kStripOutputs, outputs - output),
                   depth, strips.data() + output / kStripOutputs * strip_bytes(type, depth));
    }
    return strips;
}

enum class Kind {
    plain,    // between -1 and 1
    wide,     // any exponent from 2^-20 to 2^20
    boundary, // products and sums around 2^-126, where results are flushed
    cancel,   // neighbours that nearly cancel
    huge,     // products around 2^127, overflowing now and then
    denormal, // denormals of either sign, zeros of either sign, and ordinary numbers between
};

inline constexpr Kind kKinds[] = {Kind::plain,  Kind::wide, Kind::boundary,
                                  Kind::cancel, Kind::huge, Kind::denormal};

// Inputs of exp, tanh and softplus, found by search: each shows one unit in the last place of one
// constant, up or down.
inline constexpr float kSensitive[] = {
    -0x1.00002cp-2F, -0x1.00005ap-2F, -0x1.00010ep-2F, -0x1.0002dcp-2F, -0x1.0019eep-2F,
    -0x1.00a02ep-2F, -0x1.03cbc0p-2F, -0x1.026d36p-2F, -0x1.1ff84ap-2F, -0x1.31f276p-2F,
    -0x1.0fb6b6p+4F, -0x1.419ecap+3F, -0x1.e00000p+4F, -0x1.04a452p+5F, -0x1.f31350p+4F, // exp
    0x1.000014p-1F,  0x1.000006p-1F,  0x1.000068p-1F,  0x1.00004cp-1F,  0x1.000194p-1F,
    0x1.0012cep-1F,  0x1.009612p-1F,  0x1.0035e4p-1F,  0x1.004d6ep-1F,  0x1.02ff68p-1F, // tanh
    -0x1.ffff78p-1F, -0x1.fce504p-1F, -0x1.fffedcp-1F, -0x1.fcf04ap-1F, -0x1.fff53cp-1F,
    -0x1.fc26fcp-1F, -0x1.fd452ap-1F, -0x1.f9e24ep-1F, -0x1.d0e236p-1F, -0x1.c0e054p-1F,
    -0x1.c9bd20p-1F, -0x1.b3d402p-1F, -0x1.2fe582p-1F, -0x1.125366p-1F,
    -0x1.edf964p-2F}; // softplus

// Between the rows of an input, a NaN: shows if it is ever used as a number.
inline constexpr uint16_t kPoison = 0x7FC1;

class Numbers {
  public:
    explicit Numbers(uint64_t seed) : generator_(seed) {}

    uint64_t bits() { return generator_(); }
    size_t below(size_t n) { return generator_() % n; }

    float next(Kind kind) {
        switch (kind) {
        case Kind::plain:
            return mantissa() * (below(2) == 0 ? 0.5F : 0.25F);
        case Kind::wide:
            return std::ldexp(mantissa(), static_cast<int>(below(41)) - 20);
        case Kind::boundary:
            return std::ldexp(mantissa(), static_cast<int>(below(6)) - 66);
        case Kind::cancel:
            last_ = below(2) == 0 ? -last_ : std::ldexp(mantissa(), static_cast<int>(below(3)));
            return last_;
        case Kind::huge:
            return std::ldexp(mantissa(), static_cast<int>(below(5)) + 60);
        case Kind::denormal:
            if (below(3) == 0) {
                return mantissa();
            }
            return std::bit_cast<float>(
                static_cast<uint32_t>(below(2) << 31 | (below(3) == 0 ? 0 : bits() & 0x7FFFFFU)));
        }
        return 0.0F;
    }

    std::vector<float> floats(size_t n, Kind kind) {
        std::vector<float> x(n);
        for (float &value : x) {
            value = next(kind);
        }
        return x;
    }

    // Denormals of bf16 are kept: the high half of the float's bits, not its rounding.
    std::vector<uint16_t> bf16(size_t n, Kind kind) {
        std::vector<uint16_t> x(n);
        for (uint16_t &value : x) {
            value = static_cast<uint16_t>(std::bit_cast<uint32_t>(next(kind)) >> 16);
        }
        return x;
    }

  private:
    // 1 <= |m| < 2, either sign; few bits now and then, so that exact ties occur.
    float mantissa() {
        const auto fraction = static_cast<uint32_t>(bits() & 0x7FFFFFU);
        const uint32_t kept = below(4) == 0 ? fraction & 0x780000U : fraction;
        return std::bit_cast<float>(static_cast<uint32_t>(below(2) << 31) | 0x3F800000U | kept);
    }

    std::mt19937_64 generator_;
    float last_ = 1.0F;
};

// Index of the first element whose bits differ, or -1. NaNs count as equal: their sign and payload
// are not part of the contract (C9).
inline long first_difference(const std::vector<float> &a, const std::vector<float> &b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = a[i] != a[i] && b[i] != b[i];
        if (!both_nan && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
            return static_cast<long>(i);
        }
    }
    return -1;
}

inline long first_difference(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b) {
    std::vector<float> wide_a, wide_b;
    for (const uint16_t x : a) {
        wide_a.push_back(stasis::kernels::bf16_to_f32(x));
    }
    for (const uint16_t x : b) {
        wide_b.push_back(stasis::kernels::bf16_to_f32(x));
    }
    return first_difference(wide_a, wide_b);
}
