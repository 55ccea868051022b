// The two forms of a set of tokens, and what two sets differ by; see token_set.h.
#include "format/state/token_set.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace stasis {

namespace {

constexpr char kBits = 0, kRuns = 1; // the first byte: which form follows

size_t bytes_of_bits(uint32_t vocabulary) {
    return (size_t{vocabulary} + 7) / 8;
}

bool is_bits(std::string_view bytes) {
    return !bytes.empty() && bytes[0] == kBits;
}

size_t bytes_of_number(uint32_t number) {
    return number == 0 ? 1 : (static_cast<size_t>(std::bit_width(number)) + 6) / 7;
}

void put_number(std::string &bytes, uint32_t number) {
    for (; number >= 0x80; number >>= 7) {
        bytes.push_back(static_cast<char>(number | 0x80));
    }
    bytes.push_back(static_cast<char>(number));
}

// Takes a number of at most 5 bytes, none more than it needs. Returns false where there is none.
bool take_number(std::string_view &bytes, uint64_t &number) {
    number = 0;
    for (size_t i = 0; i < 5 && i < bytes.size(); ++i) {
        const auto byte = static_cast<uint8_t>(bytes[i]);
        number |= uint64_t{byte & 0x7FU} << (7 * i);
        if (byte < 0x80) {
            bytes.remove_prefix(i + 1);
            return byte != 0 || i == 0;
        }
    }
    return false;
}

// Calls visit(end) with the end of each run of tokens that are not and that are in the set, in
// turn. Returns false where the bytes are none.
template <class Visit>
bool each_edge_of_runs(std::string_view bytes, uint32_t vocabulary, const Visit &visit) {
    uint64_t token = 0, length = 0;
    bool first = true;
    for (; !bytes.empty(); first = false) {
        if (!take_number(bytes, length) || length > vocabulary - token || (length == 0 && !first)) {
            return false;
        }
        token += length;
        visit(static_cast<uint32_t>(token));
    }
    return true;
}

// Bits 64 at a time, the lowest first; those behind the last byte are 0.
struct Words {
    const char *bytes;
    size_t size;

    size_t count() const { return (size + 7) / 8; }
    uint64_t at(size_t index) const {
        uint64_t word = 0;
        std::memcpy(&word, bytes + 8 * index, std::min<size_t>(8, size - 8 * index));
        return word;
    }
};

// Calls visit(index, word) for 64 bits at a time of which those are set where bits begin to differ
// from the bit before. `word_at(index)` returns 64 of the bits; behind the last one is a 0.
template <class At, class Visit>
void each_edge(size_t words, const At &word_at, const Visit &visit) {
    uint64_t before = 0;
    for (size_t index = 0; index < words; ++index) {
        const uint64_t word = word_at(index);
        visit(index, word ^ (word << 1 | before));
        before = word >> 63;
    }
    visit(words, before);
}

template <class At> TokenRuns runs_of_words(size_t words, const At &word_at) {
    TokenRuns runs;
    each_edge(words, word_at, [&](size_t index, uint64_t edges) {
        for (; edges != 0; edges &= edges - 1) {
            runs.push_back(static_cast<uint32_t>(64 * index) +
                           static_cast<uint32_t>(std::countr_zero(edges)));
        }
    });
    return runs;
}

template <class At> size_t count_of_words(size_t words, const At &word_at) {
    size_t count = 0;
    each_edge(words, word_at,
              [&](size_t, uint64_t edges) { count += static_cast<size_t>(std::popcount(edges)); });
    return count;
}

Words words_of(std::string_view bytes) {
    return {bytes.data() + 1, bytes.size() - 1};
}

// Whether bits are as many as the vocabulary has tokens, none of them beyond it.
bool fit(std::string_view bytes, uint32_t vocabulary) {
    return bytes.size() == 1 + bytes_of_bits(vocabulary) &&
           (vocabulary % 8 == 0 || static_cast<uint8_t>(bytes.back()) >> vocabulary % 8 == 0);
}

size_t bytes_of_runs(const TokenRuns &runs) {
    size_t bytes = 1;
    uint32_t before = 0;
    for (const uint32_t token : runs) {
        bytes += bytes_of_number(token - before);
        before = token;
    }
    return bytes;
}

// Of bytes that are bits, as fit() tells: whether runs would take more.
bool are_shorter_than_runs(std::string_view bytes) {
    const Words words = words_of(bytes);
    const auto at = [&](size_t index) { return words.at(index); };
    return count_of_words(words.count(), at) + 1 > bytes.size() ||
           bytes_of_runs(runs_of_words(words.count(), at)) > bytes.size();
}

// The runs of bytes that are a set.
TokenRuns runs_of(std::string_view bytes, uint32_t vocabulary) {
    if (bytes.empty()) {
        return {};
    }
    if (is_bits(bytes)) {
        return runs_of_bits(bytes.data() + 1, vocabulary);
    }
    TokenRuns runs;
    runs.reserve(bytes.size());
    each_edge_of_runs(bytes.substr(1), vocabulary, [&](uint32_t token) { runs.push_back(token); });
    return runs;
}

// Merges without a branch on data, of which half would be mispredicted: calls visit(token, in_one)
// for the edges of both in order, in_one if only one of both has it.
template <class Visit>
void merge(const TokenRuns &one, const TokenRuns &other, const Visit &visit) {
    size_t i = 0, j = 0;
    while (i < one.size() && j < other.size()) {
        const uint32_t a = one[i], b = other[j];
        visit(std::min(a, b), a != b);
        i += a <= b ? 1 : 0;
        j += b <= a ? 1 : 0;
    }
    for (; i < one.size(); ++i) {
        visit(one[i], true);
    }
    for (; j < other.size(); ++j) {
        visit(other[j], true);
    }
}

TokenRuns difference_of(const TokenRuns &one, const TokenRuns &other) {
    TokenRuns runs(one.size() + other.size());
    size_t count = 0;
    merge(one, other, [&](uint32_t token, bool in_one) {
        runs[count] = token;
        count += in_one ? 1 : 0;
    });
    runs.resize(count);
    return runs;
}

// Turns the bits of tokens [begin, end) over.
void flip(char *bytes, uint32_t begin, uint32_t end) {
    const auto turn = [&](size_t byte, unsigned mask) {
        bytes[byte] = static_cast<char>(static_cast<unsigned char>(bytes[byte]) ^ mask);
    };
    const unsigned first = 0xFFU << begin % 8, last = (1U << end % 8) - 1;
    if (begin / 8 == end / 8) {
        turn(begin / 8, first & last);
        return;
    }
    turn(begin / 8, first & 0xFFU);
    for (size_t byte = begin / 8 + 1; byte < end / 8; ++byte) {
        turn(byte, 0xFF);
    }
    if (end % 8 != 0) {
        turn(end / 8, last);
    }
}

} // namespace

