// SHA-256 of several messages at a time. One message is a chain of operations that wait for each
// other; the SHA instructions of x86 hash three messages in little more than the time of one. The
// digests are those of Sha256 (digest.h), byte for byte. Must not know what is hashed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "format/state/digest.h"
#include "format/state/sha256_x86.h"

namespace stasis {

// `head`, of less than 64 bytes, followed by `body`. Both are borrowed during the call.
struct Message {
    std::string_view head;
    std::span<const uint8_t> body;
};

// Writes the digest of each message. A call with kSha256Lanes messages or many more takes the least
// time for each. Throws what Sha256 throws.
void digest_messages(std::span<const Message> messages, Digest *digests);

} // namespace stasis
