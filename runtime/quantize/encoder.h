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

// The order in which a file has rows, or the values of a row: the index in the checkpoint of each.
struct EncodedOrder {
    // Not 0: the halves of a head of so many are interleaved in pairs: 0, n/2, 1, n/2 + 1, ...
    uint64_t pairs_of = 0;
    // Not 0: after the first `before`, units of so many exchange places. Those that share a key
    // head, `each` of them, follow each other in the checkpoint; in the file they are `keys` apart.
    uint64_t unit = 0, before = 0, keys = 0, each = 0;

    bool changes() const { return pairs_of != 0 || unit != 0; }
    uint64_t source(uint64_t index) const;
};

// What the file has in place of a value w.
enum class EncodedValue { as_stored, plus_one, rate }; // w, 1 + w, -exp(w)

struct EncodedSource {
    const Tensor *tensor = nullptr; // null: values of `own`
    std::string name = {};          // for messages
    const float *own = nullptr;
    EncodedValue value = EncodedValue::as_stored;
    EncodedOrder rows = {}, columns = {};
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
    // Reads rows [begin, end) of the output into `stored_`, in the output's order of rows and
    // values.
    void read_rows(const EncodedSource &source, const EncodedShape &shape, uint64_t begin,
                   uint64_t end);

    Threads &threads_;
    std::vector<std::vector<float>> values_; // one row for each thread
    std::vector<uint8_t> stored_, row_;
    std::vector<uint8_t> bytes_;
};

} // namespace stasis
