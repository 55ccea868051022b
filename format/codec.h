// The stored form of a run's numbers (FORMAT.md, "Codecs"): raw, or as byte planes that zstd
// compresses. A coded run is cut into frames of whole rows, which any threads can code
// independently. The only file that uses libzstd. Must not know files or threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "format/planes.h"

namespace stasis::format {

enum class Codec : uint32_t { raw = 0, zstd = 1 };

// Returns the number of frames of a coded run, and the count of its numbers before frame `index`.
size_t frame_count(const RunShape &shape);
size_t numbers_before(const RunShape &shape, size_t index);
// Returns the bytes that a run may need while it is being encoded: its raw bytes and a few more.
size_t encoded_bound(const RunShape &shape);

// Codes frames. Thread-safe. Keeps zstd's contexts for the next frame, so one object should serve a
// whole save or load.
class FrameCoder {
  public:
    FrameCoder();
    ~FrameCoder();
    // Writes frame `index` of the run to its place in `run`, which has encoded_bound(shape) bytes.
    void encode(const RunShape &shape, size_t index, const uint16_t *numbers, uint8_t *run) {
        encode_frame(shape, index, numbers + numbers_before(shape, index), run);
    }
    // Writes frame `index` to its place in `numbers`, which has shape.numbers() elements. Throws
    // Error(corrupt) if the frame is not as it was written, or if the run's size is not the sum of
    // its frames. Any contents of `run` are safe to decode.
    void decode(const RunShape &shape, size_t index, const uint8_t *run, size_t run_bytes,
                uint16_t *numbers) {
        decode_frame(shape, index, run, run_bytes, numbers + numbers_before(shape, index));
    }
    // The same with the numbers of the frame alone.
    void encode_frame(const RunShape &shape, size_t index, const uint16_t *numbers, uint8_t *run);
    void decode_frame(const RunShape &shape, size_t index, const uint8_t *run, size_t run_bytes,
                      uint16_t *numbers);

  private:
    struct Scratch;
    std::unique_ptr<Scratch> take();
    void keep(std::unique_ptr<Scratch> scratch);

    std::mutex mutex_;
    std::vector<std::unique_ptr<Scratch>> idle_;
};

// Moves the frames together after all of them have been encoded, and returns the bytes of the run.
// If these are no fewer than shape.bytes(), the run should be stored raw.
size_t close_run(const RunShape &shape, uint8_t *run);

} // namespace stasis::format
