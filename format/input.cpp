// Reading from files and memory, and reading sections from either; see input.h.
#include "format/input.h"

#include <algorithm>

#include "format/state/error.h"

namespace stasis::format {

namespace {

constexpr size_t kPieceBytes = size_t{4} << 20; // a few milliseconds of reading or digesting

} // namespace

const std::string &Input::path() const {
    static const std::string stream = "stream";
    return file_ ? file_->path() : ranges_ ? ranges_->name() : stream;
}

const File *Input::file() const {
    return file_ ? &*file_ : nullptr;
}

uint64_t Input::size() const {
    return file_     ? static_cast<uint64_t>(file_->status().st_size)
           : ranges_ ? ranges_->size()
                     : bytes_.size();
}

void Input::read(void *data, size_t size_bytes, uint64_t offset) const {
    if (file_) {
        file_->read(data, size_bytes, offset);
        return;
    }
    if (ranges_) {
        ranges_->read(data, size_bytes, offset);
        return;
    }
    if (offset > bytes_.size() || size_bytes > bytes_.size() - offset) {
        fail(Status::corrupt, "the stream ends at byte %zu, in front of %zu bytes at %llu",
             bytes_.size(), size_bytes, static_cast<Number>(offset));
    }
    std::copy_n(bytes_.data() + offset, size_bytes, static_cast<uint8_t *>(data));
}

uint64_t walk_sections(const Input &input, uint64_t end,
                       const std::function<bool(uint64_t offset, const Frame &frame)> &visit) {
    uint64_t offset = kSectionsBegin;
    while (offset + kFrameBytes <= end) {
        FrameBytes bytes;
        input.read(bytes.data(), bytes.size(), offset);
        const Frame frame = decode_frame(bytes, offset);
        if (frame.stored_bytes > end - offset - kFrameBytes || !visit(offset, frame)) {
            break;
        }
        offset += section_bytes(frame.stored_bytes);
    }
    return offset;
}

void Committed::read(void *data, size_t size_bytes, uint64_t offset) const {
    for (size_t done = 0; done < size_bytes; done += kPieceBytes) {
        watch.step(0, 0);
        input.read(static_cast<uint8_t *>(data) + done, std::min(kPieceBytes, size_bytes - done),
                   offset + done);
    }
}

Digest Committed::digest(const std::vector<uint8_t> &bytes) const {
    Sha256 hash;
    for (size_t done = 0; done < bytes.size(); done += kPieceBytes) {
        watch.step(0, 0);
        hash.bytes(bytes.data() + done, std::min(kPieceBytes, bytes.size() - done));
    }
    return hash.finish();
}

Frame Committed::read_frame(uint64_t offset, SectionKind kind) const {
    const auto at = static_cast<Number>(offset);
    if (offset < kSectionsBegin || offset % kAlignment != 0 || offset > end ||
        end - offset < kFrameBytes) {
        fail(Status::corrupt, "section (%s): named at byte %llu, the state ends at %llu",
             section_name(kind), at, static_cast<Number>(end));
    }

    FrameBytes bytes;
    input.read(bytes.data(), bytes.size(), offset);
    const Frame frame = decode_frame(bytes, offset);
    if (frame.kind != kind || frame.sequence > sequence) {
        fail(Status::corrupt,
             "section at byte %llu: of kind %s and commit %llu, expected %s of %llu", at,
             section_name(frame.kind), static_cast<Number>(frame.sequence), section_name(kind),
             static_cast<Number>(sequence));
    }
    if (frame.stored_bytes > end - offset - kFrameBytes) {
        fail(Status::corrupt, "section at byte %llu (%s): %llu bytes, the state ends at %llu", at,
             section_name(kind), static_cast<Number>(frame.stored_bytes), static_cast<Number>(end));
    }
    // The padding is part of the section, so that no byte of the file can change unnoticed.
    const uint64_t data_end = offset + kFrameBytes + frame.stored_bytes;
    uint8_t padding[kAlignment] = {};
    input.read(padding, align_up(data_end) - data_end, data_end);
    if (std::any_of(std::begin(padding), std::end(padding), [](uint8_t b) { return b != 0; })) {
        fail(Status::corrupt, "padding after byte %llu is not zero", static_cast<Number>(data_end));
    }
    return frame;
}

std::vector<uint8_t> Committed::read_section(uint64_t offset, uint64_t bytes,
                                             SectionKind kind) const {
    const Frame frame = read_frame(offset, kind);
    if (frame.stored_bytes != bytes || frame.codec != Codec::raw) {
        fail(Status::corrupt, "section at byte %llu (%s): %llu bytes under codec %u, expected %llu",
             static_cast<Number>(offset), section_name(kind),
             static_cast<Number>(frame.stored_bytes), static_cast<uint32_t>(frame.codec),
             static_cast<Number>(bytes));
    }
    std::vector<uint8_t> data(bytes);
    read(data.data(), data.size(), offset + kFrameBytes);
    if (checksum(data.data(), data.size()) != frame.checksum) {
        fail(Status::corrupt, "section at byte %llu (%s): its bytes do not give its checksum",
             static_cast<Number>(offset), section_name(kind));
    }
    return data;
}

std::vector<uint8_t> Committed::read_section(const SectionRef &ref, SectionKind kind) const {
    std::vector<uint8_t> data = read_section(ref.offset, ref.bytes, kind);
    const Digest found = digest(data);
    if (found != ref.digest) {
        fail(Status::corrupt, "section at byte %llu (%s): SHA-256 is %s, the manifest says %s",
             static_cast<Number>(ref.offset), section_name(kind), to_hex(found).c_str(),
             to_hex(ref.digest).c_str());
    }
    return data;
}

} // namespace stasis::format
