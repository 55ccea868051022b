// Device profiles: passes whose products with weights a device's own library computes, outside the
// contract and faster. Such passes are recorded (Profile, format/state/state.h), because nothing
// else gives the same bits again. Knows neither kernels nor files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "format/state/state.h"

namespace stasis {

struct Network;

// Rows of the products of a pass: shapes that the library prepares. A pass uses the smallest that
// its own rows fit into.
inline constexpr size_t kProfileRows[] = {128, 512};
// Fewer new positions than this are computed by the contract, which is as fast for them. So tokens
// generated one by one are the same as without a profile.
inline constexpr size_t kProfileLeast = 64;

// The entries of a sequence that one pass computes, and its Pass::padded.
struct ProfilePart {
    size_t rows, padded;
};

// Returns the next part of `left` entries from position `begin` on, with up to `most` entries if
// the contract computes it. A schedule, if there is one, decides; `begin` is then the begin of a
// chunk or in no chunk. `id` is the profile in force.
ProfilePart next_part(const std::string &id, const Profile *schedule, uint64_t begin, size_t left,
                      size_t most);

// Has the model's device pin the products of all layers, and returns the profile's id; "": the
// contract. Throws Error(unsupported) for other names, for "device" if the backend has no profile,
// and for weights that are not bf16; Error(device).
std::string open_profile(const Network &network, const std::string &name);

// Checks that a state can be continued under the model's profile; `any` accepts another profile's
// state. Throws Error(version), Error(corrupt).
void check_profile(const State &state, const Network &network, bool any);

// Throws Error(unsupported) if some positions cannot be computed again.
void check_computable(const Profile &profile);

} // namespace stasis