TokenRuns runs_of_bits(const void *bits, uint32_t count) {
    const Words words{static_cast<const char *>(bits), bytes_of_bits(count)};
    return runs_of_words(words.count(), [&](size_t index) {
        const uint64_t word = words.at(index);
        const uint64_t left = count - 64 * index; // bits beyond the last one do not count
        return left < 64 ? word & ((uint64_t{1} << left) - 1) : word;
    });
}

std::string encode_tokens(const TokenRuns &runs, uint32_t vocabulary) {
    const size_t bits = 1 + bytes_of_bits(vocabulary);
    if (const size_t size = bytes_of_runs(runs); size <= bits) {
        std::string bytes(1, kRuns);
        bytes.reserve(size);
        uint32_t before = 0;
        for (const uint32_t token : runs) {
            put_number(bytes, token - before);
            before = token;
        }
        return bytes;
    }
    std::string bytes(bits, kBits);
    for (size_t i = 0; i < runs.size(); i += 2) {
        flip(bytes.data() + 1, runs[i], runs[i + 1]);
    }
    return bytes;
}

std::optional<TokenRuns> decode_tokens(std::string_view bytes, uint32_t vocabulary) {
    if (bytes.size() == 1 && bytes[0] == kRuns) {
        return TokenRuns();
    }
    return is_token_set(bytes, vocabulary) ? std::optional(runs_of(bytes, vocabulary))
                                           : std::nullopt;
}

// The same set may be written in other ways, of which one is right.
bool is_token_set(std::string_view bytes, uint32_t vocabulary) {
    if (is_bits(bytes)) {
        return fit(bytes, vocabulary) && are_shorter_than_runs(bytes);
    }
    if (bytes.size() < 2 || bytes.size() > 1 + bytes_of_bits(vocabulary) || bytes[0] != kRuns) {
        return false;
    }
    size_t count = 0;
    return each_edge_of_runs(bytes.substr(1), vocabulary, [&](uint32_t) { ++count; }) &&
           count % 2 == 0;
}

TokenRuns difference(std::string_view one, std::string_view other, uint32_t vocabulary) {
    if (is_bits(one) && is_bits(other)) {
        const Words a = words_of(one), b = words_of(other);
        return runs_of_words(a.count(), [&](size_t index) { return a.at(index) ^ b.at(index); });
    }
    return difference_of(runs_of(one, vocabulary), runs_of(other, vocabulary));
}

size_t count_difference(std::string_view one, std::string_view other, uint32_t vocabulary) {
    if (is_bits(one) && is_bits(other)) {
        const Words a = words_of(one), b = words_of(other);
        return count_of_words(a.count(), [&](size_t index) { return a.at(index) ^ b.at(index); });
    }
    size_t count = 0;
    merge(runs_of(one, vocabulary), runs_of(other, vocabulary),
          [&](uint32_t, bool in_one) { count += in_one ? 1 : 0; });
    return count;
}

std::string changed_tokens(const std::string &one, const TokenRuns &runs, uint32_t vocabulary) {
    if (!is_bits(one)) {
        return encode_tokens(difference_of(runs_of(one, vocabulary), runs), vocabulary);
    }
    std::string bytes = one;
    for (size_t i = 0; i < runs.size(); i += 2) {
        flip(bytes.data() + 1, runs[i], runs[i + 1]);
    }
    return are_shorter_than_runs(bytes)
               ? bytes
               : encode_tokens(runs_of_bits(bytes.data() + 1, vocabulary), vocabulary);
}

} // namespace stasis
