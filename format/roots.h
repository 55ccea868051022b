// Which state of a file is the current one: its two root slots, or the trailer that a stream form
// ends with (FORMAT.md, "Roots"). Knows nothing of what a root leads to.
#pragma once

#include "format/header.h"
#include "format/input.h"
#include "format/stream.h"

namespace stasis::format {

inline constexpr uint64_t kTrailerBytes = section_bytes(kRootBytes);

struct CurrentRoot {
    Root root;
    uint64_t slot = 0; // kSlotA or kSlotB; 0: the trailer
    // The other slot (or, with a trailer, a slot) is neither zero nor has the right checksum.
    bool slot_damaged = false;
    bool both_intact = false; // the other slot holds the root of a commit before
    // That slot held a later commit, which was finished: this is not the last state of the file.
    bool older = false;
};

// Checks header and roots, and that the state lies in the input; others may commit to it meanwhile.
// Error(corrupt), Error(version).
CurrentRoot find_root(const Input &input, const Watch &watch = {});

// Reads one snapshot from a stream: up to its trailer, or, of a file, to the end of its state.
std::vector<uint8_t> read_stream(const Source &source, const Watch &watch = {});

} // namespace stasis::format
