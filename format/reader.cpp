// Opening a snapshot: reads and checks everything except pages, from the root on; see reader.h.
#include "format/reader.h"

#include <algorithm>
#include <set>

#include "format/check.h"
#include "format/evictions.h"
#include "format/features.h"
#include "format/host_data.h"
#include "format/manifest.h"
#include "format/naming.h"
#include "format/node_io.h"
#include "format/pages.h"
#include "format/recurrent.h"
#include "format/settings.h"
#include "format/state/error.h"
#include "format/texts.h"

namespace stasis::format {

std::shared_ptr<const Snapshot> Snapshot::open(const std::string &path, const FileOperations &files,
                                               const Watch &watch) {
    return open_input(Input(open_file(files, path)), nullptr, watch);
}

std::shared_ptr<const Snapshot> Snapshot::open_source(const Source &source, const Watch &watch) {
    return open_input(Input(naming("stream", [&] { return read_stream(source, watch); })), nullptr,
                      watch);
}

std::shared_ptr<const Snapshot> Snapshot::open_input(Input input,
                                                     const std::shared_ptr<const Contents> &known,
                                                     const Watch &watch) {
    const std::shared_ptr<Snapshot> snapshot(new Snapshot(std::move(input)));
    naming(snapshot->input_.path(), [&] {
        const File *file = snapshot->input_.file();
        const std::optional<FileStamp> stamp =
            file != nullptr ? std::optional(stamp_of(file->status())) : std::nullopt;
        watch.step(0, 0);
        snapshot->current_ = find_root(snapshot->input_, watch);
        // A file that has not changed since the caller's last save or load need not be read again.
        if (known != nullptr && stamp && known->stamp == stamp && known->root == snapshot->root()) {
            snapshot->contents_ = known;
            snapshot->known_ = true;
            return;
        }
        snapshot->read_contents(stamp, watch);
    });
    return snapshot;
}

std::shared_ptr<const Snapshot> Snapshot::open_root(Input input, const RootBytes &root,
                                                    const std::shared_ptr<const Contents> &known,
                                                    const Watch &watch) {
    const std::shared_ptr<Snapshot> snapshot(new Snapshot(std::move(input)));
    naming(snapshot->input_.path(), [&] {
        watch.step(0, 0);
        snapshot->current_ = check_root(snapshot->input_, root);
        if (known != nullptr && !known->older && known->root == snapshot->root()) {
            snapshot->contents_ = known;
            snapshot->known_ = true;
            return;
        }
        snapshot->read_contents(std::nullopt, watch);
    });
    return snapshot;
}

// Each step needs the one before it: geometry from the manifest, the log for the page tables.
void Snapshot::read_contents(const std::optional<FileStamp> &stamp, const Watch &watch) {
    const auto contents = std::make_shared<Contents>();
    contents->stamp = stamp;
    contents->root = root();
    contents->older = older();
    read_manifest(*contents, watch);
    read_trees(*contents, watch);
    read_rest(*contents, watch);
    read_host_data(committed(watch), contents->root.file_bytes, *contents);
    check_state(contents->state, Status::corrupt, watch);
    contents_ = contents;
}

void Snapshot::require_newest() const {
    if (older()) {
        fail(
            Status::corrupt,
            "%s: the root of its last commit, at byte %llu, is damaged; commit %llu, before it, is "
            "whole, of %zu positions, and opens if an older state is accepted",
            input_.path().c_str(), static_cast<Number>(slot() == kSlotA ? kSlotB : kSlotA),
            static_cast<Number>(root().sequence), state().log.size());
    }
}

Committed Snapshot::committed(const Watch &watch) const {
    return {input_, current_.root.file_bytes, current_.root.sequence, watch};
}

void Snapshot::read_manifest(Contents &into, const Watch &watch) const {
    const Root &root = current_.root;
    const std::vector<uint8_t> manifest = committed(watch).read_section(
        root.manifest_offset, root.manifest_bytes, SectionKind::manifest);
    const Digest digest = root_digest(root, manifest.data(), manifest.size());
    if (digest != root.digest) {
        fail(Status::corrupt, "root digest is %s, the manifest gives %s",
             to_hex(root.digest).c_str(), to_hex(digest).c_str());
    }
    parse_manifest(manifest, into.state, into.layout);
    check_features(into.state, into.layout, root);
    into.state.model =
        parse_identity(committed(watch).read_section(into.layout.identity, SectionKind::identity));
    check_geometry(into.state, Status::corrupt);
    // A log takes at least this many bytes, so its length is bounded before it is read.
    if (into.layout.position > root.file_bytes / sizeof(TokenEntry)) {
        fail(Status::corrupt, "manifest: %llu tokens in a file of %llu bytes",
             static_cast<Number>(into.layout.position), static_cast<Number>(root.file_bytes));
    }
}

void Snapshot::read_trees(Contents &into, const Watch &watch) const {
    NodeReader nodes(committed(watch));
    const auto add_log = [&](std::span<const uint8_t> node, uint32_t count) {
        parse_entries(node, count, into.state.log);
    };
    const auto add_text = [&](std::span<const uint8_t> node, uint32_t count) {
        parse_texts(node, count, into.texts);
    };
    // Log and texts.
    into.trees.log = nodes.read({TreeKind::log, 0, into.layout.position}, into.layout.log, add_log);
    into.trees.texts =
        nodes.read({TreeKind::texts, 0, into.layout.text_count}, into.layout.texts, add_text);

    // Page tables, which also supply the state's pages, without data.
    const uint64_t count = page_count(into.layout.position, into.state.page_positions);
    for (uint32_t group = 0; group < into.state.groups.size(); ++group) {
        std::vector<PageRecord> &entries = into.pages.emplace_back();
        const auto add_page = [&](std::span<const uint8_t> node, uint32_t items) {
            parse_pages(node, items, entries);
        };
        into.trees.pages.push_back(
            nodes.read({TreeKind::pages, group, count}, into.layout.pages[group], add_page));
        std::vector<Page> &pages = into.state.pages.emplace_back();
        for (const PageRecord &entry : entries) {
            pages.push_back({entry.valid, entry.digest, nullptr});
        }
    }

    read_setting_items(nodes, into);

    // Checks that need all of the tables.
    read_evictions(into, watch);
    check_entries(into, watch);
    check_state_refs(into.state, into.layout, current_.root.file_bytes);
    watch.step(0, 0);
    into.state.token_texts = texts_of_log(into.texts, into.state.log, into.state.vocabulary);
}

// Replaces the settings that the manifest lists.
void Snapshot::read_setting_items(NodeReader &nodes, Contents &into) const {
    const uint32_t count = into.layout.setting_count;
    if (count > kSamplingsMax) {
        fail(Status::corrupt, "sampling settings: %u items, at most %zu", count, kSamplingsMax);
    }
    const auto add_settings = [&](std::span<const uint8_t> node, uint32_t items) {
        parse_settings(node, items, into.settings);
    };
    into.trees.settings =
        nodes.read({TreeKind::settings, 0, count}, into.layout.settings, add_settings);
    if (count > 0) {
        into.layout.plain_settings = plain_settings(into.settings);
        read_settings(into.settings, into.state);
    }
}

// Runs before the page entries are checked, because evicted pages may be missing.
void Snapshot::read_evictions(Contents &into, const Watch &watch) const {
    if (into.layout.evictions != SectionRef{}) {
        parse_evictions(
            committed(watch).read_section(into.layout.evictions, SectionKind::evictions),
            into.state);
        check_evictions(into.state, Status::corrupt);
    }
}

// Checks the entries of all pages. Together their runs must not be longer than the file: a save
// writes no run twice, and a reader may allocate for each.
void Snapshot::check_entries(const Contents &read, const Watch &watch) const {
    const std::vector<bool> evicted = evicted_pages(read.state);
    uint64_t left = current_.root.file_bytes;
    for (size_t group = 0; group < read.pages.size(); ++group) {
        watch.step(0, 0);
        std::vector<bool> stored;
        for (uint64_t index = 0; index < read.pages[group].size(); ++index) {
            const PageRecord &entry = read.pages[group][index];
            check_entry(read.state, group, index, entry, current_.root.file_bytes);
            stored.push_back(!entry.runs.empty());
            for (const Run &run : entry.runs) {
                if (run.stored_bytes > left || read.layout.keep == Keep::none) {
                    fail(Status::corrupt,
                         "page %llu of layer group %zu: it has a run, but the file %s",
                         static_cast<Number>(index), group,
                         read.layout.keep == Keep::none ? "keeps none"
                                                        : "has fewer bytes than its runs");
                }
                left -= run.stored_bytes;
            }
        }
        if (read.layout.keep == Keep::full) {
            check_stored(read.state, group, read.layout.position, evicted, stored, Status::corrupt);
        }
    }
}

void Snapshot::read_rest(Contents &into, const Watch &watch) const {
    if (into.layout.position == 0) {
        if (into.layout.hidden != SectionRef{} || into.layout.logits_row != SectionRef{}) {
            fail(Status::corrupt, "manifest: a hidden state or logits at position 0");
        }
        return;
    }

    // Hidden state.
    const uint64_t hidden_bytes = uint64_t{into.state.hidden_size} * sizeof(uint16_t);
    if (into.layout.hidden.bytes != hidden_bytes) {
        fail(Status::corrupt, "hidden state: %llu bytes, expected %llu",
             static_cast<Number>(into.layout.hidden.bytes), static_cast<Number>(hidden_bytes));
    }
    const std::vector<uint8_t> hidden =
        committed(watch).read_section(into.layout.hidden, SectionKind::hidden);
    into.state.hidden.resize(into.state.hidden_size);
    std::copy(hidden.begin(), hidden.end(), reinterpret_cast<uint8_t *>(into.state.hidden.data()));

    // Row of logits: it is only checked, since logits_row() reads it on demand.
    if (into.layout.logits_row == SectionRef{}) {
        return;
    }
    if (into.layout.logits_row.bytes != uint64_t{into.state.vocabulary} * sizeof(float) ||
        into.layout.logits_row.digest != into.state.logits) {
        fail(Status::corrupt,
             "row of logits: %llu bytes, or its SHA-256 is not the one of the "
             "logits",
             static_cast<Number>(into.layout.logits_row.bytes));
    }
    committed(watch).read_section(into.layout.logits_row,
                                  SectionKind::logits_row); // for its checks
}

std::vector<float> Snapshot::logits_row() const {
    std::vector<float> row;
    if (layout().logits_row != SectionRef{}) {
        naming(input_.path(), [&] {
            const std::vector<uint8_t> bytes =
                committed().read_section(layout().logits_row, SectionKind::logits_row);
            row.resize(bytes.size() / sizeof(float));
            std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t *>(row.data()));
        });
    }
    return row;
}

