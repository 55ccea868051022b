// The two forms of a set of tokens; see token_set.h.
#include "format/state/token_set.h"

namespace stasis {

namespace {

constexpr char kBits = 0, kRuns = 1; // the first byte: which form follows

size_t bytes_of_bits(uint32_t vocabulary) {
    return (size_t{vocabulary} + 7) / 8;
}

void put_number(std::string &bytes, uint32_t number) {
    for (; number >= 0x80; number >>= 7) {
        bytes.push_back(static_cast<char>(number | 0x80));
    }
    bytes.push_back(static_cast<char>(number));
}

// Takes a number of at most 5 bytes. Returns false where there is none.
bool take_number(std::string_view &bytes, uint64_t &number) {
    number = 0;
    for (size_t i = 0; i < 5 && i < bytes.size(); ++i) {
        const auto byte = static_cast<uint8_t>(bytes[i]);
        number |= uint64_t{byte & 0x7FU} << (7 * i);
        if (byte < 0x80) {
            bytes.remove_prefix(i + 1);
            return true;
        }
    }
    return false;
}

// Both return false where the bytes are no set.
bool read_runs(std::string_view bytes, uint32_t vocabulary, TokenRuns &runs) {
    uint64_t token = 0, length = 0;
    while (!bytes.empty()) {
        if (!take_number(bytes, length) || length > vocabulary - token ||
            (length == 0 && !runs.empty())) {
            return false;
        }
        token += length;
        runs.push_back(static_cast<uint32_t>(token));
    }
    return runs.size() % 2 == 0;
}

bool read_bits(std::string_view bytes, uint32_t vocabulary, TokenRuns &runs) {
    if (bytes.size() != bytes_of_bits(vocabulary)) {
        return false;
    }
    for (uint64_t token = 0; token < 8 * bytes.size(); ++token) {
        const bool in = (static_cast<uint8_t>(bytes[token / 8]) >> (token % 8) & 1U) != 0;
        if (in && token >= vocabulary) {
            return false;
        }
        if (in != (runs.size() % 2 == 1)) {
            runs.push_back(static_cast<uint32_t>(token));
        }
    }
    if (runs.size() % 2 == 1) {
        runs.push_back(vocabulary);
    }
    return true;
}

} // namespace

std::string encode_tokens(const TokenRuns &runs, uint32_t vocabulary) {
    std::string bytes(1, kRuns);
    uint32_t before = 0;
    for (const uint32_t token : runs) {
        put_number(bytes, token - before);
        before = token;
    }
    if (bytes.size() <= 1 + bytes_of_bits(vocabulary)) {
        return bytes;
    }
    bytes.assign(1 + bytes_of_bits(vocabulary), kBits);
    for (size_t i = 0; i < runs.size(); i += 2) {
        for (uint32_t token = runs[i]; token < runs[i + 1]; ++token) {
            bytes[1 + token / 8] = static_cast<char>(bytes[1 + token / 8] | 1 << token % 8);
        }
    }
    return bytes;
}

std::optional<TokenRuns> decode_tokens(std::string_view bytes, uint32_t vocabulary) {
    if (bytes.empty() || bytes.size() > 1 + bytes_of_bits(vocabulary)) {
        return std::nullopt;
    }
    TokenRuns runs;
    const auto read = bytes[0] == kBits ? read_bits : read_runs;
    // The same set may be written in other ways, of which one is right.
    const bool right =
        read(bytes.substr(1), vocabulary, runs) && encode_tokens(runs, vocabulary) == bytes;
    return right ? std::optional(std::move(runs)) : std::nullopt;
}

} // namespace stasis
