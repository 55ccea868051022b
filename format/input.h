// What a snapshot is read from: an open file, or bytes in memory that came through a stream. Reads
// whole sections and checks them (FORMAT.md, "Sections"). Knows nothing of what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "format/layout.h"
#include "format/section.h"
#include "format/state/file.h"
#include "format/state/watch.h"

namespace stasis::format {

class Input {
  public:
    explicit Input(File file) : file_(std::move(file)) {}
    explicit Input(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}

    const std::string &path() const; // for messages
    const File *file() const;        // null: in memory
    uint64_t size() const;           // of all that is there, committed or not
    void read(void *data, size_t size_bytes, uint64_t offset) const; // Error(corrupt) at the end

  private:
    std::optional<File> file_;
    std::vector<uint8_t> bytes_;
};

// Calls `visit` for the sections from the first one on, one behind the other, as long as they lie
// in front of `end` and it returns true. Returns where it stopped. Error(corrupt): a wrong frame.
uint64_t walk_sections(const Input &input, uint64_t end,
                       const std::function<bool(uint64_t offset, const Frame &frame)> &visit);

// An input up to the end of a committed state: nothing is read that lies behind it.
struct Committed {
    const Input &input;
    uint64_t end = 0;
    uint64_t sequence = 0; // of the commit
    Watch watch = {};      // looked at between pieces of what is read and digested; reports 0 of 0

    void read(void *data, size_t size_bytes, uint64_t offset) const;
    Digest digest(const std::vector<uint8_t> &bytes) const; // SHA-256

    // The frame of a section of this kind that lies in front of the end; padding is zero.
    // Error(corrupt).
    Frame read_frame(uint64_t offset, SectionKind kind) const;
    // The bytes of a raw section, checksum, digest and all checked. Error(corrupt).
    std::vector<uint8_t> read_section(const SectionRef &ref, SectionKind kind) const;
    // Without a digest: of a manifest, whose digest is the root digest.
    std::vector<uint8_t> read_section(uint64_t offset, uint64_t bytes, SectionKind kind) const;
};

} // namespace stasis::format
