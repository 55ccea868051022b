// The host module as a library of its own, in the place of the CUDA one: what a host sees of it is
// what it will see of a GPU.
#include "tests/device/host_module.h"

extern "C" [[gnu::visibility("default")]] const stasis::kernels::DeviceTable *
stasis_device_table() {
    return &host_module::table();
}
