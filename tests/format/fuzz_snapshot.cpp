// libFuzzer target: a valid file, edited as the input says, with checksums and digests mended after
// the edits, so that they reach the parser and the checks of contents. What opens is then used.
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
    state.head_dim = 2;
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
    static const std::vector<uint16_t> zeros(2 * 32 * 2);
    StateParts parts;
    parts.position = state.log.size();
    parts.tokens = Sha256().bytes(std::vector<uint32_t>(33).data(), 33 * 4).finish();
    parts.hidden = state.hidden;
    parts.windows = {0, 8};
    for (uint32_t group = 0; group < 2; ++group) {
        state.pages.push_back(
            {{32, page_digest(group, 0, zeros.data(), 2, 32, 32, 2), zeros.data()},
             {1, page_digest(group, 1, zeros.data(), 2, 32, 1, 2), zeros.data()}});
        parts.pages.push_back({state.pages[group][0].digest, state.pages[group][1].digest});
    }
    state.digest = state_digest(parts);
    return state;
}

// The file of small_state, written to memory.
Bytes written;
Bytes small_file() {
    FileOperations files = memory_files(written);
    files.lock = [](int) { return 0; };
    files.rename = [](const char *, const char *) { return 0; };
    files.remove = [](const char *) { return 0; };
    files.sync = [](int) { return 0; };
    files.write_at = [](int, const void *data, size_t size_bytes, off_t offset) {
        const auto begin = static_cast<size_t>(offset);
        written.resize(std::max(written.size(), begin + size_bytes));
        std::memcpy(written.data() + begin, data, size_bytes);
        return static_cast<ssize_t>(size_bytes);
    };
    files.path_status = [](const char *path, struct stat *status) {
        errno = ENOENT; // the target; the temporary file is there
        return std::strcmp(path, "memory") == 0 ? -1 : memory_status(0, status);
    };
    save(small_state(), "memory", {}, files);
    return written;
}

// Applies edits of four bytes each: place (u16), what to do (u8), with which byte. Those in
// sections are sealed into the manifest first, then the manifest itself is edited.
Bytes edited(const Bytes &base, const uint8_t *data, size_t size) {
    const auto edit = [](Bytes &bytes, size_t at, uint8_t what, uint8_t value) {
        uint8_t &byte = bytes[at];
        byte = what % 4 == 0   ? value
               : what % 4 == 1 ? byte ^ value
               : what % 4 == 2 ? static_cast<uint8_t>(byte + value)
                               : static_cast<uint8_t>(1U << (value % 8));
    };
    const RootSlot slot = read_slot(base);
    Bytes bytes = base;
    const auto each = [&](bool manifest) {
        for (size_t i = 0; i + 4 <= size; i += 4) {
            const size_t at = kSectionsBegin + (data[i] | data[i + 1] << 8);
            if (at < bytes.size() && (at >= slot.manifest_offset) == manifest) {
                edit(bytes, at, data[i + 2], data[i + 3]);
            }
        }
    };
    each(false);
    bytes = forged(bytes, [&](State &, Layout &layout) {
        for (Section &section : layout.sections) {
            const uint8_t *begin = bytes.data() + section.offset;
            section.checksum = checksum(begin, section.raw_bytes);
            if (section.kind != SectionKind::page) {
                section.digest = Sha256().bytes(begin, section.raw_bytes).finish();
            }
        }
    });
    each(true);
    reseal(bytes);
    return bytes;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Bytes base = small_file();
    const Bytes bytes = edited(base, data, size);
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
