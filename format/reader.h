// Opens snapshots: everything is validated before it is used (FORMAT.md, "What a reader checks").
// Paired with writer.h. Knows neither models nor sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format/codec.h"
#include "format/input.h"
#include "format/layout.h"
#include "format/parallel.h"
#include "format/roots.h"
#include "format/state/file.h"
#include "format/state/state.h"
#include "format/state/watch.h"
#include "format/stream.h"
#include "format/tree.h"

namespace stasis::format {

// The trees of a state as they lie in the file: what a commit compares with.
struct Trees {
    StoredTree log;
    StoredTree texts;
    StoredTree settings;
    std::vector<StoredTree> pages; // [group]
    bool operator==(const Trees &) const = default;
};

// All that a snapshot says but the bytes of pages and recurrent states: what a save may know of a
// file instead of reading it, as long as nobody has changed the file since.
struct Contents {
    std::optional<FileStamp> stamp; // nothing: no file, or it cannot be told
    Root root;
    bool older = false; // as Snapshot::older
    State state;        // Page::data and RecurrentState::data are null
    Layout layout;
    Trees trees;
    std::vector<TokenText> texts;               // all that the file holds, in its order
    std::vector<std::vector<PageRecord>> pages; // [group][index]
    std::vector<SettingRecord> settings;        // of State::samplings; none: the manifest has them
    std::vector<SectionRef> host_values;        // in the order of State::host_data
};

class NodeReader;

// A section that the state reaches.
struct Section {
    uint64_t offset = 0;
    Frame frame;
};

// An opened snapshot, read-only: manifest, log, texts, page tables and hidden state checked and in
// memory, data of pages and recurrent states read on demand. All functions are const and may be
// called from many threads. What it reads stays in the file whatever is committed to it, and is
// kept by the open descriptor when the file is replaced.
class Snapshot {
  public:
    // Error(not_found), Error(io), Error(corrupt), Error(version). Takes time and memory in
    // proportion to the state, times a logarithm, whatever the file was forged of; progress is 0 of
    // 0.
    static std::shared_ptr<const Snapshot> open(const std::string &path,
                                                const FileOperations &files = system_files(),
                                                const Watch &watch = {});
    // From a stream: reads up to the end of the snapshot and no further. The whole of it stays in
    // memory.
    static std::shared_ptr<const Snapshot> open_source(const Source &source,
                                                       const Watch &watch = {});
    // From an input already open. If it is a file that has the stamp and the root of `known`,
    // nothing but the root is read.
    static std::shared_ptr<const Snapshot>
    open_input(Input input, const std::shared_ptr<const Contents> &known = nullptr,
               const Watch &watch = {});

    // From a store, whose objects never change: nothing but the root is read if it is that of
    // `known`.
    static std::shared_ptr<const Snapshot>
    open_root(Input input, const RootBytes &root,
              const std::shared_ptr<const Contents> &known = nullptr, const Watch &watch = {});

    const std::shared_ptr<const Contents> &contents() const { return contents_; }
    bool known() const { return known_; } // by what was given to open_input
    // All of the state but data of pages and recurrent states (Page::data is null).
    const State &state() const { return contents_->state; }
    const Root &root() const { return current_.root; }
    uint64_t slot() const { return current_.slot; } // that holds the root; 0: the trailer does
    uint64_t file_bytes() const { return current_.root.file_bytes; } // of the state, all commits
    uint32_t format() const { return kFormatVersion; }
    Keep keep() const { return layout().keep; }
    // A root slot is damaged or torn, and this is the state of the other one.
    bool slot_damaged() const { return current_.slot_damaged; }
    bool both_slots_intact() const { return current_.both_intact; }
    // It held the last commit: this is the state before that.
    bool older() const { return current_.older; }
    void require_newest() const; // Error(corrupt) if it is older
    const Layout &layout() const { return contents_->layout; }
    const Trees &trees() const { return contents_->trees; }
    // All texts that the file holds, in its order; those of tokens of the log are in the state.
    const std::vector<TokenText> &texts() const { return contents_->texts; }
    const Input &input() const { return input_; }

    // Runs and fingerprints of a page.
    const std::vector<std::vector<PageRecord>> &pages() const { return contents_->pages; }
    const PageRecord &page(size_t group, uint64_t index) const { return pages()[group][index]; }
    // False: the page was released before the save, or the file keeps none.
    bool stored(size_t group, uint64_t index) const { return !page(group, index).runs.empty(); }
    // Reads stored pages into their `data` (page_elements, in memory order), unused slots zero, and
    // checks their checksums, their digests and that their numbers are finite. Error(corrupt) names
    // the section, or layer group and page. Several pages a call are hashed side by side.
    void read(std::span<const PageInto> into) const;
    // The same into memory in which a row has its valid slots and no more: of a file that nothing
    // is known of, a page could take far more than is stored of it.
    std::vector<uint16_t> read_packed(size_t group, uint64_t index) const;
    // As read without the digest: for a caller that knows what the slots must be. Slots that
    // are not used keep what was in `data`.
    void read_slots(size_t group, uint64_t index, uint16_t *data) const;
    // Reads all stored pages into buffers that into.storage keeps. Progress in bytes of pages.
    void read_pages(State &into, const Watch &watch, const Parallel &parallel = {}) const;
    // Reads the numbers of State::states[index], state().recurrent.numbers() of them, and checks
    // checksum, digest and that all are finite. The file must keep them (Keep::full).
    // Error(corrupt) names the section or the position.
    void read_state(size_t index, float *numbers, const Parallel &parallel = {}) const;
    // Reads all states into memory that into.storage keeps. Progress in bytes of states.
    void read_states(State &into, const Watch &watch, const Parallel &parallel = {}) const;
    // The row of logits, if the save kept it; else empty.
    std::vector<float> logits_row() const;
    // Every section that the state reaches, by offset; reads their frames.
    std::vector<Section> sections() const;

  private:
    explicit Snapshot(Input input) : input_(std::move(input)) {}
    Committed committed(const Watch &watch = {}) const;
    void read_contents(const std::optional<FileStamp> &stamp, const Watch &watch);
    void read_manifest(Contents &into, const Watch &watch) const;
    void read_trees(Contents &into, const Watch &watch) const;
    void read_setting_items(NodeReader &nodes, Contents &into) const;
    void read_evictions(Contents &into, const Watch &watch) const;
    void read_rest(Contents &into, const Watch &watch) const;
    void check_entries(const Contents &read, const Watch &watch) const;
    void read_state_section(const Section &section, float *numbers, const Parallel &parallel) const;
    void check_state_numbers(size_t index, const float *numbers, const Parallel &parallel) const;
    void read_run(size_t group, const Run &run, uint16_t *numbers) const;
    void read_rows(size_t group, uint64_t index, uint32_t row_slots, uint16_t *data) const;
    DigestedPage digested(const PageInto &page, uint32_t row_slots) const;
    void check_page(const PageInto &page, uint32_t row_slots, const Digest &digest) const;

    Input input_;
    CurrentRoot current_;
    std::shared_ptr<const Contents> contents_;
    bool known_ = false;
    mutable FrameCoder coder_;
};

// The whole state, stored pages and recurrent states included. Error(corrupt) also where it is an
// older one.
State load(const std::string &path, const Watch &watch,
           const FileOperations &files = system_files(), const Parallel &parallel = {});

} // namespace stasis::format
