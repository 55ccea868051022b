// Device profiles: passes whose products with weights a device's own library computes, outside the
// contract and faster. What is computed so is a matter of record (Profile, format/state/state.h),
// because nothing else gives the same bits again. Knows neither kernels nor files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "format/state/state.h"

namespace stasis {

struct Network;

// Rows of the products of a pass: shapes that the library is asked to prepare for. A pass has the
// least of them that its own rows fit into.
inline constexpr size_t kProfileRows[] = {128, 512};
// Fewer new positions than this are computed by the contract: it is as fast there, and what is
// generated token by token is the same as without a profile.
inline constexpr size_t kProfileLeast = 64;

// Entries that one pass computes of a sequence, and Pass::padded of it.
struct ProfilePart {
    size_t rows, padded;
};

// What comes next of `left` entries from position `begin` on, at most `most` of them where the
// contract computes. As the schedule says, if there is one: `begin` then lies at a chunk's begin or
// in none. `id`: of the profile in force.
ProfilePart next_part(const std::string &id, const Profile *schedule, uint64_t begin, size_t left,
                      size_t most);

// "": the contract. Has the model's device pin the products of all its layers. Throws
// Error(unsupported) for other names, for "device" without one, and for weights that are not bf16;
// Error(device).
std::string open_profile(const Network &network, const std::string &name);

// Whether a state can be continued under the model's profile, `any` taking what another one
// computed. Throws Error(version), Error(corrupt).
void check_profile(const State &state, const Network &network, bool any);

// Throws Error(unsupported) where some of it cannot be computed again.
void check_computable(const Profile &profile);

} // namespace stasis
