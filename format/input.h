// The input of a reader: an open file, or bytes in memory that were read from a stream. Reads whole
// sections and checks them (FORMAT.md, "Sections"). Must not know their contents.
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

// Bytes that lie elsewhere, piece by piece (store/ranges.h). Thread-safe.
struct Ranges {
    virtual ~Ranges() = default;
    virtual const std::string &name() const = 0; // for messages
    virtual uint64_t size() const = 0;
    virtual void read(void *data, size_t size_bytes, uint64_t offset) const = 0;
};

class Input {
  public:
    explicit Input(File file) : file_(std::move(file)) {}
    explicit Input(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}
    explicit Input(std::shared_ptr<const Ranges> ranges) : ranges_(std::move(ranges)) {}

    const std::string &path() const; // for messages
    const File *file() const;        // null: the bytes are in memory, or in a store
    uint64_t size() const;           // all bytes, committed or not
    void read(void *data, size_t size_bytes, uint64_t offset) const; // Error(corrupt) at the end

  private:
    std::optional<File> file_;
    std::vector<uint8_t> bytes_;
    std::shared_ptr<const Ranges> ranges_;
};

// Calls `visit` for each section in the order of the file, as long as sections end before `end` and
// it returns true. Returns the offset of the first section that was not passed. Throws
// Error(corrupt) for a wrong frame.
uint64_t walk_sections(const Input &input, uint64_t end,
                       const std::function<bool(uint64_t offset, const Frame &frame)> &visit);

// An input up to the end of a committed state; no byte after the end is read.
struct Committed {
    const Input &input;
    uint64_t end = 0;
    uint64_t sequence = 0; // of the commit
    Watch watch = {};      // checked between pieces of a section; reports 0 of 0

    void read(void *data, size_t size_bytes, uint64_t offset) const;
    Digest digest(const std::vector<uint8_t> &bytes) const; // SHA-256

    // Returns the frame of a section of this kind that ends before `end`, after checking that its
    // padding is zero. Throws Error(corrupt).
    Frame read_frame(uint64_t offset, SectionKind kind) const;
    // Returns the bytes of a raw section after checking frame, checksum and digest. Throws
    // Error(corrupt).
    std::vector<uint8_t> read_section(const SectionRef &ref, SectionKind kind) const;
    // The same without a digest, for the manifest, whose digest is the root digest.
    std::vector<uint8_t> read_section(uint64_t offset, uint64_t bytes, SectionKind kind) const;
};

} // namespace stasis::format
