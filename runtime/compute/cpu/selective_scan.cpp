// Mamba-2, the recurrent layers of Granite 4 (C11), apart from what they share with Gated DeltaNet
// (recurrent.cpp), whose values, keys and queries are x, B and C here.
#include <cstring>

#include "runtime/compute/cpu/recurrent_layer.h"

namespace stasis {

void part_product(const RecurrentLayer &layer) {
    const Recurrent &sizes = layer.sizes;
    const size_t channels = sizes.channels(), heads = sizes.value_heads;
    layer.each(layer.rows, layer.rows, [&](size_t row, size_t) {
        const float *part =
            layer.work.gate_z + row * sizes.product_size() + sizes.value_size(); // behind z
        std::memcpy(layer.mixed(row, 0), part, channels * sizeof(float));
        std::memcpy(layer.work.beta + row * heads, part + channels, heads * sizeof(float));
    });
}

void finish_scan(const RecurrentLayer &layer) {
    const Recurrent &sizes = layer.sizes;
    const kernels::Table &table = *layer.network.kernels;
    const size_t size = sizes.value_size(), dim = sizes.value_dim;
    layer.each(layer.rows, layer.rows, [&](size_t row, size_t) {
        float *gate = layer.work.gate_z + row * sizes.product_size();
        for (size_t head = 0; head < sizes.value_heads; ++head) {
            const float *result =
                layer.work.mixed + layer.in_head(row, layer.value_channel(head), dim);
            table.silu_multiply(gate + head * dim, result, dim, gate + head * dim);
        }
        table.rms_norm(gate, layer.weights.norm, size, layer.network.config.norm_eps, gate);
        table.round_bf16(gate, size, layer.work.narrow + row * size);
    });
}

} // namespace stasis
