// See weights_coded.h. A strip is the unit of work.
#include "runtime/model/weights_coded.h"

#include <algorithm>
#include <atomic>

#include "runtime/kernels/table.h"
#include "runtime/model/model_file.h"
#include "runtime/model/weights_strips.h"

namespace stasis {

namespace {

// With more escapes than one in so many weights, a strip's would take half of what coding saves.
constexpr size_t kWeightsPerEscape = sizeof(kernels::Escape) * 4;

// What a thread needs for one strip.
struct Room {
    std::vector<uint16_t> rows;
    std::vector<kernels::Escape> escapes;
};

// Codes one strip of a matrix. Returns false if it has too many escapes.
bool code_strip(const PlannedTensor &planned, const kernels::Table &table, size_t strip, Room &room,
                kernels::CodedStrip &coded, std::vector<kernels::Escape> &escapes) {
    const Matrix &matrix = *planned.matrix;
    const size_t row = strip * kernels::kCodedOutputs;
    const size_t count = std::min(kernels::kCodedOutputs, matrix.rows - row);
    const size_t row_bytes = matrix.columns * sizeof(uint16_t);
    uint8_t *blocks = planned.coded + strip * kernels::coded_strip_bytes(matrix.columns);
    room.rows.resize(count * matrix.columns);
    room.escapes.resize(room.rows.size() / kWeightsPerEscape);
    planned.tensor->read(room.rows.data(), count * row_bytes, row * row_bytes);
    const kernels::Coded found = table.code_strip({room.rows.data(), count, matrix.columns, blocks,
                                                   room.escapes.data(), room.escapes.size()});
    if (found.escape_count > room.escapes.size()) {
        return false;
    }
    escapes.assign(room.escapes.begin(),
                   room.escapes.begin() + static_cast<ptrdiff_t>(found.escape_count));
    coded.blocks = blocks;
    std::copy(std::begin(found.high), std::end(found.high), coded.high);
    return true;
}

// Puts the escapes of a matrix's strips into one list.
void join_escapes(const std::vector<std::vector<kernels::Escape>> &of_strips, Weights &weights,
                  std::vector<kernels::CodedStrip> &strips) {
    size_t total = 0;
    for (const std::vector<kernels::Escape> &of_strip : of_strips) {
        total += of_strip.size();
    }
    std::vector<kernels::Escape> &all = weights.escapes.emplace_back();
    all.reserve(total);
    for (size_t strip = 0; strip < strips.size(); ++strip) {
        strips[strip].escapes = all.data() + all.size();
        strips[strip].escape_count = static_cast<uint32_t>(of_strips[strip].size());
        all.insert(all.end(), of_strips[strip].begin(), of_strips[strip].end());
    }
}

void keep_as_stored(const PlannedTensor &planned, const Memory &memory, Weights &weights) {
    if (planned.matrix->data != nullptr) { // as rows that are looked up
        return;
    }
    weights.storage.push_back(std::make_unique<Buffer>(memory));
    weights.storage.back()->grow(planned.tensor->size_bytes);
    void *stored = weights.storage.back()->data();
    planned.tensor->read(stored, planned.tensor->size_bytes, 0);
    planned.matrix->data = static_cast<const uint16_t *>(stored);
}

} // namespace

bool can_be_coded(const PlannedTensor &planned) {
    return planned.matrix != nullptr && planned.multiplied &&
           planned.tensor->type == DataType::bf16;
}

size_t coded_bytes(const PlannedTensor &planned) {
    return kernels::coded_bytes(planned.matrix->rows, planned.matrix->columns);
}

void code_matrix(const PlannedTensor &planned, const WeightsPlace &place, Threads &threads,
                 Progress &progress, Weights &weights) {
    if (planned.coded == nullptr) {
        return;
    }
    const Matrix &matrix = *planned.matrix;
    const size_t count = (matrix.rows + kernels::kCodedOutputs - 1) / kernels::kCodedOutputs;
    const size_t strip_bytes = kernels::coded_strip_bytes(matrix.columns);
    std::vector<kernels::CodedStrip> strips(count);
    std::vector<std::vector<kernels::Escape>> escapes(count);
    std::vector<Room> rooms(threads.count());
    std::atomic<bool> coded{true};
    each_strip(count, strip_bytes, threads, progress, [&](size_t strip, size_t thread) {
        if (!code_strip(planned, *place.code, strip, rooms[thread], strips[strip],
                        escapes[strip])) {
            coded = false;
        }
    });
    if (!coded) {
        keep_as_stored(planned, place.memory, weights);
        return;
    }
    join_escapes(escapes, weights, strips);
    planned.matrix->coded = weights.coded_strips.emplace_back(std::move(strips)).data();
}

} // namespace stasis
