// Frames of byte planes; see codec.h, and FORMAT.md, "Codecs", for the order of their parts.
#include "format/codec.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

#include "format/checksum.h"
#include "format/state/error.h"

namespace stasis::format {
namespace {

// Numbers in a frame, unless a row has more: as many exponents as fill one block of zstd.
constexpr size_t kFrameNumbers = size_t{1} << 17;
// With fewer slots, centres cost more than they save on exponents.
constexpr size_t kCentredSlots = 16;
// zstd's literalCompressionMode: 0 by the level, 1 always.
constexpr ZSTD_cParameter kLiteralMode = ZSTD_c_experimentalParam5;

// An entry of the table at the beginning of a run, one for each frame: the stored bytes of the
// frame's planes, in their order, and the low half of XXH3-128's low half over these bytes. The
// checksum covers bits that zstd ignores.
struct Entry {
    uint32_t centres = 0; // 0: not centred
    uint32_t exponents = 0;
    uint32_t mantissas = 0;
    uint32_t checksum = 0;
    uint64_t bytes() const { return uint64_t{centres} + exponents + mantissas; }
};
static_assert(sizeof(Entry) == 16);

Entry read_entry(const uint8_t *run, size_t index) {
    Entry entry;
    std::memcpy(&entry, run + index * sizeof entry, sizeof entry);
    return entry;
}

uint32_t stored_checksum(const uint8_t *stored, size_t size_bytes) {
    return static_cast<uint32_t>(checksum(stored, size_bytes).low);
}

size_t rows_per_frame(const RunShape &shape) {
    return std::max<size_t>(kFrameNumbers / (shape.slots * shape.channels), 1);
}

// Returns the shape of frame `index`; the last frame has the rows that are left.
RunShape frame_shape(const RunShape &shape, size_t index) {
    assert(index < frame_count(shape));
    const size_t rows = rows_per_frame(shape);
    return {std::min(rows, shape.rows - index * rows), shape.slots, shape.channels};
}

size_t centre_count(const RunShape &frame) {
    return frame.rows * frame.channels;
}

// Returns the offset at which encode puts frame `index`: all frames before it may be as large as
// possible, so that threads can write theirs independently.
size_t place(const RunShape &shape, size_t index) {
    const RunShape before{index * rows_per_frame(shape), shape.slots, shape.channels};
    return frame_count(shape) * sizeof(Entry) + centre_count(before) + before.bytes();
}

// Returns the offset of frame `index` in a closed run. Throws Error(corrupt) for a table that does
// not fit the run.
uint64_t frame_begin(const RunShape &shape, size_t index, const uint8_t *run, size_t run_bytes) {
    const size_t frames = frame_count(shape);
    if (run_bytes / sizeof(Entry) < frames) {
        fail(Status::corrupt, "coded run: %zu bytes, too few for a table of %zu frames", run_bytes,
             frames);
    }
    uint64_t begin = 0;
    uint64_t end = frames * sizeof(Entry);
    for (size_t i = 0; i < frames; ++i) {
        begin = i == index ? end : begin;
        end += read_entry(run, i).bytes();
    }
    if (end != run_bytes) {
        fail(Status::corrupt, "coded run: %zu bytes, its frames end at %llu", run_bytes,
             static_cast<Number>(end));
    }
    return begin;
}

// Returns the context, or throws std::bad_alloc: zstd returns null if an allocation fails.
template <class Context> Context *created(Context *context) {
    return context != nullptr ? context : throw std::bad_alloc();
}

} // namespace

// Memory that a thread uses while it codes a frame.
struct FrameCoder::Scratch {
    std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> compressor{nullptr, ZSTD_freeCCtx};
    std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> decompressor{nullptr, ZSTD_freeDCtx};
    std::vector<uint8_t> centres, exponents, mantissas;

    void fit(const RunShape &frame) {
        centres.resize(centre_count(frame));
        exponents.resize(frame.numbers());
        mantissas.resize(frame.numbers());
    }
    void begin();
    void set_for_exponents();
    void set_for_mantissas();
    uint32_t compress(const std::vector<uint8_t> &plane, uint8_t *stored);
    void decompress(const char *name, const uint8_t *stored, size_t stored_bytes,
                    std::vector<uint8_t> &plane);
};

// A compressor that failed, as it does on planes that do not become smaller, accepts no parameters
// until it is reset.
void FrameCoder::Scratch::begin() {
    if (compressor == nullptr) {
        compressor.reset(created(ZSTD_createCCtx()));
    }
    ZSTD_CCtx_reset(compressor.get(), ZSTD_reset_session_only);
}

// The exponents of a channel are close to each other, so an entropy code of their frequencies saves
// most. A small table of long matches, searched at two places of nine, finds what repeated tokens
// leave in the first layer. A negative level leaves literals uncoded unless kLiteralMode is set;
// that parameter is experimental, so a library may lack it, and the level that always codes
// literals is slower.
void FrameCoder::Scratch::set_for_exponents() {
    begin();
    const size_t told = ZSTD_CCtx_setParameter(compressor.get(), kLiteralMode, 1);
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_compressionLevel, ZSTD_isError(told) ? 1 : -8);
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_minMatch, 7);
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_hashLog, 7);
}

// Mantissas are close to random: only repeats can be compressed, and a negative level searches for
// nothing else.
void FrameCoder::Scratch::set_for_mantissas() {
    begin();
    ZSTD_CCtx_setParameter(compressor.get(), kLiteralMode, 0);
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_compressionLevel, -1);
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_minMatch, 0); // the level's own
    ZSTD_CCtx_setParameter(compressor.get(), ZSTD_c_hashLog, 0);
}

