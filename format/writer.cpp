// Writing a snapshot: sections, manifest, root slot, header, into a temporary file; see writer.h.
#include "format/writer.h"

#include <algorithm>
#include <cerrno>

#include "format/check.h"
#include "format/error.h"
#include "format/frame.h"
#include "format/layout.h"
#include "format/manifest.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/temporary.h"
#include "format/texts.h"

namespace stasis::format {

namespace {

using Number = unsigned long long;

// Data that the save depends on, beyond what every State must satisfy.
void check_data(const State &state, const SaveOptions &options) {
    for (size_t group = 0; group < state.pages.size(); ++group) {
        std::vector<bool> stored;
        for (const Page &page : state.pages[group]) {
            stored.push_back(page.data != nullptr);
            if (page.data != nullptr) {
                check_page_finite(state, group, stored.size() - 1, page.data,
                                  Status::invalid_argument);
            }
        }
        check_stored(state, group, state.log.size(), stored, Status::invalid_argument);
    }
    const std::span<const float> row = options.logits_row;
    if (row.empty()) {
        return;
    }
    if (row.size() != state.vocabulary ||
        Sha256().bytes(row.data(), row.size_bytes()).finish() != state.logits) {
        fail(Status::invalid_argument, "row of %zu logits: not the row of the state's %u logits",
             row.size(), state.vocabulary);
    }
}

void check_replaceable(const Snapshot &old, const State &state) {
    if (old.slot().features_read != 0) {
        fail(Status::invalid_argument, "it uses features %016llx, which this build cannot write",
             static_cast<Number>(old.slot().features_read));
    }
    if (old.state().model.model != state.model.model) {
        fail(Status::invalid_argument, "it belongs to another model (%s, not %s)",
             to_hex(old.state().model.model).c_str(), to_hex(state.model.model).c_str());
    }
    const std::vector<TokenEntry> &log = old.state().log;
    if (!log.empty() && !state.log.empty() && log[0].token != state.log[0].token) {
        fail(Status::invalid_argument, "its log begins with token %u, this session's with %u",
             log[0].token, state.log[0].token);
    }
}

// What lies at `path` now may be replaced by this state.
void check_target(const State &state, const std::string &path, bool replace,
                  const FileOperations &files) {
    struct stat status {};
    if (files.path_status(path.c_str(), &status) != 0) {
        if (errno == ENOENT) {
            return;
        }
        fail_errno(Status::io, "look up", path);
    }
    if (!S_ISREG(status.st_mode)) {
        fail(Status::invalid_argument, "%s: is a %s; a save only replaces regular files",
             path.c_str(),
             S_ISLNK(status.st_mode)   ? "symbolic link"
             : S_ISDIR(status.st_mode) ? "directory"
                                       : "device, pipe or socket");
    }
    if (replace) {
        return;
    }
    try {
        check_replaceable(*Snapshot::open(path, files), state);
    } catch (const Error &error) {
        if (error.status() == Status::io) {
            throw;
        }
        fail(Status::invalid_argument, "%s: not replaced unless asked to: %s", path.c_str(),
             error.what());
    }
}

// Appends sections to a file and enters them in the layout.
struct Output {
    const File &file;
    const Watch &watch;
    uint64_t total = 0; // bytes of all sections
    uint64_t done = 0;
    uint64_t next = kSectionsBegin;
    std::vector<Section> sections = {};

    Section &append(SectionKind kind, const void *data, uint64_t bytes) {
        for (uint64_t at = 0; at < bytes; at += kChunkBytes) {
            watch.step(done, total);
            const auto size = static_cast<size_t>(std::min<uint64_t>(bytes - at, kChunkBytes));
            file.write(static_cast<const uint8_t *>(data) + at, size, next + at);
            done += size;
        }
        Section &section = sections.emplace_back();
        section.offset = next;
        section.stored_bytes = section.raw_bytes = bytes;
        section.checksum = checksum(data, bytes);
        section.kind = kind;
        next = align_up(next + bytes); // the gap is a hole: it reads as zeros
        return section;
    }

