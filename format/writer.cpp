// Writing a state: sections, manifest and root, into a new file, after the state of an old file, or
// into a stream; see writer.h.
#include "format/writer.h"

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "format/check.h"
#include "format/constants.h"
#include "format/evictions.h"
#include "format/existing.h"
#include "format/features.h"
#include "format/host_data.h"
#include "format/manifest.h"
#include "format/node_io.h"
#include "format/pages.h"
#include "format/reader.h"
#include "format/settings.h"
#include "format/state/atomic_file.h"
#include "format/state/error.h"
#include "format/texts.h"
#include "format/write_pages.h"
#include "format/write_recurrent.h"

namespace stasis::format {

namespace {

constexpr AtomicKind kSavedFile = {".saving", kMagic, 0600};

// Checks the data that this save needs, beyond what every State must satisfy: pages that must be
// stored, and the row of logits. Throws Error(invalid_argument).
void check_data(const SaveInput &input) {
    const State &state = input.state;
    const std::vector<bool> evicted = evicted_pages(state);
    for (size_t group = 0; group < state.pages.size() && input.options.keep == Keep::full;
         ++group) {
        std::vector<bool> stored;
        for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
            stored.push_back(input.has_data(group, index));
        }
        check_stored(state, group, state.log.size(), evicted, stored, Status::invalid_argument);
    }
    for (const RecurrentState &each : state.states) {
        if (input.options.keep == Keep::full && each.data == nullptr) {
            fail(Status::invalid_argument, "recurrent state at position %llu: without its numbers",
                 static_cast<Number>(each.position));
        }
    }
    const std::span<const float> row = input.options.logits_row;
    if (!row.empty() && (row.size() != state.vocabulary ||
                         Sha256().bytes(row.data(), row.size_bytes()).finish() != state.logits)) {
        fail(Status::invalid_argument, "row of %zu logits: not the row of the state's %u logits",
             row.size(), state.vocabulary);
    }
}

// Appends bytes to a file. From time to time passes them on to the disk, which writes while more is
// prepared, so that the final sync has little left to wait for.
struct FileEnd {
    FileEnd(const File &written, uint64_t offset) : file(written), next(offset), syncing(offset) {}

    const File &file;
    uint64_t next;
    uint64_t syncing; // the disk has been given the bytes before this offset

