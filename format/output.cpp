// Appending sections through a small buffer; see output.h.
#include "format/output.h"

#include <algorithm>

namespace stasis::format {

namespace {

constexpr size_t kGatherBytes = 256U << 10; // a larger write is not gathered

} // namespace

void Output::write(const void *data, size_t size_bytes) {
    const auto *bytes = static_cast<const uint8_t *>(data);
    next_ += size_bytes;
    if (pending_.size() + size_bytes > kGatherBytes) {
        flush();
    }
    if (size_bytes >= kGatherBytes) {
        sink_.write(sink_.user, bytes, size_bytes);
    } else {
        pending_.insert(pending_.end(), bytes, bytes + size_bytes);
    }
}

void Output::flush() {
    if (!pending_.empty()) {
        sink_.write(sink_.user, pending_.data(), pending_.size());
        pending_.clear();
    }
}

void Output::pad() {
    const uint8_t padding[kAlignment] = {};
    write(padding, align_up(next_) - next_);
}

uint64_t Output::append(const Frame &frame, const void *stored) {
    const uint64_t offset = next_;
    const FrameBytes bytes = encode_frame(frame);
    write(bytes.data(), bytes.size());
    // Progress counts raw bytes of runs and states. While a compressed run is written it does not
    // advance.
    const uint64_t done = done_;
    const bool counts = frame.kind == SectionKind::run || frame.kind == SectionKind::recurrent;
    for (uint64_t at = 0; at < frame.stored_bytes; at += kChunkBytes) {
        const auto size =
            static_cast<size_t>(std::min<uint64_t>(frame.stored_bytes - at, kChunkBytes));
        report();
        write(static_cast<const uint8_t *>(stored) + at, size);
        done_ += counts && frame.codec == Codec::raw ? size : 0;
    }
    done_ = counts ? done + frame.raw_bytes : done;
    pad();
    return offset;
}

void Output::cut() {
    flush();
    if (sink_.cut != nullptr) {
        sink_.cut(sink_.user);
    }
}

uint64_t Output::append_lent(const Frame &frame, uint64_t lent) {
    const uint64_t offset = next_;
    const FrameBytes bytes = encode_frame(frame);
    write(bytes.data(), bytes.size());
    flush();
    sink_.lend(sink_.user, lent, frame.stored_bytes);
    next_ += frame.stored_bytes;
    pad();
    return offset;
}

uint64_t Output::append(SectionKind kind, const void *data, uint64_t bytes) {
    return append(Frame{kind, Codec::raw, bytes, bytes, checksum(data, bytes), sequence_}, data);
}

SectionRef Output::put(SectionKind kind, const void *data, uint64_t bytes, const SectionRef &old) {
    if (bytes == 0) {
        return {};
    }
    const Digest digest = Sha256().bytes(data, bytes).finish();
    if (old.digest == digest && old.bytes == bytes) {
        return old;
    }
    return {append(kind, data, bytes), bytes, digest};
}

} // namespace stasis::format
