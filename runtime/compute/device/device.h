// Opens a device that is not the CPU: loads its module when a model asks for it, and wraps the
// module's functions so that they throw. Knows no models.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "format/state/error.h"
#include "runtime/kernels/device.h"

namespace stasis {

// An opened device. A process may use only devices that it opened itself: after fork() each call in
// the child fails before it reaches the device, and releases do nothing. Several threads may take
// and give back memory at once, but not while they hold a lock that `make_room` takes.
struct OpenDevice {
    std::string name; // "cuda:0"
    const kernels::DeviceTable *table = nullptr;
    kernels::Device *device = nullptr;
    kernels::DeviceInfo info = {};
    void *library = nullptr; // handle of the module; null: not loaded by this object
    pid_t process;           // the process that opened it
    // Reclaims memory that is cached for reuse, `size_bytes` bytes if possible; false: there is
    // none. Called when the device has no memory left. Set before threads share the device.
    std::function<bool(size_t size_bytes)> make_room;

    OpenDevice();
    ~OpenDevice();
    OpenDevice(const OpenDevice &) = delete;
    OpenDevice &operator=(const OpenDevice &) = delete;

    bool of_this_process() const noexcept;
    // Throws Error(device) in another process. Every function that takes memory, makes a queue,
    // waits for one or begins a pass calls this.
    void require_this_process() const;
    // Throws Error(no_memory), Error(device).
    void *take(size_t size_bytes) const;
    void give_back(void *memory) const noexcept;
    // Throws the device's error: Error(no_memory) or Error(device), naming the device.
    [[noreturn]] void fail_with(const kernels::DeviceError &error, const char *doing) const;
};

// Opens "cuda" or "cuda:<index>". `module` replaces the installed one; null: load it. Throws
// Error(device) for other names, and if there is no module, no driver or no such device.
std::unique_ptr<OpenDevice> open_device(const std::string &name,
                                        const kernels::DeviceTable *module);

// Device memory that grows and never shrinks; contents are lost when it grows.
class DeviceBuffer {
  public:
    explicit DeviceBuffer(const OpenDevice &on) : on_(on) {}
    ~DeviceBuffer() { on_.give_back(data_); }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;

    // Returns true if the memory has moved.
    bool grow(size_t size_bytes);
    void *data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

  private:
    const OpenDevice &on_;
    void *data_ = nullptr;
    size_t size_bytes_ = 0;
};

// Pinned host memory that grows and never shrinks: the device copies from and to it while other
// work is computed. Contents are lost when it grows.
class PinnedBuffer {
  public:
    explicit PinnedBuffer(const OpenDevice &on) : on_(on) {}
    ~PinnedBuffer();
    PinnedBuffer(const PinnedBuffer &) = delete;
    PinnedBuffer &operator=(const PinnedBuffer &) = delete;

    void grow(size_t size_bytes);
    void *data() const { return data_; }

  private:
    const OpenDevice &on_;
    void *data_ = nullptr;
    size_t size_bytes_ = 0;
};

// A queue of work that a device runs in order. One thread at a time. Host memory that is copied
// from or to, pinned or not, must not change until `finish`.
class DeviceWorkQueue {
  public:
    explicit DeviceWorkQueue(const OpenDevice &on);
    ~DeviceWorkQueue();
    DeviceWorkQueue(const DeviceWorkQueue &) = delete;
    DeviceWorkQueue &operator=(const DeviceWorkQueue &) = delete;

    kernels::DeviceQueue *get() const { return queue_; }
    const kernels::DeviceTable &table() const { return *on_.table; }
    void copy(void *to, const void *from, size_t size_bytes) const {
        on_.table->copy(queue_, to, from, size_bytes);
    }
    // Waits for the work enqueued. Throws the error of any that failed.
    void finish(const char *doing) const;
    void finish_quietly() const noexcept;

  private:
    const OpenDevice &on_;
    kernels::DeviceQueue *queue_ = nullptr;
};

} // namespace stasis
