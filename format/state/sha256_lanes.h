// SHA-256 of several messages at a time. One message is a chain of operations that wait for each
// other; several keep the processor busy (sha256_x86.h). The digests are those of Sha256
// (digest.h), byte for byte. Must not know what is hashed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "format/state/digest.h"
#include "format/state/sha256_x86.h"

namespace stasis {

// `head`, of less than 64 bytes, followed by `body`. Both are borrowed during the call.
struct HashedMessage {
    std::string_view head;
    std::span<const uint8_t> body;
};

// Number of messages that a call of digest_messages needs at most to take the least time for each.
inline constexpr size_t kSha256Lanes = kSha256Wide;
// Returns how many of `count` messages each of `threads` threads hashes at a time: as many as it
// can without leaving another thread idle.
size_t messages_at_a_time(size_t count, size_t threads);

// Tells that the first `bytes` of a message's body were hashed and are in the cache still.
using Hashed = std::function<void(size_t message, size_t bytes)>;

// Writes the digest of each message. Calls `hashed` now and then, at last with each whole body.
// Throws what Sha256 and `hashed` throw.
void digest_messages(std::span<const HashedMessage> messages, Digest *digests,
                     const Hashed &hashed = nullptr);

} // namespace stasis
