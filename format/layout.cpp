// Names of sections and the check of their table; see layout.h.
#include "format/layout.h"

#include "format/check.h"
#include "format/error.h"
#include "format/pages.h"

namespace stasis::format {

const char *section_name(SectionKind kind) {
    switch (kind) {
    case SectionKind::log:
        return "log";
    case SectionKind::token_texts:
        return "token_texts";
    case SectionKind::hidden:
        return "hidden";
    case SectionKind::logits_row:
        return "logits_row";
    case SectionKind::page:
        return "page";
    }
    return "unknown";
}

const Section *find_section(const Layout &layout, SectionKind kind) {
    for (const Section &section : layout.sections) {
        if (section.kind == kind) {
            return &section;
        }
    }
    return nullptr;
}

namespace {

void check_placement(const Layout &layout, uint64_t manifest_offset) {
    uint64_t next = kSectionsBegin;
    for (size_t i = 0; i < layout.sections.size(); ++i) {
        const Section &section = layout.sections[i];
        if (section.offset != next) {
            fail(Status::corrupt, "section %zu: begins at byte %llu, expected %llu", i,
                 static_cast<unsigned long long>(section.offset),
                 static_cast<unsigned long long>(next));
        }
        if (section.stored_bytes == 0 || section.stored_bytes > manifest_offset - next) {
            fail(Status::corrupt,
                 "section %zu: %llu bytes from byte %llu on, the manifest begins "
                 "at %llu",
                 i, static_cast<unsigned long long>(section.stored_bytes),
                 static_cast<unsigned long long>(next),
                 static_cast<unsigned long long>(manifest_offset));
        }
        if (section.codec != Codec::raw || section.raw_bytes != section.stored_bytes) {
            fail(Status::corrupt, "section %zu: codec %u with %llu raw bytes in %llu stored ones",
                 i, static_cast<uint32_t>(section.codec),
                 static_cast<unsigned long long>(section.raw_bytes),
                 static_cast<unsigned long long>(section.stored_bytes));
        }
        next = align_up(next +
                        section.stored_bytes); // at most the manifest's offset, which is aligned
    }
    if (next != manifest_offset) {
        fail(Status::corrupt, "manifest: begins at byte %llu, the sections end at %llu",
             static_cast<unsigned long long>(manifest_offset),
             static_cast<unsigned long long>(next));
    }
}

// Walks over the sections in their order.
struct Cursor {
    const Layout &layout;
    size_t at = 0;

    bool is(SectionKind kind) const {
        return at < layout.sections.size() && layout.sections[at].kind == kind;
    }
    void take(SectionKind kind, uint64_t raw_bytes) {
        if (!is(kind)) {
            fail(Status::corrupt, "section %zu: expected a section of kind %s", at,
                 section_name(kind));
        }
        if (layout.sections[at].raw_bytes != raw_bytes) {
            fail(Status::corrupt, "section %zu (%s): %llu bytes, expected %llu", at,
                 section_name(kind), static_cast<unsigned long long>(layout.sections[at].raw_bytes),
                 static_cast<unsigned long long>(raw_bytes));
        }
        ++at;
    }
};

void check_page(Cursor &cursor, const State &state, size_t group, uint64_t index) {
    const Layout &layout = cursor.layout;
    const uint32_t section = layout.pages[group][index];
    if (section == kReleased) {
        return;
    }
    if (section != cursor.at) {
        fail(Status::corrupt, "page %llu of layer group %zu names section %u, expected %zu",
             static_cast<unsigned long long>(index), group, section, cursor.at);
    }
    const uint32_t valid = page_valid(layout.position, state.page_positions, index);
    cursor.take(SectionKind::page, page_stored_bytes(state, group, valid));
    if (layout.sections[section].digest != Digest{}) {
        fail(Status::corrupt, "section %u: a page's digest belongs to the page table", section);
    }
}

} // namespace

void check_layout(const Layout &layout, const State &state, uint64_t manifest_offset) {
    check_placement(layout, manifest_offset);
    Cursor cursor{layout};
    if (layout.position > 0) {
        cursor.take(SectionKind::log, layout.position * sizeof(TokenEntry));
    }
    if (cursor.is(SectionKind::token_texts)) {
        ++cursor.at; // of any size
    }
    if (layout.position > 0) {
        cursor.take(SectionKind::hidden, uint64_t{state.hidden_size} * sizeof(uint16_t));
        if (cursor.is(SectionKind::logits_row)) {
            cursor.take(SectionKind::logits_row, uint64_t{state.vocabulary} * sizeof(float));
        }
    }
    for (size_t group = 0; group < layout.pages.size(); ++group) {
        std::vector<bool> stored;
        for (uint32_t section : layout.pages[group]) {
            stored.push_back(section != kReleased);
        }
        check_stored(state, group, layout.position, stored, Status::corrupt);
        for (uint64_t index = 0; index < layout.pages[group].size(); ++index) {
            check_page(cursor, state, group, index);
        }
    }
    if (cursor.at != layout.sections.size()) {
        fail(Status::corrupt, "section %zu of %zu belongs to nothing", cursor.at,
             layout.sections.size());
    }
}

} // namespace stasis::format
