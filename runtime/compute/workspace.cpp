// Layout of the work space; see workspace.h.
#include "runtime/compute/workspace.h"

#include <algorithm>

#include "runtime/compute/device/work.h"
#include "runtime/host/carver.h"

namespace stasis {

Workspace::Workspace(const Memory &memory, const kernels::Table &kernels, size_t count,
                     DeviceModel *model)
    : table(kernels), threads(count), storage(memory), partial_storage(memory),
      logit_storage(memory),
      device(model != nullptr ? std::make_unique<DeviceWork>(*model) : nullptr) {}

Workspace::~Workspace() = default;

uint64_t Workspace::size_bytes() const {
    return storage.size_bytes() + partial_storage.size_bytes() + logit_storage.size_bytes() +
           (device != nullptr ? device->size_bytes() : 0);
}

// What of a pass on a device is on the host: hidden states, those that logits are asked of, logits.
void Workspace::fit_results(const Config &config, size_t wanted) {
    auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        narrow = carver.take<uint16_t>(wanted * config.hidden);
        hidden = carver.take<uint16_t>(wanted * config.hidden);
        logits = carver.take<float>(config.vocabulary);
        return carver.used;
    };
    const size_t size_bytes = carve(nullptr);
    rows = 0; // stays so if growing fails
    device->fit(config, wanted);
    storage.grow(size_bytes);
    carve(static_cast<uint8_t *>(storage.data()));
    rows = wanted;
}

void Workspace::fit(const Config &config, const QuantGroups &groups, size_t wanted) {
    if (wanted <= rows) {
        return;
    }
    if (device != nullptr) {
        fit_results(config, wanted);
        return;
    }
    const size_t hidden_size = config.hidden;
    const size_t query_size = size_t{config.heads} * config.head_dim;
    const size_t kv_size = size_t{config.kv_heads} * config.head_dim;
    const size_t inner = config.intermediate;
    const size_t half = config.head_dim / 2;
    const size_t widest = std::max({hidden_size, query_size, inner});
    const size_t whole = (widest + 255) / 256 * 256; // groups of either size
    auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        stream = carver.take<float>(wanted * hidden_size);
        wide = carver.take<float>(wanted * hidden_size);
        narrow = carver.take<uint16_t>(wanted * widest);
        packed = carver.take<uint8_t>(table.packed_bytes(wanted, widest));
        if (groups.by_32) {
            quantized[0] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 32));
        }
        if (groups.by_256) {
            quantized[1] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 256));
        }
        query = carver.take<float>(wanted * query_size);
        key = carver.take<float>(wanted * kv_size);
        value = carver.take<float>(wanted * kv_size);
        query_bf16 = carver.take<uint16_t>(wanted * query_size);
        gate = carver.take<float>(threads * wanted * kProductOutputs);
        up = carver.take<float>(threads * wanted * kProductOutputs);
        cosine = carver.take<float>(config.ropes.size() * wanted * half);
        sine = carver.take<float>(config.ropes.size() * wanted * half);
        hidden = carver.take<uint16_t>(wanted * hidden_size);
        logits = carver.take<float>(config.vocabulary);
        scratch = carver.take<uint8_t>(threads * kernels::kScratchBytes);
        return carver.used;
    };
    const size_t size_bytes = carve(nullptr);
    rows = 0; // stays so if growing fails
    storage.grow(size_bytes);
    carve(static_cast<uint8_t *>(storage.data()));
    rows = wanted;
}

Sequence &Workspace::add_sequence(uint64_t begin, size_t sequence_rows, size_t groups) {
    if (sequence_count == sequences.size()) {
        sequences.emplace_back();
    }
    Sequence &sequence = sequences[sequence_count];
    sequence.begin = begin;
    sequence.row = row_count;
    sequence.rows = sequence_rows;
    sequence.failed = false;
    sequence.sums = nullptr;
    sequence.pages.resize(groups);
    for (Sequence::Pages &pages : sequence.pages) {
        pages.data.clear();
    }
    of_row.resize(row_count);
    of_row.resize(row_count + sequence_rows, static_cast<uint32_t>(sequence_count));
    bad.resize(of_row.size());
    row_count += sequence_rows;
    ++sequence_count;
    return sequence;
}

void Workspace::fit_logits(size_t count) {
    logit_storage.grow(count * sizeof(float));
    logit_rows = static_cast<float *>(logit_storage.data());
}

void Workspace::drop_sequences(size_t first) {
    if (first < sequence_count) {
        row_count = sequences[first].row;
        sequence_count = first;
        tokens.resize(row_count);
    }
    padded = row_count == 0 ? 0 : padded; // of a pass that has but one
}

void Workspace::fit_partials(size_t query_rows, size_t blocks, size_t head_dim,
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
            partial_weights = carver.take<uint16_t>(query_rows * blocks * kernels::kPagePositions);
        }
        return carver.used;
    };
    // Room for twice as much, so that a growing context asks rarely.
    const size_t size_bytes = carve(nullptr);
    if (size_bytes > partial_storage.size_bytes()) {
        partial_storage.grow(2 * size_bytes);
    }
    carve(static_cast<uint8_t *>(partial_storage.data()));
}

} // namespace stasis
