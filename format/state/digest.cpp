// SHA-256 through libcrypto (which uses the CPU's SHA instructions), and what the digests of pages
// and of the state cover; see digest.h and FORMAT.md, "Digests".
#include "format/state/digest.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>

#include "format/state/error.h"
#include "format/state/sha256_lanes.h"

namespace stasis {

std::string to_hex(std::string_view bytes) {
    static const char *digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char byte : bytes) {
        text.push_back(digits[static_cast<uint8_t>(byte) >> 4]);
        text.push_back(digits[byte & 15]);
    }
    return text;
}

std::string to_hex(const Digest &digest) {
    return to_hex({reinterpret_cast<const char *>(digest.bytes.data()), digest.bytes.size()});
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr) {
        throw std::bad_alloc();
    }
    ERR_set_mark(); // libcrypto's list of errors is the host's as well
    if (EVP_DigestInit_ex(static_cast<EVP_MD_CTX *>(context_), EVP_sha256(), nullptr) != 1) {
        const int reason = ERR_GET_REASON(ERR_peek_last_error());
        ERR_pop_to_mark();
        EVP_MD_CTX_free(static_cast<EVP_MD_CTX *>(context_));
        if (reason == ERR_R_UNSUPPORTED) {
            fail(Status::internal, "libcrypto has no SHA-256");
        }
        throw std::bad_alloc(); // nothing else can be missing, and it says so of nothing
    }
    ERR_clear_last_mark();
}

Sha256::~Sha256() {
    EVP_MD_CTX_free(static_cast<EVP_MD_CTX *>(context_));
}

Sha256 &Sha256::bytes(const void *data, size_t size_bytes) {
    constexpr size_t kMuch = 1024; // worth a look at the vector registers
    if (size_bytes >= kMuch) {
        clear_upper_halves();
    }
    if (EVP_DigestUpdate(static_cast<EVP_MD_CTX *>(context_), data, size_bytes) != 1) {
        fail(Status::internal, "libcrypto failed in SHA-256");
    }
    return *this;
}

Sha256 &Sha256::text(std::string_view text) {
    return u64(text.size()).bytes(text.data(), text.size());
}

Sha256 &Sha256::u32(uint32_t value) {
    const uint8_t little[4] = {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8),
                               static_cast<uint8_t>(value >> 16),
                               static_cast<uint8_t>(value >> 24)};
    return bytes(little, sizeof little);
}

Sha256 &Sha256::u64(uint64_t value) {
    return u32(static_cast<uint32_t>(value)).u32(static_cast<uint32_t>(value >> 32));
}

Sha256 &Sha256::digest(const Digest &digest) {
    return bytes(digest.bytes.data(), digest.bytes.size());
}

Digest Sha256::finish() {
    Digest result;
    if (EVP_DigestFinal_ex(static_cast<EVP_MD_CTX *>(context_), result.bytes.data(), nullptr) !=
        1) {
        fail(Status::internal, "libcrypto failed in SHA-256");
    }
    return result;
}

namespace {

// What the digest of a page covers before its numbers: the bytes that Sha256 would take in for
// text, u32, u64 and u32.
struct PageHead {
    char bytes[35] = {};
    size_t size = 0;

    void put(uint64_t value, size_t count) {
        for (size_t i = 0; i < count; ++i, value >>= 8) {
            bytes[size++] = static_cast<char>(value & 0xFF);
        }
    }
    std::string_view set(const DigestedPage &page) {
        constexpr std::string_view kName = "stasis page";
        size = 0;
        put(kName.size(), 8);
        size += kName.copy(bytes + size, kName.size());
        put(page.group, 4);
        put(page.index, 8);
        put(page.valid, 4);
        return {bytes, size};
    }
};

// A page whose used slots do not lie in one piece.
Digest part_digest(const DigestedPage &page) {
    PageHead head;
    const std::string_view begin = head.set(page);
    Sha256 hash;
    hash.bytes(begin.data(), begin.size());
    for (size_t row = 0; row < page.rows; ++row) {
        hash.bytes(page.data + row * page.page_positions * page.head_dim,
                   page.valid * page.head_dim * sizeof(uint16_t));
    }
    return hash.finish();
}

} // namespace

