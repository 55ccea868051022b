// Opens snapshot files: everything is validated before it is used (FORMAT.md, "What a reader
// checks"). Paired with writer.h. Knows neither models nor sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "format/file.h"
#include "format/frame.h"
#include "format/layout.h"
#include "format/parallel.h"
#include "format/state.h"
#include "format/stream.h"
#include "format/watch.h"

namespace stasis::format {

// An opened file, read-only: manifest, log, texts and hidden state checked and in memory, page data
// read on demand. All functions are const and may be called from many threads.
class Snapshot {
  public:
    // Error(not_found), Error(io), Error(corrupt), Error(version).
    static std::shared_ptr<const Snapshot> open(const std::string &path,
                                                const FileOperations &files = system_files());

    // From a stream: reads up to the end of the snapshot and no further, unless it is a file that
    // holds uncommitted bytes behind its state. The whole of it stays in memory.
    static std::shared_ptr<const Snapshot> open_source(const Source &source);

    // All of the state but page data (Page::data is null).
    const State &state() const { return state_; }
    const std::vector<Section> &sections() const { return layout_.sections; }
    const RootSlot &slot() const { return slot_; }
    uint64_t file_bytes() const { return slot_.file_bytes; }
    const Digest &root() const { return slot_.root; }
    uint32_t format() const { return kFormatVersion; }
    Keep keep() const { return Keep::full; }
    // A root slot was damaged, and this is the state of the other one: perhaps not the last.
    bool slot_damaged() const { return false; }

    // False: the page was released before the save.
    bool stored(size_t group, uint64_t index) const;
    // Reads a stored page into `data` (page_elements, in memory order), unused slots zero, and
    // checks its checksum, its digest and that its numbers are finite. Error(corrupt) names the
    // section, or layer group and page.
    void read_page(size_t group, uint64_t index, uint16_t *data) const;
    // Reads all stored pages into buffers that into.storage keeps. Progress in bytes of pages.
    void read_pages(State &into, const Watch &watch, const Parallel &parallel = {}) const;
    // What a page that is not stored must come out as when it is computed again (fingerprint.h);
    // empty where the save did not have it.
    const std::vector<uint32_t> &fingerprints(size_t group, uint64_t index) const;
    // The row of logits, if the save kept it; else empty.
    std::vector<float> logits_row() const;

  private:
    explicit Snapshot(File file);
    void read_frame();
    void read_bulk();
    void check_padding() const;
    std::vector<uint8_t> read_section(SectionKind kind) const;

    File file_;
    RootSlot slot_;
    State state_;
    Layout layout_;
};

// The whole state, stored pages included.
State load(const std::string &path, const Watch &watch,
           const FileOperations &files = system_files(), const Parallel &parallel = {});

} // namespace stasis::format
