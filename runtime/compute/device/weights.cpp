// Copies a model to its device; see weights.h.
#include "runtime/compute/device/weights.h"

#include <algorithm>

#include "runtime/model/rope.h"

namespace stasis {

namespace {

// Returns the bytes that the weights take in device memory, without the vectors.
uint64_t weight_bytes(const Weights &weights) {
    uint64_t bytes = 0;
    const auto count = [&](const Matrix &matrix) {
        bytes += matrix.data != nullptr
                     ? uint64_t{matrix.rows} * matrix.columns * sizeof(uint16_t)
                     : kernels::strips_bytes(matrix.quant, matrix.rows, matrix.columns);
    };
    for (const LayerWeights &layer : weights.layers) {
        for (const Matrix *matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                     &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down}) {
            count(*matrix);
        }
    }
    if (weights.wide_embeddings != nullptr) {
        bytes += uint64_t{weights.embeddings.rows} * weights.embeddings.columns * sizeof(float);
    } else if (weights.embeddings.data != weights.head.data ||
               weights.embeddings.strips != weights.head.strips) {
        count(weights.embeddings);
    }
    count(weights.head);
    return bytes;
}

} // namespace

void *DeviceModel::take(size_t size_bytes) {
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back(device_->take(size_bytes));
    return blocks_.back();
}

template <typename T> const T *DeviceModel::copied(const T *from, size_t count) {
    if (from == nullptr) {
        return nullptr;
    }
    auto *to = static_cast<T *>(take(count * sizeof(T)));
    queue_.copy(to, from, count * sizeof(T));
    return to;
}

// Copies a matrix, unless the same data was copied before.
kernels::DeviceMatrix DeviceModel::copied(const Matrix &matrix) {
    const void *from = matrix.strips != nullptr ? static_cast<const void *>(matrix.strips)
                                                : static_cast<const void *>(matrix.data);
    kernels::DeviceMatrix &there = known_[from]; // the head may share the embeddings' data
    const bool known = there.outputs != 0;
    there.outputs = matrix.rows;
    there.depth = matrix.columns;
    there.quant = matrix.quant;
    if (!known && matrix.strips != nullptr) {
        there.strips =
            copied(matrix.strips, kernels::strips_bytes(matrix.quant, matrix.rows, matrix.columns));
    } else if (!known) {
        there.w = copied(matrix.data, matrix.rows * matrix.columns);
        auto *least = static_cast<uint32_t *>(take(matrix.rows * sizeof(uint32_t)));
        device_->table->measure(queue_.get(), there.w, matrix.rows, matrix.columns, least);
        there.least = least;
    }
    kernels::DeviceMatrix result = there;
    result.bias = copied(matrix.bias, matrix.rows);
    return result;
}

kernels::DeviceMatrix DeviceModel::copied_rows(const Matrix &matrix, const uint8_t *rows) {
    constexpr size_t kStrip = kernels::kStripOutputs, kPieceBytes = size_t{4} << 20;
    const size_t row_bytes = kernels::quant_row_bytes(matrix.quant, matrix.columns);
    const size_t strip_bytes = kernels::strip_bytes(matrix.quant, matrix.columns);
    const size_t strips = (matrix.rows + kStrip - 1) / kStrip;
    const size_t most = std::max<size_t>(kPieceBytes / strip_bytes, 1);
    auto *to = static_cast<uint8_t *>(take(strips * strip_bytes));
    std::vector<uint8_t> piece(std::min(most, strips) * strip_bytes);
    for (size_t begin = 0; begin < strips; begin += most) {
        const size_t end = std::min(begin + most, strips);
        for (size_t strip = begin; strip < end; ++strip) {
            const size_t row = strip * kStrip;
            kernels::make_strip(matrix.quant, rows + row * row_bytes, row_bytes,
                                std::min(kStrip, matrix.rows - row), matrix.columns,
                                piece.data() + (strip - begin) * strip_bytes);
        }
        queue_.copy(to + begin * strip_bytes, piece.data(), (end - begin) * strip_bytes);
        queue_.finish("copying the embeddings"); // the next piece reuses the buffer
    }
    kernels::DeviceMatrix there;
    there.outputs = matrix.rows;
    there.depth = matrix.columns;
    there.strips = to;
    there.quant = matrix.quant;
    return there;
}

