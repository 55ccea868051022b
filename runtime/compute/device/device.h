// Opening a device that is not the CPU: its module, found when a model asks for it, and what the
// runtime needs of it in a form that throws. Knows no models.
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

// An opened device. What a process opened is nothing to its children by fork(): there each call
// fails before it reaches the device, and what is released is left as it is. Memory may be taken
// and given back by several threads at once, by nobody who holds what `make_room` locks.
struct OpenDevice {
    std::string name; // "cuda:0"
    const kernels::DeviceTable *table = nullptr;
    kernels::Device *device = nullptr;
    kernels::DeviceInfo info = {};
    void *library = nullptr; // of the module; null: not loaded for this
    pid_t process;           // that opened it
    // Gives back memory that is only kept for reuse, so many bytes if it can; false: there is none.
    // Asked where the device has no memory left. Set before threads share the device.
    std::function<bool(size_t size_bytes)> make_room;

    OpenDevice();
    ~OpenDevice();
    OpenDevice(const OpenDevice &) = delete;
    OpenDevice &operator=(const OpenDevice &) = delete;

    bool of_this_process() const noexcept;
    // Throws Error(device) where it is not. What takes memory, makes a queue, waits for one or
    // begins a pass asks this.
    void require_this_process() const;
    // Throws Error(no_memory), Error(device).
    void *take(size_t size_bytes) const;
    void give_back(void *memory) const noexcept;
    // Throws what the device said: Error(no_memory) or Error(device), naming the device.
    [[noreturn]] void fail_with(const kernels::DeviceError &error, const char *doing) const;
};

// "cuda" or "cuda:<index>". `module`: in place of the installed one. Throws Error(device) for other
// names, and where there is no module, no driver or no such device.
std::unique_ptr<OpenDevice> open_device(const std::string &name,
                                        const kernels::DeviceTable *module);

// Memory of a device that grows and never shrinks; contents are lost when it grows.
class DeviceBuffer {
  public:
    explicit DeviceBuffer(const OpenDevice &on) : on_(on) {}
    ~DeviceBuffer() { on_.give_back(data_); }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;

    // True: it has moved.
    bool grow(size_t size_bytes);
    void *data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

  private:
    const OpenDevice &on_;
    void *data_ = nullptr;
    size_t size_bytes_ = 0;
};

// The same on the host, pinned: what is copied from and to the device while others compute.
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

// Work in order on a device. One thread at a time. The host's memory that is copied from or to,
// pinned or not, is left alone until `finish`.
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
    // Waits. Throws what went wrong on the way.
    void finish(const char *doing) const;
    void finish_quietly() const noexcept;

  private:
    const OpenDevice &on_;
    kernels::DeviceQueue *queue_ = nullptr;
};

} // namespace stasis
