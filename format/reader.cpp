// Opening a snapshot: from the root to everything but pages; see reader.h.
#include "format/reader.h"

#include <algorithm>

#include "format/check.h"
#include "format/error.h"
#include "format/manifest.h"
#include "format/naming.h"
#include "format/pages.h"
#include "format/texts.h"
#include "format/trees.h"

namespace stasis::format {

using Number = unsigned long long;

std::shared_ptr<const Snapshot> Snapshot::open(const std::string &path,
                                               const FileOperations &files) {
    return open_input(Input(open_file(files, path)));
}

std::shared_ptr<const Snapshot> Snapshot::open_source(const Source &source) {
    return open_input(Input(naming("stream", [&] { return read_stream(source); })));
}

std::shared_ptr<const Snapshot> Snapshot::open_input(Input input) {
    const std::shared_ptr<Snapshot> snapshot(new Snapshot(std::move(input)));
    naming(snapshot->input_.path(), [&] {
        snapshot->current_ = find_root(snapshot->input_);
        snapshot->read_manifest();
        snapshot->read_trees();
        snapshot->read_rest();
        check_state(snapshot->state_, Status::corrupt);
    });
    return snapshot;
}

Committed Snapshot::committed() const {
    return {input_, current_.root.file_bytes, current_.root.sequence};
}

void Snapshot::read_manifest() {
    const Root &root = current_.root;
    const std::vector<uint8_t> manifest =
        committed().read_section(root.manifest_offset, root.manifest_bytes, SectionKind::manifest);
    const Digest digest = root_digest(root, manifest.data(), manifest.size());
    if (digest != root.digest) {
        fail(Status::corrupt, "root digest is %s, the manifest gives %s",
             to_hex(root.digest).c_str(), to_hex(digest).c_str());
    }
    parse_manifest(manifest, state_, layout_);
    state_.model =
        parse_identity(committed().read_section(layout_.identity, SectionKind::identity));
    check_geometry(state_, Status::corrupt);
    if (layout_.position > root.file_bytes / sizeof(TokenEntry)) {
        fail(Status::corrupt, "manifest: %llu tokens in a file of %llu bytes",
             static_cast<Number>(layout_.position), static_cast<Number>(root.file_bytes));
    }
}

void Snapshot::read_trees() {
    NodeReader nodes(committed());
    const auto add_log = [&](std::span<const uint8_t> node, uint32_t count) {
        parse_entries(node, count, state_.log);
    };
    const auto add_text = [&](std::span<const uint8_t> node, uint32_t count) {
        parse_texts(node, count, texts_);
    };
    trees_.log = nodes.read({TreeKind::log, 0, layout_.position}, layout_.log, add_log);
    trees_.texts = nodes.read({TreeKind::texts, 0, layout_.text_count}, layout_.texts, add_text);
    const uint64_t count = page_count(layout_.position, state_.page_positions);
    for (uint32_t group = 0; group < state_.groups.size(); ++group) {
        std::vector<PageEntry> &entries = pages_.emplace_back();
        const auto add_page = [&](std::span<const uint8_t> node, uint32_t items) {
            parse_pages(node, items, entries);
        };
        trees_.pages.push_back(
            nodes.read({TreeKind::pages, group, count}, layout_.pages[group], add_page));
        std::vector<Page> &pages = state_.pages.emplace_back();
        for (const PageEntry &entry : entries) {
            pages.push_back({entry.valid, entry.digest, nullptr});
        }
    }
    node_sections_ = nodes.sections();
    check_entries();
    state_.token_texts = texts_of_log(texts_, state_.log, state_.vocabulary);
}

void Snapshot::check_entries() const {
    uint64_t left = current_.root.file_bytes;
    for (size_t group = 0; group < pages_.size(); ++group) {
        std::vector<bool> stored;
        for (uint64_t index = 0; index < pages_[group].size(); ++index) {
            const PageEntry &entry = pages_[group][index];
            check_entry(state_, group, index, entry, current_.root.file_bytes);
            stored.push_back(!entry.runs.empty());
            for (const Run &run : entry.runs) {
                if (run.stored_bytes > left || layout_.keep == Keep::none) {
                    fail(Status::corrupt,
                         "page %llu of layer group %zu: it has a run, but the file %s",
                         static_cast<Number>(index), group,
                         layout_.keep == Keep::none ? "keeps none"
                                                    : "has fewer bytes than its runs");
                }
                left -= run.stored_bytes;
            }
        }
        if (layout_.keep == Keep::full) {
            check_stored(state_, group, layout_.position, stored, Status::corrupt);
        }
    }
}

void Snapshot::read_rest() {
    if (layout_.position == 0) {
        if (layout_.hidden != SectionRef{} || layout_.logits_row != SectionRef{}) {
            fail(Status::corrupt, "manifest: a hidden state or logits at position 0");
        }
        return;
    }
    const uint64_t hidden_bytes = uint64_t{state_.hidden_size} * sizeof(uint16_t);
    if (layout_.hidden.bytes != hidden_bytes) {
        fail(Status::corrupt, "hidden state: %llu bytes, expected %llu",
             static_cast<Number>(layout_.hidden.bytes), static_cast<Number>(hidden_bytes));
    }
    const std::vector<uint8_t> hidden =
        committed().read_section(layout_.hidden, SectionKind::hidden);
    state_.hidden.resize(state_.hidden_size);
    std::copy(hidden.begin(), hidden.end(), reinterpret_cast<uint8_t *>(state_.hidden.data()));
    if (layout_.logits_row == SectionRef{}) {
        return;
    }
    if (layout_.logits_row.bytes != uint64_t{state_.vocabulary} * sizeof(float) ||
        layout_.logits_row.digest != state_.logits) {
        fail(Status::corrupt,
             "row of logits: %llu bytes, or its SHA-256 is not the one of the "
             "logits",
             static_cast<Number>(layout_.logits_row.bytes));
    }
    committed().read_section(layout_.logits_row, SectionKind::logits_row); // for its checks
}

std::vector<float> Snapshot::logits_row() const {
    std::vector<float> row;
    if (layout_.logits_row != SectionRef{}) {
        naming(input_.path(), [&] {
            const std::vector<uint8_t> bytes =
                committed().read_section(layout_.logits_row, SectionKind::logits_row);
            row.resize(bytes.size() / sizeof(float));
            std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t *>(row.data()));
        });
    }
    return row;
}