namespace {

// Returns the offsets of the sections that hold nodes of the trees.
std::set<uint64_t> node_sections(const Trees &trees) {
    std::set<uint64_t> offsets;
    const auto add = [&](const StoredTree &tree) {
        for (const std::vector<NodeRef> &level : tree.levels) {
            for (const NodeRef &node : level) {
                offsets.insert(node.section);
            }
        }
    };
    add(trees.log);
    add(trees.texts);
    add(trees.settings);
    std::for_each(trees.pages.begin(), trees.pages.end(), add);
    return offsets;
}

} // namespace

std::vector<Section> Snapshot::sections() const {
    std::vector<Section> sections;
    naming(input_.path(), [&] {
        const auto add = [&](uint64_t offset, SectionKind kind) {
            if (offset != 0) {
                sections.push_back({offset, committed().read_frame(offset, kind)});
            }
        };

        // Sections that the manifest refers to, and the manifest.
        add(layout().identity.offset, SectionKind::identity);
        add(layout().hidden.offset, SectionKind::hidden);
        add(layout().logits_row.offset, SectionKind::logits_row);
        add(layout().evictions.offset, SectionKind::evictions);
        add(layout().host_data.offset, SectionKind::host_data);
        for (const SectionRef &value : contents_->host_values) {
            add(value.offset, SectionKind::host_value);
        }
        add(current_.root.manifest_offset, SectionKind::manifest);
        for (const StateRef &ref : layout().states) {
            add(ref.offset, SectionKind::recurrent);
        }

        // Sections that hold nodes, and runs.
        for (const uint64_t offset : node_sections(trees())) {
            add(offset, SectionKind::nodes);
        }
        for (const std::vector<PageRecord> &entries : pages()) {
            for (const PageRecord &entry : entries) {
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
    const std::shared_ptr<const Snapshot> snapshot = Snapshot::open(path, files, watch);
    snapshot->require_newest();
    State state = snapshot->state();
    snapshot->read_pages(state, watch, parallel);
    snapshot->read_states(state, watch, parallel);
    return state;
}

} // namespace stasis::format
