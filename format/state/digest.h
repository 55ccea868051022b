// SHA-256 digests and the definition of the state digest (FORMAT.md, "Digests").
// Knows bytes only: neither the model nor the file layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stasis {

struct Digest {
    std::array<uint8_t, 32> bytes{};
    bool operator==(const Digest &) const = default;
};

std::string to_hex(const Digest &digest);
std::string to_hex(std::string_view bytes);

// Incremental SHA-256 over libcrypto. Integers are hashed as little-endian bytes.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256 &) = delete;
    Sha256 &operator=(const Sha256 &) = delete;

    Sha256 &bytes(const void *data, size_t size_bytes);
    Sha256 &text(std::string_view text); // the characters, preceded by their count as u64
    Sha256 &u32(uint32_t value);
    Sha256 &u64(uint64_t value);
    Sha256 &digest(const Digest &digest);
    Digest finish();

  private:
    void *context_; // EVP_MD_CTX
};

// A KV page as its digest sees it: `data` is in its stored order (state.h, Page), a row for every
// (layer of the group, key/value, head); `valid` are its used slots.
struct DigestedPage {
    uint32_t group = 0;
    uint64_t index = 0;
    const uint16_t *data = nullptr;
    size_t rows = 0;
    size_t page_positions = 0; // slots of a row in `data`
    size_t valid = 0;
    size_t head_dim = 0;
};

// Digest of the valid slots of a page, in logical order; and of several pages, which takes the
// least time where these are kSha256Lanes (sha256_lanes.h).
Digest page_digest(const DigestedPage &page);
void page_digests(std::span<const DigestedPage> pages, Digest *digests);

// A recurrent state is hashed in pieces of as many numbers, the last one shorter, so that lanes and
// threads can share it.
inline constexpr size_t kRecurrentPiece = (size_t{1} << 20) / sizeof(float);
constexpr size_t recurrent_pieces(size_t count) {
    return (count + kRecurrentPiece - 1) / kRecurrentPiece;
}
// Digest of the recurrent states of all layers after `position` tokens: of `count` numbers, as
// bits. It takes the least time where several threads digest the pieces [begin, end), and then one
// thread their digests.
Digest recurrent_state_digest(uint64_t position, const float *numbers, size_t count);
void recurrent_piece_digests(const float *numbers, size_t count, size_t begin, size_t end,
                             Digest *digests);
Digest recurrent_state_digest(uint64_t position, size_t count, std::span<const Digest> pieces);

// Positions [begin, end) that no token from `position` on sees.
struct EvictedRange {
    uint64_t position = 0, begin = 0, end = 0;
};

// What the state digest covers; see stasis_session_digest for the promise.
struct StateParts {
    uint32_t contract_core = 0;
    uint32_t contract_kv = 0;
    uint32_t contract_recurrent = 0; // 0, as the next: the model has no such layers
    uint32_t contract_experts = 0;
    std::string_view profile;               // id of the device profile; "": none
    Digest model;                           // results-determining identity (ModelIdentity)
    uint64_t position = 0;                  // tokens in the log
    Digest tokens;                          // SHA-256 of the ids, u32 little-endian, in order
    std::vector<EvictedRange> evicted;      // ascending by position, then begin
    std::vector<std::vector<Digest>> pages; // [layer group][page index]
    std::vector<uint32_t> windows;          // [layer group], 0 = global
    std::span<const uint16_t> hidden;       // final normalised hidden state, bf16; empty at 0
    Digest recurrent; // of the states at the position; zero: no recurrent layers, or position 0
};
Digest state_digest(const StateParts &parts);

} // namespace stasis