std::vector<Section> Snapshot::sections() const {
    std::vector<Section> sections;
    naming(input_.path(), [&] {
        const auto add = [&](uint64_t offset, SectionKind kind) {
            if (offset != 0) {
                sections.push_back({offset, committed().read_frame(offset, kind)});
            }
        };
        add(layout_.identity.offset, SectionKind::identity);
        add(layout_.hidden.offset, SectionKind::hidden);
        add(layout_.logits_row.offset, SectionKind::logits_row);
        add(current_.root.manifest_offset, SectionKind::manifest);
        for (const auto &[offset, frame] : node_sections_) {
            sections.push_back({offset, frame});
        }
        for (const std::vector<PageEntry> &entries : pages_) {
            for (const PageEntry &entry : entries) {
                for (const Run &run : entry.runs) {
                    add(run.offset, SectionKind::run);
                }
            }
        }
    });
    std::sort(sections.begin(), sections.end(),
              [](const Section &a, const Section &b) { return a.offset < b.offset; });
    return sections;
}

State load(const std::string &path, const Watch &watch, const FileOperations &files,
           const Parallel &parallel) {
    const std::shared_ptr<const Snapshot> snapshot = Snapshot::open(path, files);
    State state = snapshot->state();
    snapshot->read_pages(state, watch, parallel);
    return state;
}

} // namespace stasis::format
