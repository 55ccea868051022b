// libFuzzer target: valid files, edited as the input says, with checksums and digests mended after
// the edits, so that they reach the parsers and the checks of contents. What opens is then used.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "forgery.h"
#include "format/compare.h"
#include "format/element.h"
#include "format/reader.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// One token more than a page, so that full and partial pages occur.
State small_state() {
    State state;
    state.model.architecture = "llama";
    state.model.config = {{"layers", "2"}, {"rope_0", "base 10000"}};
    state.model.attention.resize(2);
    state.model.mlp.resize(2);
    state.layers = 2;
    state.kv_heads = 1;
    state.head_dim = 16;
    state.hidden_size = 3;
    state.vocabulary = 5;
    state.page_positions = 32;
    state.groups = {{0, {0}}, {8, {1}}};
    state.log.resize(33);
    state.samplings.resize(2);
    state.samplings[1].bias = {{1, 2.0F}};
    state.capacity = 100;
    state.pending_system = "system";
    state.hidden.resize(3);
    state.top = {{0, 1.0F}, {1, 0.5F}};
    state.token_texts = {{0, "a"}, {3, "b"}};
    static const std::vector<uint16_t> numbers = [] { // few enough that a codec makes them smaller
        std::vector<uint16_t> made(2 * 32 * 16);
        for (size_t i = 0; i < made.size(); ++i) {
            made[i] = static_cast<uint16_t>(0x3F80 + i * i * 7919 % 1021 % 60);
        }
        return made;
    }();
    StateParts parts;
    parts.position = state.log.size();
    parts.tokens = Sha256().bytes(std::vector<uint32_t>(33).data(), 33 * 4).finish();
    parts.hidden = state.hidden;
    parts.windows = {0, 8};
    for (uint32_t group = 0; group < 2; ++group) {
        state.pages.push_back(
            {{32, page_digest(group, 0, numbers.data(), 2, 32, 32, 16), numbers.data()},
             {1, page_digest(group, 1, numbers.data(), 2, 32, 1, 16), numbers.data()}});
        parts.pages.push_back({state.pages[group][0].digest, state.pages[group][1].digest});
    }
    state.digest = state_digest(parts);
    return state;
}

// Operations on a file in memory, which is there from the first save on.
Bytes written;
bool there = false;
FileOperations writable_files() {
    FileOperations files = memory_files(written);
    files.lock = [](int) { return 0; };
    files.rename = [](const char *, const char *) {
        there = true;
        return 0;
    };
    files.remove = [](const char *) { return 0; };
    files.sync = [](int) { return 0; };
    files.set_size = [](int, off_t size_bytes) {
        written.resize(static_cast<size_t>(size_bytes));
        return 0;
    };
    files.write_at = [](int, const void *data, size_t size_bytes, off_t offset) {
        const auto begin = static_cast<size_t>(offset);
        written.resize(std::max(written.size(), begin + size_bytes));
        std::memcpy(written.data() + begin, data, size_bytes);
        return static_cast<ssize_t>(size_bytes);
    };
    files.path_status = [](const char *path, struct stat *status) {
        errno = ENOENT;
        const bool temporary = std::strcmp(path, "memory.saving") == 0;
        return temporary == there ? -1 : memory_status(0, status);
    };
    return files;
}

// A file of small_state; with keys and values, coded ones or none, and of one or two commits.
Bytes small_file(const SaveOptions &options, bool twice) {
    written.clear();
    there = false;
    const FileOperations files = writable_files();
    save(small_state(), "memory", options, files);
    if (twice) {
        State state = small_state();
        state.pending_system = "another";
        save(state, "memory", options, files);
    }
    return written;
}

// Applies edits of four bytes each, at a place (u16) from the sections' beginning: what to do (u8),
// with which byte. Nodes are edited first, with all above them made to fit, then sections in place,
// then the manifest.
Bytes edited(Bytes bytes, const uint8_t *data, size_t size) {
    const auto edit = [](uint8_t &byte, uint8_t what, uint8_t value) {
        byte = what % 4 == 0   ? value
               : what % 4 == 1 ? byte ^ value
               : what % 4 == 2 ? static_cast<uint8_t>(byte + value)
                               : static_cast<uint8_t>(1U << (value % 8));
    };
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    const std::vector<Section> sections = snapshot->sections();
    for (size_t i = 0; i + 4 <= size; i += 4) {
        const size_t place = data[i] | data[i + 1] << 8;
        if (place >= 0x8000) { // a node
            const TreeKind kinds[] = {TreeKind::log, TreeKind::texts, TreeKind::pages,
                                      TreeKind::pages};
            const size_t which = place >> 13 & 3;
            try {
                bytes = forged_node(bytes, kinds[which], which % 2, 0, 0, [&](Bytes &node) {
                    edit(node[place % 0x1000 % node.size()], data[i + 2], data[i + 3]);
                });
            } catch (const Error &) { // an earlier edit of a node has made it unreadable
            }
            continue;
        }
        const size_t at = kSectionsBegin + place;
        for (const Section &section : sections) {
            const size_t begin = section.offset + kFrameBytes;
            const SectionKind kind = section.frame.kind;
            if (at >= begin && at < begin + section.frame.stored_bytes &&
                (kind == SectionKind::run || kind == SectionKind::manifest)) {
                edit(bytes[at], data[i + 2], data[i + 3]);
                if (section.frame.codec == Codec::raw && kind == SectionKind::run) {
                    reframe(bytes, section.offset, kind, section.frame.stored_bytes);
                }
            }
        }
    }
    reseal(bytes);
    return bytes;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Bytes bases[] = {small_file({}, false), small_file({.codec = Codec::zstd}, true),
                                  small_file({.keep = Keep::none}, true)};
    static const bool coded = [] {
        const auto snapshot = Snapshot::open("memory", memory_files(bases[1]));
        const std::vector<Section> sections = snapshot->sections();
        return std::any_of(sections.begin(), sections.end(), [](const Section &section) {
            return section.frame.codec == Codec::zstd;
        });
    }();
    if (!coded) {
        __builtin_trap(); // the target would not test what it should
    }
    if (size == 0) {
        return 0;
    }
    const Bytes bytes = edited(bases[data[0] % 3], data + 1, size - 1);
    try {
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        for (uint32_t element = 1; element <= 12; ++element) {
            element_json(*snapshot, element);
        }
        compare(*snapshot, *snapshot, {});
        State state = snapshot->state();
        snapshot->read_pages(state, {});
    } catch (const Error &) {
    }
    return 0;
}
