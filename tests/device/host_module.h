// A module whose device is the host: its memory is the host's, and its kernels are the text of the
// CUDA ones, run by the host grid. So a model "on a device" computes in every test run, and no
// access to the device's memory stays unnoticed: only the module itself may access it. Enqueued
// work is done as early as possible, or as late: a result that is used before it is waited for, or
// memory that is used again before that, is wrong in one of the two.
#pragma once

#include "runtime/kernels/device.h"

namespace host_module {

// How it behaves, for all devices of the process; tests put back what they change.
struct Settings {
    bool guarded = true; // memory is closed between calls; then one thread uses it at a time
    uint64_t memory_bytes = uint64_t{1} << 30;
    uint32_t devices = 1;         // how many there are
    int64_t fail_allocation = -1; // which of the allocations to come fails; -1: none
    uint32_t vendor = 1;          // version of its pinned products; 0: there are none
    // Which of the enqueued operations fails, in the order in which they are done, and how. A queue
    // that has lost its device does nothing any more; it reports another failure once.
    int64_t fail_enqueued = -1;
    stasis::kernels::DeviceError::Kind failure = stasis::kernels::DeviceError::lost;
};
Settings &settings();

struct Counts {
    uint64_t allocated_bytes, copies, launches, plays;
};
Counts counts();

const stasis::kernels::DeviceTable &table();      // done when it is enqueued
const stasis::kernels::DeviceTable &late_table(); // done when it is waited for

} // namespace host_module
