// Reorders matrices into strips; see weights_strips.h. A strip is the unit of work.
#include "runtime/model/weights_strips.h"

#include <algorithm>
#include <vector>

#include "runtime/host/first_error.h"
#include "runtime/model/model_file.h"
#include "runtime/model/weights_coded.h"

namespace stasis {

namespace {

bool in_strips(const PlannedTensor &planned) {
    return planned.matrix != nullptr && planned.multiplied &&
           quant_of(planned.tensor->type).has_value();
}

// Returns the bytes of a matrix in strips.
size_t bytes_of(const PlannedTensor &planned) {
    return kernels::strips_bytes(*quant_of(planned.tensor->type), planned.matrix->rows,
                                 planned.matrix->columns);
}

// Makes one strip. `rows` is a buffer for its rows.
void make_strip(const PlannedTensor &planned, size_t strip, std::vector<uint8_t> &rows) {
    const Matrix &matrix = *planned.matrix;
    const Tensor &tensor = *planned.tensor;
    const size_t row_bytes = kernels::quant_row_bytes(matrix.quant, matrix.columns);
    const size_t row = strip * kernels::kStripOutputs;
    const size_t count = std::min(kernels::kStripOutputs, matrix.rows - row);
    rows.resize(count * row_bytes);
    tensor.read(rows.data(), rows.size(), row * row_bytes);
    kernels::make_strip(matrix.quant, rows.data(), row_bytes, count, matrix.columns,
                        planned.strips +
                            strip * kernels::strip_bytes(matrix.quant, matrix.columns));
}

} // namespace

uint64_t strips_size_bytes(const std::vector<PlannedTensor> &plan, bool code) {
    uint64_t total_bytes = 0;
    for (const PlannedTensor &planned : plan) {
        total_bytes += in_strips(planned)              ? bytes_of(planned)
                       : code && can_be_coded(planned) ? coded_bytes(planned)
                                                       : 0;
    }
    return total_bytes;
}

uint64_t place_strips(std::vector<PlannedTensor> &plan, const WeightsPlace &place,
                      Weights &weights) {
    const bool code = place.code != nullptr;
    const uint64_t total_bytes = strips_size_bytes(plan, code);
    if (total_bytes == 0) {
        return 0;
    }

    // Each matrix gets its part, in the order of the plan.
    weights.storage.push_back(std::make_unique<Buffer>(place.memory));
    weights.storage.back()->grow(total_bytes);
    auto *at = static_cast<uint8_t *>(weights.storage.back()->data());
    for (PlannedTensor &planned : plan) {
        if (in_strips(planned)) {
            planned.strips = at;
            planned.matrix->strips = at;
            (planned.group == WeightGroup::mtp ? weights.mtp.groups : weights.groups)
                .add(*planned.matrix);
            at += bytes_of(planned);
        } else if (code && can_be_coded(planned)) {
            planned.coded = at;
            at += coded_bytes(planned);
        }
    }
    return total_bytes;
}

void each_strip(size_t count, size_t strip_bytes, Threads &threads, Progress &progress,
                const std::function<void(size_t strip, size_t thread)> &work) {
    // Batches let progress and cancelling happen between them.
    const size_t most = std::max<size_t>(kBatchBytes / strip_bytes, 1);
    for (size_t begin = 0; begin < count; begin += most) {
        progress.step();
        const size_t batch = std::min(most, count - begin);
        FirstError error;
        threads.run(batch, 1, [&](size_t first, size_t last, size_t thread) {
            error.guard([&] {
                for (size_t strip = begin + first; strip < begin + last; ++strip) {
                    work(strip, thread);
                }
            });
        });
        error.rethrow();
        progress.done_bytes += batch * strip_bytes;
    }
}

void make_strips(const PlannedTensor &planned, Threads &threads, Progress &progress) {
    if (planned.strips == nullptr) {
        return;
    }
    const Matrix &matrix = *planned.matrix;
    const size_t count = (matrix.rows + kernels::kStripOutputs - 1) / kernels::kStripOutputs;
    std::vector<std::vector<uint8_t>> room(threads.count());
    each_strip(count, kernels::strip_bytes(matrix.quant, matrix.columns), threads, progress,
               [&](size_t strip, size_t thread) { make_strip(planned, strip, room[thread]); });
}

} // namespace stasis