    Sink sink() { return {this, write}; }
    static void write(void *user, const void *data, size_t size_bytes) {
        auto *end = static_cast<FileEnd *>(user);
        end->file.write(data, size_bytes, end->next);
        end->next += size_bytes;
        if (end->next - end->syncing >= kSyncBytes) {
            end->file.begin_sync(end->syncing, end->next - end->syncing);
            end->syncing = end->next;
        }
    }
};

// The lists of a state that the file already has, and their trees; empty without a file.
struct OldLists {
    Trees trees;
    std::span<const TokenEntry> log;
    std::span<const TokenText> texts;
    std::span<const SettingRecord> settings;
    std::vector<std::span<const PageRecord>> pages; // [group]
};

OldLists old_lists(const SaveInput &input) {
    OldLists old;
    if (input.old != nullptr) {
        old = {input.old->trees(),
               input.old->state().log,
               input.old->texts(),
               input.old->contents()->settings,
               {}};
        for (const std::vector<PageRecord> &pages : input.old->pages()) {
            old.pages.push_back(pages);
        }
    }
    old.trees.pages.resize(input.state.groups.size());
    old.pages.resize(input.state.groups.size());
    return old;
}

// How many of the first pages have all of their slots, in runs that are written.
size_t whole_pages(const State &state, const std::vector<PageRecord> &table) {
    size_t count = 0;
    for (const PageRecord &page : table) {
        uint32_t used = 0;
        for (const Run &run : page.runs) {
            used += run.used;
        }
        if (used != state.page_positions) {
            break;
        }
        ++count;
    }
    return count;
}

// Appends the nodes of what the state has in common with the lender, behind its runs, and ends
// there what others have too who go on from the same place. They are the old lists for the rest.
void write_common(Output &output, const SaveInput &input, const PageTables &pages,
                  const TokenTexts &texts, OldLists &old) {
    constexpr uint64_t kLeast = 1024; // tokens, of which it is worth an object
    const State &state = input.state;
    const std::vector<TokenEntry> &theirs = input.options.lender->state().log;
    const std::span<const TokenEntry> log = state.log;
    const auto common = static_cast<size_t>(
        std::mismatch(log.begin(), log.end(), theirs.begin(), theirs.end()).first - log.begin());
    if (common < kLeast) {
        return;
    }
    std::vector<bool> used(state.vocabulary);
    for (const TokenEntry &entry : log.first(common)) {
        used[entry.token] = true;
    }
    size_t known = 0; // texts are in the order in which the log first uses them
    while (known < texts.size() && used[texts[known].first]) {
        ++known;
    }
    NodeWriter nodes(output);
    old.log = log.first(common);
    old.texts = std::span(texts).first(known);
    old.trees.log = nodes.write_full(TreeKind::log, 0, old.log, add_entries);
    old.trees.texts = nodes.write_full(TreeKind::texts, 0, old.texts, add_texts);
    for (uint32_t group = 0; group < pages.size(); ++group) {
        old.pages[group] = std::span(pages[group]).first(whole_pages(state, pages[group]));
        old.trees.pages[group] =
            nodes.write_full(TreeKind::pages, group, old.pages[group], add_pages);
    }
    nodes.flush();
    output.cut();
}

// Appends the missing runs, and what is common with a lender between its runs and the others.
void write_pages_of(Output &output, const SaveInput &input, Contents &written, OldLists &old) {
    const bool lent = input.options.lender != nullptr;
    written.pages = write_pages(output, input, [&](const PageTables &pages) {
        if (lent) {
            write_common(output, input, pages, written.texts, old);
        }
    });
    for (size_t group = 0; lent && group < old.pages.size(); ++group) {
        old.pages[group] = std::span(written.pages[group]).first(old.pages[group].size());
    }
}

// Appends everything that the file does not hold already, and the manifest last. Returns all that
// is written except the state itself.
std::shared_ptr<Contents> write_state(Output &output, const SaveInput &input) {
    const State &state = input.state;
    const Layout before = input.old != nullptr ? input.old->layout() : Layout{};
    OldLists old = old_lists(input);
    const auto written = std::make_shared<Contents>();
    const Contents *const held = input.old != nullptr ? input.old->contents().get() : nullptr;
    written->texts = continued_texts(old.texts, state.token_texts, state.log);
    written->settings = held != nullptr
                            ? list_settings(state, held->state.samplings, held->settings)
                            : list_settings(state, {}, {});
    Trees &trees = written->trees;
    Layout &layout = written->layout;
    layout.position = state.log.size();
    layout.text_count = written->texts.size();
    layout.setting_count = static_cast<uint32_t>(written->settings.size());
    layout.plain_settings = plain_settings(written->settings);
    layout.keep = input.options.keep;

    // Identity, pages and recurrent states.
    const std::vector<uint8_t> identity = build_identity(state.model);
    layout.identity =
        output.put(SectionKind::identity, identity.data(), identity.size(), before.identity);
    layout.states = states_in_file(input);
    output.expect(missing_state_bytes(input, layout.states));
    write_pages_of(output, input, *written, old);
    write_states(output, input, layout.states);

    // Trees, which refer to the pages.
    NodeWriter nodes(output);
    trees.log = nodes.write(TreeKind::log, 0, state.log, old.trees.log, old.log, add_entries);
    layout.log = trees.log.root();
    trees.texts =
        nodes.write(TreeKind::texts, 0, written->texts, old.trees.texts, old.texts, add_texts);
    layout.texts = trees.texts.root();
    for (uint32_t group = 0; group < written->pages.size(); ++group) {
        trees.pages.push_back(nodes.write(TreeKind::pages, group, written->pages[group],
                                          old.trees.pages[group], old.pages[group], add_pages));
        layout.pages.push_back(trees.pages.back().root());
    }
    trees.settings = nodes.write(TreeKind::settings, 0, written->settings, old.trees.settings,
                                 old.settings, add_settings);
    layout.settings = trees.settings.root();
    nodes.flush();

    // State after the last token, evictions, and the host's data.
    layout.hidden = output.put(SectionKind::hidden, state.hidden.data(),
                               state.hidden.size() * sizeof(uint16_t), before.hidden);
    const std::span<const float> row = input.options.logits_row;
    layout.logits_row =
        output.put(SectionKind::logits_row, row.data(), row.size_bytes(), before.logits_row);
    const std::vector<uint8_t> evictions = build_evictions(state);
    layout.evictions =
        output.put(SectionKind::evictions, evictions.data(), evictions.size(), before.evictions);
    layout.host_data = write_host_data(output, state, held, written->host_values);

    // The manifest, which refers to all of it, and the root, which refers to the manifest.
    const std::vector<uint8_t> manifest = build_manifest(state, layout);
    Root &root = written->root;
    root.sequence = output.sequence();
    set_features(state, layout, root);
    root.manifest_bytes = manifest.size();
    root.manifest_offset = output.append(SectionKind::manifest, manifest.data(), manifest.size());
    root.file_bytes = output.next();
    root.digest = root_digest(root, manifest.data(), manifest.size());
    return written;
}

// Writes the header and two empty root slots.
void write_beginning(Output &output) {
    const Block blocks[3] = {encode_header(), Block{}, Block{}};
    output.write(blocks, sizeof blocks);
}

// Sets the stamp that identifies the unchanged file. Must be the last operation on the file. A
// failure only leaves the stamp unset: the state is in place, and the next save reads the file.
void stamp(Contents &written, const File &file) {
    struct stat status {};
    if (file.files().status(file.descriptor(), &status) == 0) {
        written.stamp = stamp_of(status);
    }
}

void write_slot(const File &file, uint64_t slot, const Root &root) {
    const Block block = encode_slot(root);
    file.write(block.data(), block.size(), slot);
}

// Writes the state into a new file, which then appears at its path.
std::shared_ptr<Contents> write_whole(AtomicFile &whole, const SaveInput &input) {
    FileEnd end(whole.file(), 0);
    Output output(end.sink(), 0, 1, input.options.watch);
    write_beginning(output);
    const std::shared_ptr<Contents> written = write_state(output, input);
    output.flush();
    write_slot(whole.file(), kSlotA, written->root);
    whole.commit();
    stamp(*written, whole.file());
    return written;
}

// Checks that the state may be committed to this file. Throws Error(corrupt) if the file's state is
// older than its last commit and the session was not loaded from it, Error(conflict) if
// options.if_match forbids the commit, Error(invalid_argument) for everything else.
void check_continues(const Snapshot &old, const State &state, const SaveOptions &options) {
    const Contents *const known = options.known.get();
    if (known == nullptr || !known->older || known->root != old.root()) {
        old.require_newest();
    }

    check_known_features(old);
    if (old.root().sequence == UINT64_MAX) { // as only a forged file can be
        fail(Status::invalid_argument, "no commit can follow its last one, of number %llu",
             static_cast<Number>(old.root().sequence));
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
    if (options.if_match && !log.empty() &&
        (known == nullptr || known->state.digest != old.state().digest)) {
        fail(Status::conflict,
             "it holds a state of %zu positions that this session neither loaded nor saved",
             log.size());
    }
}

// Returns the state in the file, if this one may be committed to it. Throws Error(invalid_argument)
// if not, Error(conflict), Error(io), Error(cancelled), Error(timeout), Error(stopped).
std::shared_ptr<const Snapshot> open_to_continue(File file, const State &state,
                                                 const SaveOptions &options) {
    const std::string path = file.path();
    try {
        std::shared_ptr<const Snapshot> old =
            Snapshot::open_input(Input(std::move(file)), options.known, options.watch);
        check_continues(*old, state, options);
        return old;
    } catch (const Error &error) {
        if (error.status() == Status::io || error.status() == Status::cancelled ||
            error.status() == Status::timeout || error.status() == Status::stopped) {
            throw;
        }
        if (error.status() == Status::conflict) {
            fail(Status::conflict, "%s: %s", path.c_str(), error.what());
        }
        fail(Status::invalid_argument, "%s: not written to unless it may be replaced: %s",
             path.c_str(), error.what());
    }
}

// A file that other users may read or write must not get more of a session: a new file replaces it.
bool is_private(const File &file) {
    return (file.status().st_mode & 077) == 0;
}

// Prepares both slots for a commit. The slot in force is written again with the same bytes before
// the other one is changed: if its own sync had failed, its contents might exist only in memory. A
// torn slot is of no use; once cleared, it can only become a slot that was_finished (older.h)
// recognises as torn.
void prepare_slots(const File &file, const Snapshot &old) {
    const Block empty{};
    for (const uint64_t slot : {kSlotA, kSlotB}) {
        if (slot == old.slot()) {
            write_slot(file, slot, old.root());
        } else if (!old.both_slots_intact()) {
            file.write(empty.data(), empty.size(), slot);
        }
    }
}

// Appends the state to the file, makes it durable, and then writes the slot that refers to it.
std::shared_ptr<Contents> commit(const Snapshot &old, const State &state,
                                 const SaveOptions &options) {
    assert(old.input().file() != nullptr);
    const File &file = *old.input().file();
    const std::string &path = file.path();
    const File directory = open_directory(file.files(), path);
    Error unsynced(Status::io, path + ": the new state is in place, but may not survive a power "
                                      "loss: cannot sync the file");

    // Bytes after the state are left from a commit that was not finished.
    if (old.input().size() > old.file_bytes()) {
        file.set_size(old.file_bytes());
    }

    // Append, and sync before a root refers to the new sections. On failure the file gets its old
    // length.
    std::shared_ptr<Contents> written;
    try {
        FileEnd end(file, old.file_bytes());
        Output output(end.sink(), old.file_bytes(), old.root().sequence + 1, options.watch);
        written = write_state(output, {state, nullptr, &old, options});
        output.flush();
        prepare_slots(file, old);
        file.sync();
        directory.sync();
    } catch (...) {
        file.files().set_size(file.descriptor(), static_cast<off_t>(old.file_bytes()));
        throw;
    }

    // Commit to the new state. From this write on the file opens with it.
    write_slot(file, old.slot() == kSlotA ? kSlotB : kSlotA, written->root);
    if (file.files().sync(file.descriptor()) != 0) {
        throw Error(std::move(unsynced));
    }
    stamp(*written, file);
    return written;
}

// Returns the contents of the file after a save: with the state, without its pages' data. Cannot
// fail, because the state is already in the file.
std::shared_ptr<const Contents> told(std::shared_ptr<Contents> written, State &&state) noexcept {
    written->state = std::move(state);
    written->state.storage.clear();
    written->state.fetch = nullptr;
    for (std::vector<Page> &pages : written->state.pages) {
        for (Page &page : pages) {
            page.data = nullptr;
            page.far = false;
        }
    }
    for (RecurrentState &each : written->state.states) {
        each.data = nullptr;
    }
    return written;
}

} // namespace

std::shared_ptr<const Contents> save(State state, const std::string &path,
                                     const SaveOptions &options, const FileOperations &files) {
    const SaveInput input{state, nullptr, nullptr, options};
    check_state(state, Status::invalid_argument);
    check_data(input);
    // Another save may create, replace or remove the file between two calls, so each attempt
    // decides anew.
    for (int attempt = 0; attempt < 16; ++attempt) {
        std::optional<File> existing = lock_existing(files, path);
        std::shared_ptr<const Snapshot> old;
        if (existing && !options.replace) {
            old = open_to_continue(std::move(*existing), state, options);
        }
        const File *locked = old ? old->input().file() : existing ? &*existing : nullptr;
        if (locked != nullptr) {
            clear_leftover(*locked, kSavedFile);
        }
        // Commit to the file, or write a new one under the old one's lock.
        if (old && is_private(*locked)) {
            return told(commit(*old, state, options), std::move(state));
        }
        AtomicFile whole(files, path, kSavedFile, true);
        if (locked != nullptr || !lock_existing(files, path)) { // locked, or still no file
            return told(write_whole(whole, input), std::move(state));
        }
    }
    fail_file(Status::busy, FileFailure::crowded, path);
}

void check_known_features(const Snapshot &old) {
    const uint64_t unknown = old.root().features_read & ~kFeaturesReadKnown;
    if (unknown != 0) {
        fail(Status::invalid_argument,
             "%s: it uses features %016llx, which this build cannot write",
             old.input().path().c_str(), static_cast<Number>(unknown));
    }
}

std::shared_ptr<const Contents> write_sections(const State &state, const Snapshot *old,
                                               uint64_t sequence, const Sink &sink,
                                               const SaveOptions &options) {
    const SaveInput input{state, nullptr, old, options};
    check_state(state, Status::invalid_argument);
    check_data(input);
    Output output(sink, old != nullptr ? old->file_bytes() : kSectionsBegin, sequence,
                  options.watch);
    std::shared_ptr<Contents> written = write_state(output, input);
    output.flush();
    return told(std::move(written), State(state));
}

void write_stream(const State &state, const Sink &sink, const SaveOptions &options) {
    const SaveInput input{state, nullptr, nullptr, options};
    check_state(state, Status::invalid_argument);
    check_data(input);
    Output output(sink, 0, 1, options.watch);
    write_beginning(output);
    Root root = write_state(output, input)->root;
    root.file_bytes += kTrailerBytes;
    const RootBytes trailer = encode_root(root);
    output.append(SectionKind::root, trailer.data(), trailer.size());
    output.flush();
}

void compact(const std::string &path, const SaveOptions &options, const FileOperations &files) {
    std::optional<File> existing = lock_existing(files, path);
    if (!existing) {
        fail(Status::not_found, "%s: there is no such file", path.c_str());
    }
    const std::shared_ptr<const Snapshot> old =
        Snapshot::open_input(Input(std::move(*existing)), nullptr, options.watch);
    old->require_newest();
    check_known_features(*old);
    clear_leftover(*old->input().file(), kSavedFile);

    // The same state, from the file's own pages, as one run for each page.
    const std::vector<float> row = old->logits_row();
    SaveOptions chosen = options;
    chosen.keep = old->keep();
    chosen.logits_row = row;
    AtomicFile whole(files, path, kSavedFile, true);
    write_whole(whole, {old->state(), old.get(), nullptr, chosen});
}

} // namespace stasis::format
