// How the numbers of a run are stored (FORMAT.md, "Codecs"): as they are, or as byte planes that
// zstd compresses. A coded run is cut into frames of whole rows, which can be coded on any thread,
// each without the others. The only door to libzstd. Knows neither files nor threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "format/planes.h"

namespace stasis::format {

enum class Codec : uint32_t { raw = 0, zstd = 1 };

size_t frame_count(const RunShape &shape);
// What a run can take while it is being encoded: its raw bytes and a few more.
size_t encoded_bound(const RunShape &shape);

// Codes frames, on as many threads at once as call it. Keeps zstd's contexts for the next frame, so
// one object should serve a whole save or load.
class FrameCoder {
  public:
    FrameCoder();
    ~FrameCoder();
    // Writes frame `index` of the run to its place in `run`, which has encoded_bound bytes.
    void encode(const RunShape &shape, size_t index, const uint16_t *numbers, uint8_t *run);
    // Writes frame `index` to its place in `numbers`, which has shape.numbers() of them.
    // Error(corrupt) if the frame is not as it was written or the run's size is not what its frames
    // add up to. Any `run` is safe to decode.
    void decode(const RunShape &shape, size_t index, const uint8_t *run, size_t run_bytes,
                uint16_t *numbers);

  private:
    struct Scratch;
    std::unique_ptr<Scratch> take();
    void keep(std::unique_ptr<Scratch> scratch);

    std::mutex mutex_;
    std::vector<std::unique_ptr<Scratch>> idle_;
};

// Moves the frames together, once all are encoded, and gives the bytes that the run takes. If they
// are no fewer than shape.bytes(), it is better stored raw.
size_t close_run(const RunShape &shape, uint8_t *run);

} // namespace stasis::format
