// Buffers and sequences of a pass; see pass.h.
#include "runtime/compute/pass.h"

#include <algorithm>

#include "runtime/compute/backend.h"
#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/device/scratch.h"
#include "runtime/compute/network.h"
#include "runtime/host/carver.h"

namespace stasis {

Pass::Pass(const Network &network_)
    : network(network_), storage(network_.memory), logit_storage(network_.memory) {
    network.backend->make_scratch(*this);
}

Pass::~Pass() = default;

uint64_t Pass::size_bytes() const {
    return storage.size_bytes() + logit_storage.size_bytes() + network.backend->size_bytes(*this);
}

void Pass::fit(size_t wanted) {
    if (wanted <= rows) {
        return;
    }
    auto carve = [&](uint8_t *base) {
        Carver<64> carver{base};
        hidden = carver.take<uint16_t>(wanted * network.config.hidden);
        logits = carver.take<float>(network.config.vocabulary);
        return carver.used;
    };
    const size_t size_bytes = carve(nullptr);
    rows = 0; // remains 0 if growing fails
    network.backend->fit(*this, wanted);
    storage.grow(size_bytes);
    carve(static_cast<uint8_t *>(storage.data()));
    rows = wanted;
}

void Pass::fit_logits(size_t wanted) {
    logit_storage.grow(wanted * network.config.vocabulary * sizeof(float));
    logit_rows = static_cast<float *>(logit_storage.data());
}

void Pass::clear() {
    sequence_count = row_count = padded = 0;
    keeps_inputs = false;
    tokens.clear();
}

Sequence &Pass::add_sequence(uint64_t begin, size_t sequence_rows, size_t groups) {
    if (sequence_count == sequences.size()) {
        sequences.emplace_back();
    }
    Sequence &sequence = sequences[sequence_count];
    sequence.begin = begin;
    sequence.row = row_count;
    sequence.rows = sequence_rows;
    sequence.failed = false;
    sequence.sums = nullptr;
    sequence.state = nullptr;
    sequence.next_states.clear();
    sequence.pages.resize(groups);
    for (Sequence::Pages &pages : sequence.pages) {
        pages.data.clear();
    }
    of_row.resize(row_count);
    of_row.resize(row_count + sequence_rows, static_cast<uint32_t>(sequence_count));
    row_count += sequence_rows;
    ++sequence_count;
    return sequence;
}

void Pass::drop_sequences(size_t first) {
    if (first < sequence_count) {
        row_count = sequences[first].row;
        sequence_count = first;
        tokens.resize(row_count);
    }
    padded = row_count == 0 ? 0 : padded; // only a pass of one sequence is padded
}

bool Pass::all_failed() const {
    const std::span<const Sequence> each = all();
    return std::all_of(each.begin(), each.end(), [](const Sequence &s) { return s.failed; });
}

PassLease::PassLease(const Network &network) : network_(network) {
    network.backend->check_process(network);
    pass_ = network.idle_passes.take();
    if (pass_ == nullptr) {
        pass_ = std::make_unique<Pass>(network);
    }
}

PassLease::~PassLease() {
    network_.idle_passes.give(std::move(pass_));
}

} // namespace stasis