    void append_hashed(SectionKind kind, const void *data, uint64_t bytes) {
        if (bytes > 0) {
            append(kind, data, bytes).digest = Sha256().bytes(data, bytes).finish();
        }
    }
};

void write_page(Output &output, const State &state, size_t group, const Page &page) {
    const uint64_t bytes = page_stored_bytes(state, group, page.valid);
    if (page.valid == state.page_positions) {
        output.append(SectionKind::page, page.data, bytes);
        return;
    }
    std::vector<uint16_t> packed(bytes / sizeof(uint16_t));
    pack_page(state, group, page.valid, page.data, packed.data());
    output.append(SectionKind::page, packed.data(), bytes);
}

std::vector<std::vector<uint32_t>> write_pages(Output &output, const State &state) {
    std::vector<std::vector<uint32_t>> table;
    for (size_t group = 0; group < state.pages.size(); ++group) {
        std::vector<uint32_t> &sections = table.emplace_back();
        for (const Page &page : state.pages[group]) {
            if (page.data == nullptr) {
                sections.push_back(kReleased);
                continue;
            }
            sections.push_back(static_cast<uint32_t>(output.sections.size()));
            write_page(output, state, group, page);
        }
    }
    return table;
}

Layout write_sections(const File &file, const State &state, const SaveOptions &options,
                      uint64_t &manifest_offset) {
    const std::vector<uint8_t> texts = encode_texts(state.token_texts);
    const uint64_t log_bytes = state.log.size() * sizeof(TokenEntry);
    const uint64_t hidden_bytes = state.hidden.size() * sizeof(uint16_t);
    Output output{file, options.watch};
    output.total = log_bytes + texts.size() + hidden_bytes + options.logits_row.size_bytes();
    for (size_t group = 0; group < state.pages.size(); ++group) {
        for (const Page &page : state.pages[group]) {
            output.total += page.data ? page_stored_bytes(state, group, page.valid) : 0;
        }
    }
    output.append_hashed(SectionKind::log, state.log.data(), log_bytes);
    output.append_hashed(SectionKind::token_texts, texts.data(), texts.size());
    output.append_hashed(SectionKind::hidden, state.hidden.data(), hidden_bytes);
    output.append_hashed(SectionKind::logits_row, options.logits_row.data(),
                         options.logits_row.size_bytes());
    Layout layout;
    layout.position = state.log.size();
    layout.pages = write_pages(output, state);
    layout.sections = std::move(output.sections);
    manifest_offset = output.next;
    options.watch.step(output.done, output.total);
    return layout;
}

void write_snapshot(const File &file, const State &state, const SaveOptions &options) {
    RootSlot slot;
    const Layout layout = write_sections(file, state, options, slot.manifest_offset);
    const std::vector<uint8_t> manifest = build_manifest(state, layout);
    file.write(manifest.data(), manifest.size(), slot.manifest_offset);
    slot.sequence = 1;
    slot.manifest_bytes = manifest.size();
    slot.file_bytes = slot.manifest_offset + slot.manifest_bytes;
    slot.manifest_checksum = checksum(manifest.data(), manifest.size());
    slot.root = root_digest(slot, manifest.data(), manifest.size());
    const Block blocks[3] = {encode_header(), encode_slot(slot), Block{}};
    file.write(blocks, sizeof blocks, 0);
}

} // namespace

void save(const State &state, const std::string &path, const SaveOptions &options,
          const FileOperations &files) {
    check_state(state, Status::invalid_argument);
    check_data(state, options);
    Temporary temporary(files, path);
    check_target(state, path, options.replace, files);
    write_snapshot(temporary.file(), state, options);
    temporary.commit();
}

void write_stream(const State &, const Sink &, const SaveOptions &) {
    fail(Status::unsupported, "streams: not yet");
}

void compact(const std::string &, const SaveOptions &, const FileOperations &) {
    fail(Status::unsupported, "compact: not yet");
}

} // namespace stasis::format
