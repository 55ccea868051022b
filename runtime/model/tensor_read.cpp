// Reads the values of a tensor, row after row, in whatever order its file has them; see
// safetensors.h.
#include <cassert>
#include <cstring>

#include "runtime/model/model_file.h"
#include "runtime/model/mxfp4.h"
#include "runtime/model/safetensors.h"

namespace stasis {

namespace {

// Copies values [first, first + count) of the rows one after the other. In the file, those of a
// column lie nearer to each other than those of a row, and are read together.
template <typename Value>
void gather(const Tensor &tensor, uint64_t first, uint64_t count, Value *to) {
    const uint64_t columns = tensor.shape.size() == 1 ? 1 : tensor.shape[1];
    const uint64_t row = first / columns, last = (first + count - 1) / columns;
    std::vector<Value> near((last - row) * tensor.row_step + 1);
    for (uint64_t column = 0; column < columns; ++column) {
        const uint64_t at = row * tensor.row_step + column * tensor.column_step;
        tensor.source->read(near.data(), near.size() * sizeof(Value),
                            tensor.offset_bytes + at * sizeof(Value));
        for (uint64_t i = row; i <= last; ++i) {
            const uint64_t index = i * columns + column - first;
            if (index < count) { // else before the first value, or after the last
                to[index] = near[(i - row) * tensor.row_step];
            }
        }
    }
}

// Copies bytes of the rows' blocks, which are composed of what the file has apart.
void compose(const Tensor &tensor, uint64_t from_bytes, size_t count_bytes, uint8_t *to) {
    constexpr size_t kBits = 16; // of a block, without its scale
    const uint64_t blocks = tensor.shape[1] / kernels::quant_block(kernels::Quant::mxfp4).elements;
    const size_t row_bytes = kernels::quant_row_bytes(kernels::Quant::mxfp4, tensor.shape[1]);
    const uint64_t row = from_bytes / row_bytes, last = (from_bytes + count_bytes - 1) / row_bytes;
    // The rows, and those between them.
    const uint64_t read = ((last - row) * tensor.row_step + 1) * blocks;
    const uint64_t first = row * tensor.row_step * blocks;
    std::vector<uint8_t> bits(read * kBits), scales(read), whole((last - row + 1) * row_bytes);
    tensor.source->read(bits.data(), bits.size(), tensor.offset_bytes + first * kBits);
    tensor.scales->read(scales.data(), scales.size(), tensor.scales_bytes + first);
    for (uint64_t i = 0; i <= last - row; ++i) {
        const uint64_t at = i * tensor.row_step * blocks;
        pack_mxfp4(bits.data() + at * kBits, scales.data() + at, blocks,
                   whole.data() + i * row_bytes);
    }
    std::memcpy(to, whole.data() + (from_bytes - row * row_bytes), count_bytes);
}

} // namespace

void Tensor::read(void *to, size_t count_bytes, uint64_t from_bytes) const {
    assert(from_bytes + count_bytes <= size_bytes);
    if (row_step == 0) {
        source->read(to, count_bytes, offset_bytes + from_bytes);
    } else if (scales != nullptr && count_bytes != 0) {
        compose(*this, from_bytes, count_bytes, static_cast<uint8_t *>(to));
    } else if (count_bytes != 0) {
        const size_t value_bytes = type == DataType::f32 ? 4 : 2;
        assert(!quant_of(type) && from_bytes % value_bytes == 0 && count_bytes % value_bytes == 0);
        const uint64_t first = from_bytes / value_bytes, count = count_bytes / value_bytes;
        type == DataType::f32 ? gather(*this, first, count, static_cast<uint32_t *>(to))
                              : gather(*this, first, count, static_cast<uint16_t *>(to));
    }
}

const uint8_t *Tensor::populated(size_t count_bytes, uint64_t from_bytes) const {
    return row_step == 0 ? source->populated(count_bytes, offset_bytes + from_bytes) : nullptr;
}

} // namespace stasis