void page_digests(std::span<const DigestedPage> pages, Digest *digests) {
    PageHead heads[kSha256Lanes];
    HashedMessage messages[kSha256Lanes];
    Digest found[kSha256Lanes];
    size_t at[kSha256Lanes]; // index in `pages` of each message
    size_t count = 0;
    for (size_t i = 0; i < pages.size(); ++i) {
        const DigestedPage &page = pages[i];
        if (page.valid != page.page_positions) {
            digests[i] = part_digest(page);
        } else {
            const size_t bytes = page.rows * page.valid * page.head_dim * sizeof(uint16_t);
            messages[count] = {heads[count].set(page),
                               {reinterpret_cast<const uint8_t *>(page.data), bytes}};
            at[count++] = i;
        }
        if (count == kSha256Lanes || i + 1 == pages.size()) {
            digest_messages({messages, count}, found);
            while (count != 0) {
                --count;
                digests[at[count]] = found[count];
            }
        }
    }
}

Digest page_digest(const DigestedPage &page) {
    Digest digest;
    page_digests({&page, 1}, &digest);
    return digest;
}

namespace {

// What the digest of a piece of a recurrent state covers before its numbers: the bytes that Sha256
// would take in for text and u64.
struct PieceHead {
    char bytes[40] = {};
    size_t size = 0;

    void put(uint64_t value) {
        for (size_t i = 0; i < 8; ++i, value >>= 8) {
            bytes[size++] = static_cast<char>(value & 0xFF);
        }
    }
    std::string_view set(size_t index) {
        constexpr std::string_view kName = "stasis recurrent piece";
        size = 0;
        put(kName.size());
        size += kName.copy(bytes + size, kName.size());
        put(index);
        return {bytes, size};
    }
};

} // namespace

void recurrent_piece_digests(const float *numbers, size_t count, size_t begin, size_t end,
                             Digest *digests) {
    PieceHead heads[kSha256Lanes];
    HashedMessage messages[kSha256Lanes];
    while (begin < end) {
        const size_t some = std::min(kSha256Lanes, end - begin);
        for (size_t i = 0; i < some; ++i) {
            const size_t at = (begin + i) * kRecurrentPiece;
            const size_t size_bytes = std::min(kRecurrentPiece, count - at) * sizeof(float);
            messages[i] = {heads[i].set(begin + i),
                           {reinterpret_cast<const uint8_t *>(numbers + at), size_bytes}};
        }
        digest_messages({messages, some}, digests);
        begin += some;
        digests += some;
    }
}

Digest recurrent_state_digest(uint64_t position, size_t count, std::span<const Digest> pieces) {
    Sha256 hash;
    hash.text("stasis recurrent state").u64(position).u64(count);
    for (const Digest &piece : pieces) {
        hash.digest(piece);
    }
    return hash.finish();
}

Digest recurrent_state_digest(uint64_t position, const float *numbers, size_t count) {
    std::vector<Digest> pieces(recurrent_pieces(count));
    recurrent_piece_digests(numbers, count, 0, pieces.size(), pieces.data());
    return recurrent_state_digest(position, count, pieces);
}

Digest state_digest(const StateParts &parts) {
    Sha256 hash;
    hash.text("stasis state").u32(parts.contract_core).u32(parts.contract_kv);
    hash.digest(parts.model).u64(parts.position).digest(parts.tokens);
    hash.u64(parts.evicted.size());
    for (const EvictedRange &range : parts.evicted) {
        hash.u64(range.position).u64(range.begin).u64(range.end);
    }
    hash.u64(parts.pages.size());
    for (size_t group = 0; group < parts.pages.size(); ++group) {
        hash.u32(parts.windows[group]).u64(parts.pages[group].size());
        for (const Digest &page : parts.pages[group]) {
            hash.digest(page);
        }
    }
    hash.u64(parts.hidden.size()).bytes(parts.hidden.data(), parts.hidden.size_bytes());
    if (!parts.profile.empty()) { // what follows depends on it
        hash.text("device profile").text(parts.profile);
    }
    if (parts.contract_recurrent != 0) {
        hash.text("recurrent layers").u32(parts.contract_recurrent).digest(parts.recurrent);
    }
    if (parts.contract_experts != 0) {
        hash.text("experts").u32(parts.contract_experts);
    }
    return hash.finish();
}

} // namespace stasis