void DeviceModel::copy_embeddings(const Weights &weights) {
    const Matrix &from = weights.embeddings;
    if (weights.wide_embeddings != nullptr) {
        wide_embeddings = copied(weights.wide_embeddings, from.rows * from.columns);
    } else if (weights.embedding_blocks != nullptr && from.strips == nullptr) {
        embeddings = copied_rows(from, weights.embedding_blocks);
    } else {
        embeddings = copied(from);
    }
}

void DeviceModel::copy_layer(const LayerWeights &from, const Config &config) {
    DeviceLayer &to = layers.emplace_back();
    to.query = copied(from.query);
    to.key = copied(from.key);
    to.value = copied(from.value);
    to.output = copied(from.output);
    to.gate = copied(from.mlp.gate);
    to.up = copied(from.mlp.up);
    to.down = copied(from.mlp.down);
    to.attention_norm = copied(from.attention_norm, config.hidden);
    to.post_attention_norm = copied(from.post_attention_norm, config.hidden);
    to.mlp_norm = copied(from.mlp_norm, config.hidden);
    to.post_mlp_norm = copied(from.post_mlp_norm, config.hidden);
    to.query_norm = copied(from.query_norm, config.head_dim);
    to.key_norm = copied(from.key_norm, config.head_dim);
}

DeviceModel::DeviceModel(std::unique_ptr<OpenDevice> device, const Config &config,
                         const Weights &weights, const Watch &watch)
    : groups(weights.groups), device_(std::move(device)), queue_(*device_), pages_(*device_) {

    // Refuses shapes that no kernel supports, and weights that do not fit.
    const size_t group_heads = config.heads / config.kv_heads;
    if (group_heads > kernels::kDeviceGroupHeadsMax ||
        config.head_dim > kernels::kDeviceHeadDimMax) {
        fail(Status::unsupported,
             "device \"%s\": %zu query heads share a KV head of %u elements; it computes up to "
             "%zu, of up to %zu",
             device_->name.c_str(), group_heads, config.head_dim, kernels::kDeviceGroupHeadsMax,
             kernels::kDeviceHeadDimMax);
    }
    const uint64_t bytes = weight_bytes(weights);
    if (bytes > device_->info.free_bytes) {
        fail(Status::no_memory,
             "device \"%s\" (%s): the weights take %llu bytes, %llu of its %llu are free",
             device_->name.c_str(), device_->info.name, Number{bytes},
             Number{device_->info.free_bytes}, Number{device_->info.memory_bytes});
    }

    // Copies everything; one wait at the end covers all copies.
    try {
        for (const LayerWeights &layer : weights.layers) {
            watch.look(0, 0);
            copy_layer(layer, config);
        }
        copy_embeddings(weights);
        head = copied(weights.head);
        final_norm = copied(weights.final_norm, config.hidden);
        queue_.finish("copying the weights");
    } catch (...) {
        queue_.finish_quietly();
        for (void *block : blocks_) {
            device_->give_back(block);
        }
        throw;
    }
    known_.clear();
}

DeviceModel::~DeviceModel() {
    for (void *block : blocks_) {
        device_->give_back(block);
    }
}

std::vector<DeviceRope> DeviceModel::ropes(const std::vector<Rope> &ropes,
                                           const std::vector<std::vector<double>> &frequencies,
                                           uint64_t end) {
    constexpr uint64_t kFewest = 256;
    const std::lock_guard lock(mutex_);
    if (end <= rope_positions_) {
        return ropes_;
    }
    // Doubling keeps the number of copies small. Old tables stay, as recorded passes use them.
    const uint64_t positions = std::max({end, 2 * rope_positions_, kFewest});
    std::vector<DeviceRope> fresh;
    for (size_t rope = 0; rope < ropes.size(); ++rope) {
        const std::vector<double> &angles = frequencies[rope];
        const size_t half = angles.size();
        std::vector<float> cosine(positions * half), sine(positions * half);
        for (uint64_t position = 0; position < positions; ++position) {
            rope_row(angles, ropes[rope].amplitude, position, cosine.data() + position * half,
                     sine.data() + position * half);
        }
        const size_t bytes = cosine.size() * sizeof(float);
        void *there[] = {take(bytes), take(bytes)};
        queue_.copy(there[0], cosine.data(), bytes);
        queue_.copy(there[1], sine.data(), bytes);
        queue_.finish("copying RoPE tables");
        fresh.push_back({static_cast<float *>(there[0]), static_cast<float *>(there[1])});
    }
    ropes_ = std::move(fresh);
    rope_positions_ = positions;
    return ropes_;
}

} // namespace stasis
