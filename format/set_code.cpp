// Rice codes of the lengths of runs; see set_code.h.
#include "format/set_code.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace stasis::format {

namespace {

constexpr size_t kParameters = 2; // bytes: low bits of lengths between runs, and of runs
constexpr uint32_t kLowBitsMax = 31;

// Lengths in the order of the code: what lies between runs, from token 0 on, and runs, in turn.
// Only the first can be 0; of the others one less is stored.
template <class Visit> void each_length(const TokenRuns &runs, const Visit &visit) {
    uint32_t before = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        visit(i % 2, runs[i] - before - (i == 0 ? 0 : 1));
        before = runs[i];
    }
}

uint64_t bits_of(const TokenRuns &runs, size_t which, uint32_t low) {
    uint64_t bits = 0;
    each_length(runs, [&](size_t parity, uint32_t length) {
        bits += parity == which ? uint64_t{length >> low} + 1 + low : 0;
    });
    return bits;
}

// The number of low bits with which the lengths between runs (0) or of runs (1) take the fewest
// bits: near the logarithm of their mean, and no other minimum is far from there.
uint32_t best_low_bits(const TokenRuns &runs, size_t which) {
    uint64_t sum = 0;
    each_length(runs, [&](size_t parity, uint32_t length) { sum += parity == which ? length : 0; });
    const uint64_t mean = sum / (runs.size() / 2);
    const auto middle = static_cast<uint32_t>(std::bit_width(mean));
    uint32_t best = 0;
    uint64_t fewest = UINT64_MAX;
    for (uint32_t low = middle < 3 ? 0 : middle - 3; low <= std::min(middle + 1, kLowBitsMax);
         ++low) {
        if (const uint64_t bits = bits_of(runs, which, low); bits < fewest) {
            best = low;
            fewest = bits;
        }
    }
    return best;
}

class BitWriter {
  public:
    explicit BitWriter(std::vector<uint8_t> &bytes) : bytes_(bytes) {}
    void put(uint64_t bits, uint32_t count) { // at most 32
        gathered_ |= bits << used_;
        used_ += count;
        while (used_ >= 8) {
            bytes_.push_back(static_cast<uint8_t>(gathered_));
            gathered_ >>= 8;
            used_ -= 8;
        }
    }
    void finish() {
        if (used_ > 0) {
            bytes_.push_back(static_cast<uint8_t>(gathered_));
        }
    }

  private:
    std::vector<uint8_t> &bytes_;
    uint64_t gathered_ = 0;
    uint32_t used_ = 0;
};

class BitReader {
  public:
    explicit BitReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

    // Returns the number of ones before the next zero, which is taken as well.
    uint64_t take_ones() {
        uint64_t ones = 0;
        for (;;) {
            const uint64_t next = peek();
            const auto here = static_cast<uint32_t>(std::countr_one(next));
            if (here < kAtOnce) {
                at_ += here + 1;
                return ones + here;
            }
            ones += kAtOnce;
            at_ += kAtOnce;
            if (at_ >= 8 * bytes_.size()) { // what follows is zeros
                return ones;
            }
        }
    }
    uint64_t take(uint32_t count) { // at most 31
        const uint64_t bits = peek() & ((uint64_t{1} << count) - 1);
        at_ += count;
        return bits;
    }
    // Whether exactly these bytes were taken, but for zeros in the last one.
    bool ends() const { return (at_ + 7) / 8 == bytes_.size() && peek() == 0; }

  private:
    static constexpr uint32_t kAtOnce = 56; // bits that peek() returns at least

    // The bits that come next; behind the last byte they are zeros.
    uint64_t peek() const {
        const uint64_t byte = at_ / 8;
        uint64_t word = 0;
        if (byte < bytes_.size()) {
            std::memcpy(&word, bytes_.data() + byte, std::min<size_t>(8, bytes_.size() - byte));
        }
        return word >> at_ % 8;
    }

    std::span<const uint8_t> bytes_;
    uint64_t at_ = 0;
};

// Each edge takes a bit at least.
bool has_room(std::span<const uint8_t> code, uint32_t count) {
    return code.size() > kParameters && count % 2 == 0 && count > 0 &&
           count <= 8 * (code.size() - kParameters) && code[0] <= kLowBitsMax &&
           code[1] <= kLowBitsMax;
}

template <class Visit>
bool read_runs(std::span<const uint8_t> code, uint32_t count, uint32_t vocabulary,
               const Visit &visit) {
    if (!has_room(code, count)) {
        return false;
    }
    BitReader bits(code.subspan(kParameters));
    uint64_t token = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t low = code[i % 2];
        const uint64_t length = (bits.take_ones() << low) + bits.take(low) + (i == 0 ? 0 : 1);
        if (length > vocabulary - token) {
            return false;
        }
        token += length;
        visit(static_cast<uint32_t>(token));
    }
    return bits.ends();
}

} // namespace

std::vector<uint8_t> encode_runs(const TokenRuns &runs) {
    std::vector<uint8_t> bytes;
    uint32_t low[kParameters];
    for (size_t which = 0; which < kParameters; ++which) {
        low[which] = best_low_bits(runs, which);
        bytes.push_back(static_cast<uint8_t>(low[which]));
    }
    BitWriter bits(bytes);
    each_length(runs, [&](size_t parity, uint32_t length) {
        uint32_t ones = length >> low[parity];
        for (; ones >= 32; ones -= 32) {
            bits.put(UINT32_MAX, 32);
        }
        bits.put((uint64_t{1} << ones) - 1, ones + 1);
        bits.put(length & ((uint64_t{1} << low[parity]) - 1), low[parity]);
    });
    bits.finish();
    return bytes;
}

bool visit_runs(std::span<const uint8_t> code, uint32_t count, uint32_t vocabulary,
                const std::function<void(uint32_t edge)> &visit) {
    return read_runs(code, count, vocabulary, visit);
}

TokenRuns decode_runs(std::span<const uint8_t> code, uint32_t count, uint32_t vocabulary) {
    TokenRuns runs;
    if (!has_room(code, count)) {
        return runs;
    }
    runs.reserve(count);
    const auto add = [&](uint32_t edge) { runs.push_back(edge); };
    return read_runs(code, count, vocabulary, add) ? runs : TokenRuns();
}

} // namespace stasis::format
