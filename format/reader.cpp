// Reading and checking a snapshot; see reader.h.
#include "format/reader.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "format/check.h"
#include "format/error.h"
#include "format/manifest.h"
#include "format/pages.h"
#include "format/texts.h"

namespace stasis::format {

namespace {

using Number = unsigned long long;

// Begin, end and alignment of the manifest, before anything of it is read.
void check_bounds(const RootSlot &slot, uint64_t file_bytes) {
    if (slot.file_bytes != file_bytes) {
        fail(Status::corrupt, "the file has %llu bytes, its root slot says %llu",
             static_cast<Number>(file_bytes), static_cast<Number>(slot.file_bytes));
    }
    if (slot.manifest_offset < kSectionsBegin || slot.manifest_offset % kAlignment != 0 ||
        slot.manifest_offset > file_bytes ||
        slot.manifest_bytes != file_bytes - slot.manifest_offset ||
        slot.manifest_bytes > kManifestBytesMax) {
        fail(Status::corrupt, "manifest: %llu bytes from byte %llu on, in a file of %llu",
             static_cast<Number>(slot.manifest_bytes), static_cast<Number>(slot.manifest_offset),
             static_cast<Number>(file_bytes));
    }
}

void check_manifest(const RootSlot &slot, const std::vector<uint8_t> &manifest) {
    if (checksum(manifest.data(), manifest.size()) != slot.manifest_checksum) {
        fail(Status::corrupt, "manifest: its bytes do not give the checksum in the root slot");
    }
    const Digest root = root_digest(slot, manifest.data(), manifest.size());
    if (root != slot.root) {
        fail(Status::corrupt, "root digest is %s, the manifest gives %s", to_hex(slot.root).c_str(),
             to_hex(root).c_str());
    }
}

void check_checksum(const Section &section, const void *data) {
    if (checksum(data, section.raw_bytes) != section.checksum) {
        fail(Status::corrupt, "section at byte %llu (%s): its bytes do not give its checksum",
             static_cast<Number>(section.offset), section_name(section.kind));
    }
}

void check_digest(const Section &section, const void *data) {
    const Digest digest = Sha256().bytes(data, section.raw_bytes).finish();
    if (digest != section.digest) {
        fail(Status::corrupt, "section at byte %llu (%s): SHA-256 is %s, the manifest says %s",
             static_cast<Number>(section.offset), section_name(section.kind),
             to_hex(digest).c_str(), to_hex(section.digest).c_str());
    }
}

// Runs `check`; what it finds wrong with the contents is told with the file's path before it.
template <class Check> void naming(const std::string &path, Check check) {
    try {
        check();
    } catch (const Error &error) {
        if (error.status() != Status::corrupt && error.status() != Status::version) {
            throw;
        }
        throw Error(error.status(), path + ": " + error.what());
    }
}

} // namespace

Snapshot::Snapshot(File file) : file_(std::move(file)) {}

std::shared_ptr<const Snapshot> Snapshot::open(const std::string &path,
                                               const FileOperations &files) {
    const std::shared_ptr<Snapshot> snapshot(new Snapshot(open_file(files, path)));
    naming(path, [&] {
        snapshot->read_frame();
        snapshot->check_padding();
        snapshot->read_bulk();
        check_state(snapshot->state_, Status::corrupt);
    });
    return snapshot;
}

void Snapshot::read_frame() {
    const auto file_bytes = static_cast<uint64_t>(file_.status().st_size);
    if (file_bytes < kSectionsBegin) {
        fail(Status::corrupt, "not a snapshot: %llu bytes, header and root slots take %llu",
             static_cast<Number>(file_bytes), static_cast<Number>(kSectionsBegin));
    }
    Block block;
    file_.read(block.data(), block.size(), 0);
    check_header(block);
    file_.read(block.data(), block.size(), kSlotA);
    slot_ = decode_slot(block);
    file_.read(block.data(), block.size(), kSlotB);
    if (block != Block{}) {
        fail(Status::corrupt, "root slot B is not zero; format version %u does not use it",
             kFormatVersion);
    }
    check_bounds(slot_, file_bytes);
    std::vector<uint8_t> manifest(slot_.manifest_bytes);
    file_.read(manifest.data(), manifest.size(), slot_.manifest_offset);
    check_manifest(slot_, manifest);
    parse_manifest(manifest, state_, layout_);
    check_layout(layout_, state_, slot_.manifest_offset);
}

void Snapshot::check_padding() const {
    for (const Section &section : layout_.sections) {
        const uint64_t end = section.offset + section.stored_bytes;
        uint8_t padding[kAlignment] = {};
        file_.read(padding, align_up(end) - end, end);
        if (std::any_of(std::begin(padding), std::end(padding), [](uint8_t b) { return b != 0; })) {
            fail(Status::corrupt, "padding after byte %llu is not zero", static_cast<Number>(end));
        }
    }
}

std::vector<uint8_t> Snapshot::read_section(SectionKind kind) const {
    const Section *section = find_section(layout_, kind);
    if (section == nullptr) {
        return {};
    }
    std::vector<uint8_t> bytes(section->raw_bytes);
    file_.read(bytes.data(), bytes.size(), section->offset);
    check_checksum(*section, bytes.data());
    check_digest(*section, bytes.data());
    return bytes;
}

void Snapshot::read_bulk() {
    const std::vector<uint8_t> log = read_section(SectionKind::log);
    state_.log.resize(log.size() / sizeof(TokenEntry));
    std::copy_n(log.data(), log.size(), reinterpret_cast<uint8_t *>(state_.log.data()));
    const std::vector<uint8_t> hidden = read_section(SectionKind::hidden);
    state_.hidden.resize(hidden.size() / sizeof(uint16_t));
    std::copy_n(hidden.data(), hidden.size(), reinterpret_cast<uint8_t *>(state_.hidden.data()));
    state_.token_texts = decode_texts(read_section(SectionKind::token_texts));
    const Section *row = find_section(layout_, SectionKind::logits_row);
    if (row != nullptr && row->digest != state_.logits) {
        fail(Status::corrupt, "row of logits: its SHA-256 is not the one of the logits");
    }
    read_section(SectionKind::logits_row); // for its checks
}

bool Snapshot::stored(size_t group, uint64_t index) const {
    return layout_.pages[group][index] != kReleased;
}

void Snapshot::read_page(size_t group, uint64_t index, uint16_t *data) const {
    const Page &page = state_.pages[group][index];
    const Section &section = layout_.sections[layout_.pages[group][index]];
    const bool full = page.valid == state_.page_positions;
    std::vector<uint16_t> packed(full ? 0 : section.raw_bytes / sizeof(uint16_t));
    auto *bytes = reinterpret_cast<uint8_t *>(full ? data : packed.data());
    naming(file_.path(), [&] {
        file_.read(bytes, section.raw_bytes, section.offset);
        check_checksum(section, bytes);
        if (!full) {
            unpack_page(state_, group, page.valid, packed.data(), data);
        }
        const Digest digest =
            page_digest(static_cast<uint32_t>(group), index, data, page_rows(state_, group),
                        state_.page_positions, page.valid, state_.head_dim);
        if (digest != page.digest) {
            fail(Status::corrupt, "page %llu of layer group %zu: its digest is %s, expected %s",
                 static_cast<Number>(index), group, to_hex(digest).c_str(),
                 to_hex(page.digest).c_str());
        }
        check_page_finite(state_, group, index, data, Status::corrupt);
    });
}

std::shared_ptr<const Snapshot> Snapshot::open_source(const Source &) {
    fail(Status::unsupported, "streams: not yet");
}

const std::vector<uint32_t> &Snapshot::fingerprints(size_t, uint64_t) const {
    static const std::vector<uint32_t> none;
    return none;
}

void Snapshot::read_pages(State &into, const Watch &watch, const Parallel &) const {
    uint64_t total = 0;
    for (const Section &section : layout_.sections) {
        total += section.kind == SectionKind::page ? section.stored_bytes : 0;
    }
    uint64_t done = 0;
    for (size_t group = 0; group < state_.pages.size(); ++group) {
        for (uint64_t index = 0; index < state_.pages[group].size(); ++index) {
            watch.step(done, total);
            if (!stored(group, index)) {
                continue;
            }
            const std::shared_ptr<uint16_t> data = allocate_page(page_elements(state_, group));
            read_page(group, index, data.get());
            into.pages[group][index].data = data.get();
            into.storage.push_back(data);
            done += page_stored_bytes(state_, group, state_.pages[group][index].valid);
        }
    }
    watch.step(done, total);
}

std::vector<float> Snapshot::logits_row() const {
    const std::vector<uint8_t> bytes = read_section(SectionKind::logits_row);
    std::vector<float> row(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<uint8_t *>(row.data()));
    return row;
}

State load(const std::string &path, const Watch &watch, const FileOperations &files,
           const Parallel &parallel) {
    const std::shared_ptr<const Snapshot> snapshot = Snapshot::open(path, files);
    State state = snapshot->state();
    snapshot->read_pages(state, watch, parallel);
    return state;
}

} // namespace stasis::format
