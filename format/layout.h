// Where things lie in the file: the table of sections and the one order in which they follow each
// other (FORMAT.md, "Sections"). Reads and writes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/checksum.h"
#include "format/codec.h"
#include "format/constants.h"
#include "format/digest.h"
#include "format/state.h"

namespace stasis::format {

enum class SectionKind : uint32_t {
    log = 1,
    token_texts = 2,
    hidden = 3,
    logits_row = 4,
    page = 5
};

// What a file keeps of keys and values: all of them, or only digests and fingerprints.
enum class Keep : uint8_t { full = 0, none = 1 };

struct Section {
    uint64_t offset = 0;
    uint64_t stored_bytes = 0;
    uint64_t raw_bytes = 0;
    Checksum checksum; // of the raw bytes
    Digest digest;     // SHA-256 of the raw bytes; zero for pages
    SectionKind kind = SectionKind::log;
    Codec codec = Codec::raw;
    bool operator==(const Section &) const = default;
};

inline constexpr uint32_t kReleased = 0xFFFFFFFF;

struct Layout {
    uint64_t position = 0;                    // tokens in the log
    std::vector<Section> sections;            // in file order
    std::vector<std::vector<uint32_t>> pages; // [group][index] section, or kReleased
};

const char *section_name(SectionKind kind);
const Section *find_section(const Layout &layout, SectionKind kind); // null: none

// Checks that the sections lie back to back from kSectionsBegin to the manifest, that each is used
// once, in the order of the format, with the size that the state's geometry asks for, and that
// pages are stored as check_stored asks for. `state`: geometry and groups checked, pages counted.
void check_layout(const Layout &layout, const State &state, uint64_t manifest_offset);

} // namespace stasis::format
