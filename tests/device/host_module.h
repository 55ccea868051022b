// A module whose device is the host: its memory is the host's, what is enqueued is done at once,
// and its kernels are the text of the CUDA ones, run by the host grid. So a model "on a device"
// computes in every test run, and nothing can reach into the device's memory unseen: it may be
// touched only while the module does so itself.
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
    int64_t fail_enqueued = -1;   // which of the calls that enqueue loses the device
};
Settings &settings();

struct Counts {
    uint64_t allocated_bytes, copies, launches, plays;
};
Counts counts();

const stasis::kernels::DeviceTable &table();

} // namespace host_module
