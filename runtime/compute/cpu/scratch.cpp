// Carves the CPU's scratch from one block; see scratch.h.
#include "runtime/compute/cpu/scratch.h"

#include <algorithm>

#include "runtime/compute/network.h"
#include "runtime/host/carver.h"

namespace stasis {

CpuScratch::CpuScratch(const Network &network_)
    : network(network_), experts(network_), storage(network_.memory),
      partial_storage(network_.memory), kept_storage(network_.memory) {}

void CpuScratch::fit(size_t wanted) {
    if (wanted <= rows) {
        return;
    }
    const Config &config = network.config;
    const kernels::Table &table = *network.kernels;
    const QuantGroups &groups = network.weights.groups;
    const size_t threads = network.threads->count();
    const size_t query_size = size_t{config.heads} * config.most_head_dim();
    const size_t kv_size = config.most_key_size();
    const size_t half = config.most_rotary() / 2;
    const Recurrent &recurrent = config.recurrent;
    const size_t recurrent_rows = recurrent.value_heads == 0 ? 0 : wanted;
    const bool ruled = recurrent.rule_size() != 0;
    const size_t widest = std::max(
        {size_t{config.hidden}, query_size, size_t{config.most_intermediate()},
         size_t{config.experts.shared}, recurrent.value_size(), size_t{config.layer_inputs},
         network.joins_hidden ? 2 * size_t{config.hidden} : 0});
    const size_t whole = (widest + 255) / 256 * 256; // groups of either size

    // `carve` runs twice: on a null base to measure the storage, then to set the pointers.
    auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        stream = carver.take<float>(wanted * config.hidden);
        wide = carver.take<float>(wanted * std::max(config.hidden, config.layer_inputs));
        narrow = carver.take<uint16_t>(wanted * widest);
        packed.plain = carver.take<uint8_t>(table.packed_bytes(wanted, widest));
        if (groups.by_32) {
            packed.quantized[0] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 32));
        }
        if (groups.by_256) {
            packed.quantized[1] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 256));
        }
        query = carver.take<float>(wanted * query_size * (config.output_gate ? 2 : 1));
        key = carver.take<float>(wanted * kv_size);
        value = carver.take<float>(wanted * kv_size);
        query_bf16 = carver.take<uint16_t>(wanted * query_size);
        gate = carver.take<float>(threads * wanted * kProductOutputs);
        up = carver.take<float>(threads * wanted * kProductOutputs);
        cosine = carver.take<float>(config.ropes.size() * wanted * half);
        sine = carver.take<float>(config.ropes.size() * wanted * half);
        inputs = carver.take<float>(wanted * config.layer_inputs_size());
        token_inputs = carver.take<float>(threads * config.layer_inputs_size());
        mixed = carver.take<float>(recurrent_rows * recurrent.channels());
        convolved = carver.take<float>(recurrent_rows * recurrent.channels());
        gate_z = carver.take<float>(recurrent_rows * recurrent.product_size());
        if (ruled) {
            decay = carver.take<float>(recurrent_rows * recurrent.value_heads);
            beta = carver.take<float>(recurrent_rows * recurrent.value_heads);
        }
        scratch = carver.take<uint8_t>(threads * kernels::kScratchBytes);
        return carver.used;
    };

    const size_t size_bytes = carve(nullptr);
    rows = 0; // remains 0 if growing fails
    bad.resize(wanted);
    experts.fit(wanted);
    storage.grow(size_bytes);
    carve(static_cast<uint8_t *>(storage.data()));
    rows = wanted;
}

void CpuScratch::fit_partials(size_t query_rows, size_t blocks, size_t head_dim,
                              size_t query_bytes) {
    auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        partial_max = carver.take<float>(query_rows * blocks);
        partial_sum = carver.take<float>(query_rows * blocks);
        partial_output = carver.take<float>(query_rows * blocks * head_dim);
        visible = carver.take<uint64_t>(query_rows * blocks);
        packed_query = carver.take<uint8_t>(query_bytes);
        partial_weights = nullptr;
        if (attention.tracked) {
            partial_weights = carver.take<uint16_t>(query_rows * blocks * kPage);
        }
        return carver.used;
    };
    // Reserves twice the bytes needed, so that a growing context rarely needs another allocation.
    const size_t size_bytes = carve(nullptr);
    if (size_bytes > partial_storage.size_bytes()) {
        partial_storage.grow(2 * size_bytes);
    }
    carve(static_cast<uint8_t *>(partial_storage.data()));
}

} // namespace stasis
