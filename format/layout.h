// Places of a state's parts in the file, as the manifest and the nodes of the trees store them:
// references to sections, to nodes and to runs of pages (FORMAT.md). Plain data, no code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/state/digest.h"

namespace stasis::format {

// How much a file keeps of keys, values and recurrent states: all of them, or only digests and
// fingerprints.
enum class Keep : uint8_t { full = 0, none = 1 };

// A whole section that is not compressed.
struct SectionRef {
    uint64_t offset = 0; // of its frame; 0: there is none
    uint64_t bytes = 0;
    Digest digest; // SHA-256 of the bytes
    bool operator==(const SectionRef &) const = default;
};

// One node, in a section that holds many.
struct NodeRef {
    uint64_t section = 0; // offset of its frame; 0: there is no node
    uint32_t begin = 0;   // in the bytes of the section
    uint32_t bytes = 0;
    Digest digest; // SHA-256 of the bytes
    bool operator==(const NodeRef &) const = default;
};
static_assert(sizeof(NodeRef) == 48); // as it is stored

// Keys and values of a range of slots of one page, for all layers of the group: a section of
// `slots` slots, of which `used` from `first` on are in use.
struct Run {
    uint64_t offset = 0; // of the section's frame
    uint64_t stored_bytes = 0;
    uint16_t slots = 0;
    uint16_t first = 0;
    uint16_t used = 0;
    uint16_t zero = 0;
    bool operator==(const Run &) const = default;
};
static_assert(sizeof(Run) == 24); // as it is stored

// A recurrent state: a section of its own.
struct StateRef {
    uint64_t offset = 0; // of its frame; 0: not stored
    uint64_t stored_bytes = 0;
    bool operator==(const StateRef &) const = default;
};

// An entry of a page table.
struct PageRecord {
    Digest digest;
    uint32_t valid = 0;
    std::vector<Run> runs;              // slots 0 to valid - 1, in order; none: not stored
    std::vector<uint32_t> fingerprints; // of slots, then of layers; none: unknown
    bool operator==(const PageRecord &) const = default;
};

// Settings where some allow sets of tokens (FORMAT.md, "Settings with sets"): what the manifest
// says of them, and how their set differs from that of others.
struct SettingRecord {
    uint32_t plain = 0;        // index in the manifest
    uint32_t from = 0;         // so many settings before: those whose set it is told from; 0: none
    uint32_t edges = 0;        // of the runs that differ; 0: no set, or the same one
    std::vector<uint8_t> code; // of these runs (set_code.h)
    bool operator==(const SettingRecord &) const = default;
};

// Places and sizes that the manifest stores.
struct Layout {
    uint64_t position = 0;      // tokens in the log
    uint64_t text_count = 0;    // entries of the list of texts
    uint32_t setting_count = 0; // entries of the list of settings; 0: they are in the manifest
    // [setting] index in the manifest; empty: the manifest has the settings as they are.
    std::vector<uint32_t> plain_settings;
    Keep keep = Keep::full;
    SectionRef identity;
    SectionRef hidden;
    SectionRef logits_row;
    SectionRef evictions;
    SectionRef host_data; // its index
    NodeRef log;          // roots of the trees
    NodeRef texts;
    NodeRef settings;
    std::vector<NodeRef> pages;   // [group]
    std::vector<StateRef> states; // [State::states]
    bool operator==(const Layout &) const = default;
};

} // namespace stasis::format
