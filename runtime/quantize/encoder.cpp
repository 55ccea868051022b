// Encodes rows; see encoder.h.
#include "runtime/quantize/encoder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "format/state/error.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
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

// Reports whether the checkpoint has blocks, which are copied.
bool in_blocks(const EncodedSource &source) {
    return source.tensor != nullptr && quant_of(source.tensor->type).has_value();
}

uint64_t stored_row_bytes(const EncodedSource &source, uint64_t columns) {
    return in_blocks(source) ? kernels::quant_row_bytes(*quant_of(source.tensor->type), columns)
                             : columns * value_bytes(*source.tensor);
}

// Loads a row of the output as floats. `stored` is the row as the checkpoint has it, null for
// values of the source's own.
void load_row(const EncodedSource &source, const uint8_t *stored, uint64_t row, uint64_t columns,
              float *values) {
    if (source.tensor == nullptr) {
        std::copy_n(source.own + row * columns, columns, values);
        return;
    }
    switch (source.tensor->type) {
    case DataType::f16:
        return load<uint16_t, f16_to_f32>(stored, columns, values);
    case DataType::f32:
        return load<float, as_is>(stored, columns, values);
    default: // not blocks
        return load<uint16_t, widen_bf16>(stored, columns, values);
    }
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

float changed(EncodedValue kind, float value) {
    switch (kind) {
    case EncodedValue::as_stored:
        return value;
    case EncodedValue::plus_one:
        return 1.0F + value;
    case EncodedValue::rate:
        return -kernels::exp_f32(value);
    }
    return value;
}

// Prepares a row of the output as floats. Returns the index in the tensor of its first value that
// cannot be written, or kNone.
uint64_t prepare_row(const EncodedSource &source, const EncodedShape &shape, uint64_t row,
                     const uint8_t *stored, float *values) {
    load_row(source, stored, row, shape.columns, values);
    const float limit = limit_of(shape.type);
    bool good = true;
    for (uint64_t i = 0; i < shape.columns; ++i) {
        values[i] = changed(source.value, values[i]);
        good &= std::fabs(values[i]) < limit; // false for NaN
    }
    // An infinite or NaN value is rare, so it is searched for only if there is one.
    uint64_t bad = kNone;
    for (uint64_t i = 0; !good && i < shape.columns; ++i) {
        if (!(std::fabs(values[i]) < limit)) {
            bad = std::min(bad, source.rows.source(row) * shape.columns + source.columns.source(i));
        }
    }
    return bad;
}

// Reports whether rows are copied bit for bit, with zeros of either sign and denormals.
bool is_copy(const EncodedSource &source, GgufType type) {
    return source.tensor != nullptr && source.value == EncodedValue::as_stored &&
           ((type == GgufType::bf16 && source.tensor->type == DataType::bf16) ||
            (type == GgufType::f16 && source.tensor->type == DataType::f16));
}

void keep_least(std::atomic<uint64_t> &least, uint64_t value) {
    uint64_t now = least.load();
    while (value < now && !least.compare_exchange_weak(now, value)) {
    }
}

} // namespace

uint64_t EncodedOrder::source(uint64_t index) const {
    if (pairs_of != 0) {
        const uint64_t in_head = index % pairs_of;
        return index - in_head + in_head % 2 * (pairs_of / 2) + in_head / 2;
    }
    if (unit == 0 || index < before) {
        return index;
    }
    const uint64_t at = (index - before) / unit, within = (index - before) % unit;
    return before + (at % keys * each + at / keys) * unit + within;
}

Encoder::Encoder(Threads &threads) : threads_(threads), values_(threads.count()) {}

uint64_t Encoder::row_bytes(const EncodedShape &shape) {
    const GgufBlock block = gguf_block(shape.type);
    return shape.columns / block.elements * block.size_bytes;
}

uint64_t Encoder::rows_at_once(const EncodedShape &shape) {
    return std::max<uint64_t>(1, kValuesAtOnce / std::max<uint64_t>(1, shape.columns));
}

void Encoder::read_rows(const EncodedSource &source, const EncodedShape &shape, uint64_t begin,
                        uint64_t end) {
    const Tensor &tensor = *source.tensor;
    const uint64_t size = value_bytes(tensor), bytes = stored_row_bytes(source, shape.columns);
    stored_.resize((end - begin) * bytes);
    // Rows that follow each other in the checkpoint too are read by one call.
    for (uint64_t row = begin; row < end;) {
        const uint64_t from = source.rows.source(row);
        uint64_t count = 1;
        while (row + count < end && source.rows.source(row + count) == from + count) {
            ++count;
        }
        tensor.read(stored_.data() + (row - begin) * bytes, count * bytes, from * bytes);
        row += count;
    }
    if (!source.columns.changes()) {
        return;
    }
    std::vector<uint64_t> order(shape.columns);
    for (uint64_t i = 0; i < shape.columns; ++i) {
        order[i] = source.columns.source(i);
    }
    for (uint64_t row = 0; row < end - begin; ++row) {
        uint8_t *to = stored_.data() + row * bytes;
        row_.assign(to, to + bytes);
        for (uint64_t i = 0; i < shape.columns; ++i) {
            std::memcpy(to + i * size, row_.data() + order[i] * size, size);
        }
    }
}

const std::vector<uint8_t> &Encoder::encode(const EncodedSource &source, const EncodedShape &shape,
                                            uint64_t begin, uint64_t end) {
    const uint64_t bytes = row_bytes(shape);
    for (std::vector<float> &row : values_) {
        row.resize(shape.columns);
    }
    bytes_.resize((end - begin) * bytes);
    const bool copy = is_copy(source, shape.type);
    uint64_t stored_bytes = 0; // of a row
    if (source.tensor != nullptr) {
        stored_bytes = stored_row_bytes(source, shape.columns);
        read_rows(source, shape, begin, end);
    }

    // Each thread prepares and encodes rows of its own; the first bad value wins.
    std::atomic<uint64_t> bad{kNone};
    threads_.run(end - begin, 8, [&](size_t first, size_t last, size_t thread) {
        const kernels::FloatEnvironment environment;
        float *values = values_[thread].data();
        for (size_t row = first; row < last; ++row) {
            const uint8_t *stored = stored_.data() + row * stored_bytes;
            if (in_blocks(source)) {
                std::memcpy(bytes_.data() + row * bytes, stored, bytes);
                continue;
            }
            const uint64_t found = prepare_row(source, shape, begin + row, stored, values);
            keep_least(bad, found);
            if (copy) {
                std::memcpy(bytes_.data() + row * bytes, stored, bytes);
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
