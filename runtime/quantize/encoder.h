// Rows of a tensor as a checkpoint stores them to rows of a type of GGUF, split over threads.
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
    // Rows (of a vector: values) of a head of so many, whose halves are to lie side by side in
    // pairs: 0, n/2, 1, n/2 + 1, ... 0: rows stay as they are.
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
    // Rows for one call: some 16 MB of floats.
    static uint64_t rows_at_once(const EncodedShape &shape);

    // The bytes of rows `begin` to `end`, valid until the next call. Throws Error(nonfinite): the
    // first value that is not finite, or too large for the type, is named; and what reading throws.
    const std::vector<uint8_t> &encode(const EncodedSource &source, const EncodedShape &shape,
                                       uint64_t begin, uint64_t end);

  private:
    Threads &threads_;
    std::vector<std::vector<float>> values_; // a row for each thread
    std::vector<uint8_t> stored_;            // the rows that are read together
    std::vector<uint8_t> bytes_;
};

} // namespace stasis
