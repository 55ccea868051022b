// Encodes rows; see encoder.h.
#include "runtime/quantize/encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "format/state/error.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/environment.h"
#include "runtime/model/f16.h"
#include "runtime/model/gguf/blocks.h"
#include "runtime/model/model_file.h"

namespace stasis {

namespace {

constexpr uint64_t kValuesAtOnce = 4U << 20;
constexpr uint64_t kNone = UINT64_MAX;

// Stored values may be unaligned, so they are copied.
template <typename Bits, float (*widen)(Bits)>
void load(const uint8_t *data, uint64_t count, float *values) {
    for (uint64_t i = 0; i < count; ++i) {
        Bits bits;
        std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
        values[i] = widen(bits);
    }
}

float as_is(float value) {
    return value;
}

float widen_bf16(uint16_t bits) {
    return kernels::bf16_to_f32(bits);
}

uint64_t value_bytes(const Tensor &tensor) {
    return tensor.type == DataType::f32 ? 4 : 2;
}

// Loads values [first, first + count) of the source as floats. `stored` begins at index
// `first_stored`.
void load_values(const EncodedSource &source, const uint8_t *stored, uint64_t first_stored,
                 uint64_t first, uint64_t count, float *values) {
    if (source.tensor == nullptr) {
        std::copy_n(source.own + first, count, values);
        return;
    }
    const uint8_t *data = stored + (first - first_stored) * value_bytes(*source.tensor);
    switch (source.tensor->type) {
    case DataType::f16:
        return load<uint16_t, f16_to_f32>(data, count, values);
    case DataType::f32:
        return load<float, as_is>(data, count, values);
    default: // find_tensors accepts no blocks
        return load<uint16_t, widen_bf16>(data, count, values);
    }
}

// Returns the source row of row `row` of the output.
uint64_t source_row(uint64_t row, uint64_t pairs_of) {
    if (pairs_of == 0) {
        return row;
    }
    const uint64_t in_head = row % pairs_of;
    return row - in_head + in_head % 2 * (pairs_of / 2) + in_head / 2;
}

// Returns the least magnitude that rounds to infinity in the type, and so counts as infinite.
float limit_of(GgufType type) {
    switch (type) {
    case GgufType::f32:
        return HUGE_VALF;
    case GgufType::bf16:
        return 0x1.FFp127F;
    default:
        return kF16Overflow;
    }
}

// Prepares one row as floats, in the output's order, in the first half of `room`; `stored` are the
// rows from `first_row` on. Returns the index in the tensor of its first value that cannot be
// written, or kNone.
uint64_t prepare_row(const EncodedSource &source, const EncodedShape &shape, uint64_t row,
                     const uint8_t *stored, uint64_t first_row, float *room) {
    const bool permuted_vector = shape.rows == 1 && source.pairs_of != 0;
    const uint64_t from = permuted_vector ? 0 : source_row(row, source.pairs_of);
    float *values = permuted_vector ? room + shape.columns : room;
    load_values(source, stored, first_row * shape.columns, from * shape.columns, shape.columns,
                values);
    const float limit = limit_of(shape.type);
    bool good = true;
    for (uint64_t i = 0; i < shape.columns; ++i) {
        values[i] = source.plus_one ? 1.0F + values[i] : values[i];
        good &= std::fabs(values[i]) < limit; // false for NaN
    }
    // An infinite or NaN value is rare, so it is searched for only if there is one.
    if (!good) {
        const float *bad = std::find_if(values, values + shape.columns,
                                        [&](float value) { return !(std::fabs(value) < limit); });
        return from * shape.columns + static_cast<uint64_t>(bad - values);
    }
    for (uint64_t i = 0; permuted_vector && i < shape.columns; ++i) {
        room[i] = values[source_row(i, source.pairs_of)];
    }
    return kNone;
}

// Reports whether rows are copied bit for bit, with zeros of either sign and denormals.
bool is_copy(const EncodedSource &source, GgufType type) {
    return source.tensor != nullptr &&
           ((type == GgufType::bf16 && source.tensor->type == DataType::bf16) ||
            (type == GgufType::f16 && source.tensor->type == DataType::f16));
}

void keep_least(std::atomic<uint64_t> &least, uint64_t value) {
    uint64_t now = least.load();
    while (value < now && !least.compare_exchange_weak(now, value)) {
    }
}

} // namespace

Encoder::Encoder(Threads &threads) : threads_(threads), values_(threads.count()) {}

uint64_t Encoder::row_bytes(const EncodedShape &shape) {
    const GgufBlock block = gguf_block(shape.type);
    return shape.columns / block.elements * block.size_bytes;
}

uint64_t Encoder::rows_at_once(const EncodedShape &shape) {
    return std::max<uint64_t>(1, kValuesAtOnce / std::max<uint64_t>(1, shape.columns));
}

const std::vector<uint8_t> &Encoder::encode(const EncodedSource &source, const EncodedShape &shape,
                                            uint64_t begin, uint64_t end) {
    const uint64_t bytes = row_bytes(shape);
    for (std::vector<float> &row : values_) {
        row.resize((shape.rows == 1 ? 2 : 1) * shape.columns);
    }
    bytes_.resize((end - begin) * bytes);
    const bool copy = is_copy(source, shape.type);
    // Rows of a head are read together, because they exchange places.
    const uint64_t together = shape.rows > 1 && source.pairs_of != 0 ? source.pairs_of : 1;
    const uint64_t first_row = begin / together * together;
    const uint64_t last_row = std::min(shape.rows, (end + together - 1) / together * together);
    if (source.tensor != nullptr) {
        const uint64_t stored_bytes = shape.columns * value_bytes(*source.tensor);
        stored_.resize((last_row - first_row) * stored_bytes);
        source.tensor->source->read(stored_.data(), stored_.size(),
                                    source.tensor->offset_bytes + first_row * stored_bytes);
    }

    // Each thread prepares and encodes rows of its own; the first bad value wins.
    std::atomic<uint64_t> bad{kNone};
    threads_.run(end - begin, 8, [&](size_t first, size_t last, size_t thread) {
        const kernels::FloatEnvironment environment;
        float *values = values_[thread].data();
        for (size_t row = first; row < last; ++row) {
            const uint64_t found =
                prepare_row(source, shape, begin + row, stored_.data(), first_row, values);
            keep_least(bad, found);
            if (copy) {
                const uint64_t from = source_row(begin + row, source.pairs_of) - first_row;
                std::memcpy(bytes_.data() + row * bytes, stored_.data() + from * bytes, bytes);
            } else if (found == kNone) {
                stasis::encode(shape.type, values, shape.columns, bytes_.data() + row * bytes);
            }
        }
    });
    if (bad != kNone) {
        fail(Status::nonfinite,
             "tensor %s in %s: the value at index %llu is not finite, at least not as %s",
             source.name.c_str(), source.tensor == nullptr ? "" : source.tensor->file.c_str(),
             static_cast<Number>(bad.load()), gguf_type_name(shape.type).c_str());
    }
    return bytes_;
}

} // namespace stasis
