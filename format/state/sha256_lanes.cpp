// Hashing several messages side by side; see sha256_lanes.h. Each message is cut into runs of whole
// blocks: the block that completes its head, the whole blocks of its body, and the padded end (FIPS
// 180-4, 5.1.1). Lanes hash their runs side by side, and a lane whose message has ended begins the
// next one.
#include "format/state/sha256_lanes.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace stasis {

namespace {

constexpr size_t kBlockBytes = 64;
// Sixteen lanes of as many blocks fit into the second cache.
constexpr size_t kStepBlocks = (size_t{64} << 10) / kBlockBytes;
constexpr size_t kLengthBytes = 8; // of the message's length in bits, which ends the padding

// Consecutive blocks of one message.
struct Run {
    const uint8_t *data = nullptr;
    size_t blocks = 0;
    bool in_body = false; // they lie in the message's body, else in the lane's memory
};

void store_big_endian(uint64_t value, size_t bytes, uint8_t *to) {
    for (size_t i = bytes; i-- > 0; value >>= 8) {
        to[i] = static_cast<uint8_t>(value);
    }
}

// One message that is being hashed.
class Lane {
  public:
    void begin(std::span<const HashedMessage> messages, size_t index, Digest *digests) {
        const HashedMessage &message = messages[index];
        assert(message.head.size() < kBlockBytes);
        static constexpr Sha256State kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        std::memcpy(state, kInitial, sizeof state);
        index_ = index;
        body_ = message.body;
        digest_ = digests + index;
        next_ = count_ = 0;

        // The head, completed from the body to a whole block. If the body is too short, both are
        // the rest.
        const size_t head = message.head.size(), total = head + message.body.size();
        const uint8_t *body = message.body.data();
        size_t left = message.body.size(); // of the body
        size_t rest = 0;                   // bytes of the message that `end_` begins with
        if (head != 0) {
            const size_t more = std::min(kBlockBytes - head, left);
            std::memcpy(head_, message.head.data(), head);
            std::copy_n(body, more, head_ + head);
            body += more, left -= more;
            if (head + more == kBlockBytes) {
                add(head_, 1, false);
            } else {
                rest = head + more;
                std::memcpy(end_, head_, rest);
            }
        }
        // The whole blocks of the body.
        add(body, left / kBlockBytes, true);
        body += left / kBlockBytes * kBlockBytes, left %= kBlockBytes;
        std::copy_n(body, left, end_ + rest); // one of the two is 0
        rest += left;

        // The padded end: the rest, one bit, zeros and the message's length.
        const size_t end = rest + 1 + kLengthBytes <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
        std::memset(end_ + rest, 0, end - rest);
        end_[rest] = 0x80;
        store_big_endian(uint64_t{total} * 8, kLengthBytes, end_ + end - kLengthBytes);
        add(end_, end / kBlockBytes, false);
    }

    bool ended() const { return next_ == count_; }
    const Run &run() const { return runs_[next_]; }
    void advance(size_t blocks, const Hashed &hashed) {
        Run &run = runs_[next_];
        run.data += blocks * kBlockBytes;
        run.blocks -= blocks;
        next_ += run.blocks == 0 ? 1 : 0;
        if (hashed && ended()) {
            hashed(index_, body_.size());
        } else if (hashed && run.in_body) {
            hashed(index_, static_cast<size_t>(run.data - body_.data()));
        }
    }
    void finish() const {
        for (size_t i = 0; i < 8; ++i) {
            store_big_endian(state[i], sizeof state[i], digest_->bytes.data() + i * 4);
        }
    }

    Sha256State state;

  private:
    void add(const uint8_t *data, size_t blocks, bool in_body) {
        if (blocks != 0) {
            runs_[count_++] = {data, blocks, in_body};
        }
    }

    size_t index_ = 0; // of the message
    std::span<const uint8_t> body_;
    Digest *digest_ = nullptr;
    Run runs_[3];
    size_t next_ = 0, count_ = 0;
    uint8_t head_[kBlockBytes], end_[2 * kBlockBytes];
};

// Hashes blocks of lanes as fast as this processor can.
void hash_blocks(size_t count, Sha256State *const *states, const uint8_t *const *data,
                 size_t blocks) {
    // A block of as many lanes takes the SHA instructions the time of a full vector (Intel with
    // AMX: 273 ns, to 92 for three lanes). Not measured on AMD.
    constexpr size_t kEnough = 9;
    if (count >= kEnough) {
        sha256_wide_blocks(count, states, data, blocks);
        return;
    }
    for (size_t i = 0; i < count; i += kSha256Interleaved) {
        sha256_blocks(std::min(kSha256Interleaved, count - i), states + i, data + i, blocks);
    }
}

// Hashes blocks of all active lanes, as many as the shortest run has, until no message is left.
void digest_side_by_side(std::span<const HashedMessage> messages, Digest *digests,
                         const Hashed &hashed) {
    Lane lanes[kSha256Lanes];
    Lane *active[kSha256Lanes];
    const size_t most =
        std::min(messages.size(), has_sha256_wide() ? kSha256Wide : kSha256Interleaved);
    size_t count = 0, next = 0;
    for (; next < most; ++next) {
        lanes[next].begin(messages, next, digests);
        active[count++] = &lanes[next];
    }

    while (count != 0) {
        Sha256State *states[kSha256Lanes];
        const uint8_t *data[kSha256Lanes];
        size_t blocks = kStepBlocks;
        for (size_t i = 0; i < count; ++i) {
            states[i] = &active[i]->state;
            data[i] = active[i]->run().data;
            blocks = std::min(blocks, active[i]->run().blocks);
        }
        hash_blocks(count, states, data, blocks);

        // From the last lane on, so that a lane that ends can be replaced by the last active one.
        for (size_t i = count; i-- > 0;) {
            active[i]->advance(blocks, hashed);
            if (!active[i]->ended()) {
                continue;
            }
            active[i]->finish();
            if (next < messages.size()) {
                active[i]->begin(messages, next, digests);
                ++next;
            } else {
                active[i] = active[--count];
            }
        }
    }
}

} // namespace

size_t messages_at_a_time(size_t count, size_t threads) {
    assert(threads != 0);
    return std::clamp((count + threads - 1) / threads, kSha256Interleaved, kSha256Lanes);
}

void digest_messages(std::span<const HashedMessage> messages, Digest *digests,
                     const Hashed &hashed) {
    if (has_sha256_instructions()) {
        digest_side_by_side(messages, digests, hashed);
        return;
    }
    for (size_t i = 0; i < messages.size(); ++i) {
        const HashedMessage &message = messages[i];
        digests[i] = Sha256()
                         .bytes(message.head.data(), message.head.size())
                         .bytes(message.body.data(), message.body.size())
                         .finish();
        if (hashed) {
            hashed(i, message.body.size());
        }
    }
}

} // namespace stasis
