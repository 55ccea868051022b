// The rows of a pass on the CPU: work on each, and what fails.
#pragma once

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"

namespace stasis {

// Calls work(row) for each row, split over threads.
template <typename Work> void each_row(const Network &network, size_t rows, const Work &work) {
    network.threads->run(rows, 4, [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            work(row);
        }
    });
}

// Marks the sequences of the bad rows; the first failure of each counts.
inline void mark_failed(Pass &pass, size_t layer) {
    for (size_t row = 0; row < pass.row_count; ++row) {
        if (pass.cpu->bad[row] != 0) {
            pass.sequence_of(row).fail_at(layer, pass.position_of(row));
        }
        pass.cpu->bad[row] = 0;
    }
}

} // namespace stasis
