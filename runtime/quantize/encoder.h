// Encodes rows of a tensor, as a checkpoint stores them, to a GGUF type, split over threads. Knows
// neither files nor names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/gguf/types.h"
#include "runtime/model/safetensors.h"

namespace stasis {

struct EncodedSource {
    const Tensor *tensor = nullptr; // null: values of `own`
    std::string name;               // for messages
    const float *own = nullptr;
    bool plus_one = false; // 1 is added to each value
    // Rows (for a vector: values) of a head, whose halves are interleaved in pairs: 0, n/2, 1, n/2
    // + 1, ... 0: rows stay as they are.
    uint64_t pairs_of = 0;
};

struct EncodedShape {
    GgufType type = GgufType::f32;
    uint64_t rows = 0, columns = 0;
};

class Encoder {
  public:
    explicit Encoder(Threads &threads);

    static uint64_t row_bytes(const EncodedShape &shape);
    // Returns the rows for one call: some 16 MB of floats.
    static uint64_t rows_at_once(const EncodedShape &shape);

    // Returns the bytes of rows `begin` to `end`, valid until the next call. Throws
    // Error(nonfinite) naming the first value that is not finite, or too large for the type, and
    // the errors of reading.
    const std::vector<uint8_t> &encode(const EncodedSource &source, const EncodedShape &shape,
                                       uint64_t begin, uint64_t end);

  private:
    Threads &threads_;
    std::vector<std::vector<float>> values_; // one row for each thread
    std::vector<uint8_t> stored_;            // the rows that are read together
    std::vector<uint8_t> bytes_;
};

} // namespace stasis