// A plane that does not become smaller is stored raw.
uint32_t FrameCoder::Scratch::compress(const std::vector<uint8_t> &plane, uint8_t *stored) {
    const size_t written =
        ZSTD_compress2(compressor.get(), stored, plane.size() - 1, plane.data(), plane.size());
    if (!ZSTD_isError(written)) {
        return static_cast<uint32_t>(written);
    }
    if (ZSTD_getErrorCode(written) == ZSTD_error_memory_allocation) {
        throw std::bad_alloc();
    }
    std::memcpy(stored, plane.data(), plane.size());
    return static_cast<uint32_t>(plane.size());
}

void FrameCoder::Scratch::decompress(const char *name, const uint8_t *stored, size_t stored_bytes,
                                     std::vector<uint8_t> &plane) {
    if (stored_bytes == plane.size()) {
        std::memcpy(plane.data(), stored, stored_bytes);
        return;
    }
    if (decompressor == nullptr) {
        decompressor.reset(created(ZSTD_createDCtx()));
    }
    const size_t got =
        ZSTD_decompressDCtx(decompressor.get(), plane.data(), plane.size(), stored, stored_bytes);
    if (ZSTD_isError(got)) {
        fail(Status::corrupt, "%s: %zu bytes in %zu stored ones: %s", name, plane.size(),
             stored_bytes, ZSTD_getErrorName(got));
    }
    if (got != plane.size()) {
        fail(Status::corrupt, "%s: %zu bytes, expected %zu", name, got, plane.size());
    }
}

FrameCoder::FrameCoder() = default;
FrameCoder::~FrameCoder() = default;

std::unique_ptr<FrameCoder::Scratch> FrameCoder::take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
        return std::make_unique<Scratch>();
    }
    std::unique_ptr<Scratch> scratch = std::move(idle_.back());
    idle_.pop_back();
    return scratch;
}

void FrameCoder::keep(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(scratch));
}

size_t frame_count(const RunShape &shape) {
    return (shape.rows + rows_per_frame(shape) - 1) / rows_per_frame(shape);
}

size_t numbers_before(const RunShape &shape, size_t index) {
    return index * rows_per_frame(shape) * shape.slots * shape.channels;
}

size_t encoded_bound(const RunShape &shape) {
    return frame_count(shape) * sizeof(Entry) + centre_count(shape) + shape.bytes();
}

// Every frame is encoded into a place of its own; close_run moves them together.
void FrameCoder::encode_frame(const RunShape &shape, size_t index, const uint16_t *numbers,
                              uint8_t *run) {
    // Split the numbers into planes.
    const RunShape frame = frame_shape(shape, index);
    std::unique_ptr<Scratch> scratch = take();
    scratch->fit(frame);
    split_planes(numbers, frame.numbers(), scratch->exponents.data(), scratch->mantissas.data());

    // Compress the planes: centres and exponents, then mantissas.
    uint8_t *const stored = run + place(shape, index);
    Entry entry;
    scratch->set_for_exponents();
    if (frame.slots >= kCentredSlots) {
        subtract_centres(frame, scratch->exponents.data(), scratch->centres.data());
        entry.centres = scratch->compress(scratch->centres, stored);
    }
    entry.exponents = scratch->compress(scratch->exponents, stored + entry.bytes());
    scratch->set_for_mantissas();
    entry.mantissas = scratch->compress(scratch->mantissas, stored + entry.bytes());
    // The entry is written last: it holds the sizes.
    entry.checksum = stored_checksum(stored, entry.bytes());
    std::memcpy(run + index * sizeof entry, &entry, sizeof entry);
    keep(std::move(scratch));
}

size_t close_run(const RunShape &shape, uint8_t *run) {
    const size_t frames = frame_count(shape);
    size_t end = frames * sizeof(Entry);
    for (size_t i = 0; i < frames; ++i) {
        const size_t bytes = read_entry(run, i).bytes();
        std::memmove(run + end, run + place(shape, i), bytes);
        end += bytes;
    }
    return end;
}

void FrameCoder::decode_frame(const RunShape &shape, size_t index, const uint8_t *run,
                              size_t run_bytes, uint16_t *numbers) {
    // Locate the frame and check its bytes before zstd reads them.
    const uint8_t *stored = run + frame_begin(shape, index, run, run_bytes);
    const Entry entry = read_entry(run, index);
    const RunShape frame = frame_shape(shape, index);
    if (stored_checksum(stored, entry.bytes()) != entry.checksum) {
        fail(Status::corrupt, "frame %zu: its checksum differs", index);
    }

    // Decompress the planes and join them.
    std::unique_ptr<Scratch> scratch = take();
    scratch->fit(frame);
    scratch->decompress("exponents", stored + entry.centres, entry.exponents, scratch->exponents);
    if (entry.centres > 0) {
        scratch->decompress("centres", stored, entry.centres, scratch->centres);
        add_centres(frame, scratch->centres.data(), scratch->exponents.data());
    }
    scratch->decompress("mantissas", stored + entry.centres + entry.exponents, entry.mantissas,
                        scratch->mantissas);
    merge_planes(scratch->exponents.data(), scratch->mantissas.data(), frame.numbers(), numbers);
    keep(std::move(scratch));
}

} // namespace stasis::format
