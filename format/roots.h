// Choice of the current state of a file: from its two root slots, or from the trailer that a stream
// form ends with (FORMAT.md, "Roots"). Must not know what a root refers to.
#pragma once

#include "format/header.h"
#include "format/input.h"
#include "format/stream.h"

namespace stasis::format {

inline constexpr uint64_t kTrailerBytes = section_bytes(kRootBytes);

struct CurrentRoot {
    Root root;
    uint64_t slot = 0; // kSlotA or kSlotB; 0: the trailer
    // The other slot (with a trailer, one of the slots) is neither zero nor has the right checksum.
    bool slot_damaged = false;
    bool both_intact = false; // the other slot holds the root of an earlier commit
    // The damaged slot held a later commit, which was finished: this is not the last state of the
    // file.
    bool older = false;
};

// Checks header and roots, and that the state ends within the input. Returns the current root.
// Another process may commit to the file meanwhile. Throws Error(corrupt), Error(version).
CurrentRoot find_root(const Input &input, const Watch &watch = {});

// Returns the root that is kept apart from its state (STORE.md), after the same checks; the state
// is all of the input. Throws Error(corrupt), Error(version).
CurrentRoot check_root(const Input &input, const RootBytes &root);

// Reads one snapshot from a stream: up to its trailer or, if the stream is a file, to the end of
// its state. Throws Error(corrupt), Error(version), and errors of the source.
std::vector<uint8_t> read_stream(const Source &source, const Watch &watch = {});

} // namespace stasis::format
