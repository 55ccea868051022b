// Devices to test kernels and models on: the host grid, as each kind of device in C2, and device 0
// of the module that the environment variable STASIS_CUDA_MODULE names (a file), if it is set. If
// STASIS_DEVICE_TESTS=module is set as well, that module alone: the host grid takes most of the
// time, and needs no GPU. Operands of kernels are in memory of the device.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/cuda/host_grid.h"
#include "runtime/kernels/device.h"
#include "tests/device/host_module.h"

namespace under_test {

using stasis::kernels::Device;
using stasis::kernels::DeviceError;
using stasis::kernels::DeviceInfo;
using stasis::kernels::DeviceQueue;
using stasis::kernels::DeviceTable;

// An opened device with a queue.
struct Opened {
    const DeviceTable &table;
    Device *device = nullptr;
    DeviceQueue *queue = nullptr;
    DeviceInfo info = {};

    explicit Opened(const DeviceTable &of) : table(of) {
        DeviceError error;
        device = table.open(0, &info, &error);
        REQUIRE_MESSAGE(device != nullptr, std::string(error.message));
        queue = table.create_queue(device, &error);
        REQUIRE(queue != nullptr);
    }
    ~Opened() {
        table.destroy_queue(queue);
        table.close(device);
    }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;

    void finish() const {
        DeviceError error;
        REQUIRE_MESSAGE(table.finish(queue, &error), std::string(error.message));
    }
};

// Numbers in a device's memory, carried there and back by a queue: the opened one where none is
// named. A queue is for one thread at a time.
template <typename T> class There {
  public:
    There(const Opened &on, size_t count, DeviceQueue *queue = nullptr)
        : on_(on), queue_(queue == nullptr ? on.queue : queue), count_(count) {
        DeviceError error;
        data_ = static_cast<T *>(on.table.allocate(on.device, count * sizeof(T), &error));
        REQUIRE_MESSAGE(data_ != nullptr, std::string(error.message));
    }
    There(const Opened &on, const std::vector<T> &values, DeviceQueue *queue = nullptr)
        : There(on, values.size(), queue) {
        carry(data_, values.data());
    }
    ~There() { on_.table.release(on_.device, data_); }
    There(const There &) = delete;
    There &operator=(const There &) = delete;

    T *get() const { return data_; }
    std::vector<T> values() const {
        std::vector<T> here(count_);
        carry(here.data(), data_);
        return here;
    }

  private:
    void carry(T *to, const T *from) const {
        on_.table.copy(queue_, to, from, count_ * sizeof(T));
        DeviceError error;
        REQUIRE_MESSAGE(on_.table.finish(queue_, &error), std::string(error.message));
    }

    const Opened &on_;
    DeviceQueue *queue_;
    size_t count_;
    T *data_ = nullptr;
};

// Returns the module that STASIS_CUDA_MODULE names; null if it is not set. It stays loaded. If the
// file is no module, the test case that asks fails.
const DeviceTable *cuda_module();

// Returns whether the host grid is left out. If STASIS_DEVICE_TESTS asks for that and no module is
// named, the test case that asks fails: it would have tested nothing.
bool module_alone();

// For the first line of a test case, which is then run once for each module: the host grid's, in
// either way (host_module.h), unless it is left out, and the one above.
const DeviceTable &each_module();

// Runs `check(opened)` on each device.
template <typename Check> void for_each_device(const Check &check) {
    namespace grid = stasis::kernels::device::host_grid;
    for (const grid::Tiny tiny : grid::kEveryTiny) {
        if (module_alone()) {
            break;
        }
        INFO("host grid, kind of tiny results: ", static_cast<int>(tiny));
        grid::tiny = tiny;
        const Opened opened(host_module::table());
        check(opened);
    }
    grid::tiny = grid::Tiny::rounded;
    if (const DeviceTable *module = cuda_module()) {
        const Opened opened(*module);
        INFO("device: ", std::string(opened.info.name));
        check(opened);
    }
}

} // namespace under_test
