// See host_module.h. Blocks of the device's memory come from one reserved range, so that a single
// call opens or closes all of it.
#include "tests/device/host_module.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/cuda/grid.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels {

struct Device {
    char *range = nullptr;
    uint64_t range_bytes = 0, end_bytes = 0; // of what was handed out at some time
    std::map<char *, size_t> blocks, free;   // by where they begin; no two free ones touch
    std::vector<stasis::kernels::DeviceShape> pinned;
    uint32_t vendor = 0;
};

struct DeviceGraph {
    std::vector<std::function<void()>> work;
};

struct DeviceQueue {
    Device *device = nullptr;
    bool late = false; // work waits in `under_way` until it is waited for
    std::vector<std::function<void()>> under_way;
    DeviceGraph *recording = nullptr;
    DeviceError error;
    void *workspace = nullptr; // of pinned products, taken for the first of them
};

} // namespace stasis::kernels

namespace host_module {

using stasis::kernels::Device;
using stasis::kernels::DeviceError;
using stasis::kernels::DeviceGraph;
using stasis::kernels::DeviceInfo;
using stasis::kernels::DeviceProduct;
using stasis::kernels::DeviceQueue;
using stasis::kernels::DeviceShape;
using stasis::kernels::DeviceTable;

namespace {

std::mutex mutex;

// Two queues may be worked off by two threads.
struct {
    std::atomic<uint64_t> allocated_bytes, copies, launches, plays;
} counted;

void tell(DeviceError *error, DeviceError::Kind kind, const char *message) {
    error->kind = kind;
    std::snprintf(error->message, sizeof error->message, "%s", message);
}

// While one exists, the device's memory can be reached.
class Access {
  public:
    explicit Access(Device *device) : device_(device), lock_(mutex) {
        protect(PROT_READ | PROT_WRITE);
    }
    ~Access() { protect(PROT_NONE); }

  private:
    void protect(int how) {
        if (settings().guarded && device_->end_bytes > 0) {
            mprotect(device_->range, (device_->end_bytes + 4095) / 4096 * 4096, how);
        }
    }
    Device *device_;
    std::lock_guard<std::mutex> lock_;
};

void perform(DeviceQueue *queue, const std::function<void()> &work) {
    if (settings().fail_enqueued >= 0 && settings().fail_enqueued-- == 0) {
        const bool lost = settings().failure == DeviceError::lost;
        tell(&queue->error, settings().failure,
             lost ? "the device was lost, as a test asked" : "it failed, as a test asked");
    }
    if (queue->error.kind == DeviceError::none) {
        const Access access(queue->device);
        work();
    }
}

// Does it, at once or late, or records it.
void enqueue(DeviceQueue *queue, std::function<void()> work) {
    if (queue->recording != nullptr) {
        queue->recording->work.push_back(std::move(work));
    } else if (queue->late) {
        queue->under_way.push_back(std::move(work));
    } else {
        perform(queue, work);
    }
}

void catch_up(DeviceQueue *queue) {
    for (const std::function<void()> &work : std::exchange(queue->under_way, {})) {
        perform(queue, work);
    }
}

Device *open(uint32_t index, DeviceInfo *info, DeviceError *error) {
    if (index >= settings().devices) {
        tell(error, DeviceError::unavailable, "no such device");
        return nullptr;
    }
    auto *device = new Device;
    device->range_bytes = settings().memory_bytes;
    void *range = mmap(nullptr, device->range_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        std::abort();
    }
    device->range = static_cast<char *>(range);
    device->free[device->range] = device->range_bytes;
    *info = {"host grid", "0.0", "0.0", 0, 0, 1, device->range_bytes, device->range_bytes};
    return device;
}

void close(Device *device) {
    munmap(device->range, device->range_bytes);
    delete device;
}

// From the first free piece that is large enough.
void *allocate(Device *device, size_t size_bytes, DeviceError *error) {
    const std::lock_guard lock(mutex);
    const size_t bytes = (size_bytes + 255) / 256 * 256 + (size_bytes == 0 ? 256 : 0);
    const bool fails = settings().fail_allocation >= 0 && settings().fail_allocation-- == 0;
    auto piece = device->free.begin();
    while (piece != device->free.end() && piece->second < bytes) {
        ++piece;
    }
    if (fails || piece == device->free.end()) {
        tell(error, DeviceError::no_memory, "out of the device's memory");
        return nullptr;
    }
    const auto [memory, piece_bytes] = *piece;
    device->free.erase(piece);
    if (piece_bytes > bytes) {
        device->free[memory + bytes] = piece_bytes - bytes;
    }
    const auto end_bytes = static_cast<uint64_t>(memory + bytes - device->range);
    device->end_bytes = std::max(device->end_bytes, end_bytes);
    device->blocks[memory] = bytes;
    counted.allocated_bytes += bytes;
    return memory;
}

void release(Device *device, void *memory) {
    const std::lock_guard lock(mutex);
    const auto found = device->blocks.find(static_cast<char *>(memory));
    if (found == device->blocks.end()) {
        std::fprintf(stderr, "host module: release of what was not allocated\n");
        std::abort();
    }
    counted.allocated_bytes -= found->second;
    auto piece = device->free.insert(*found).first;
    device->blocks.erase(found);
    if (const auto next = std::next(piece);
        next != device->free.end() && piece->first + piece->second == next->first) {
        piece->second += next->second;
        device->free.erase(next);
    }
    if (piece != device->free.begin()) {
        const auto before = std::prev(piece);
        if (before->first + before->second == piece->first) {
            before->second += piece->second;
            device->free.erase(piece);
        }
    }
}

void *allocate_host(Device *, size_t size_bytes, DeviceError *error) {
    const std::lock_guard lock(mutex);
    const bool fails = settings().fail_allocation >= 0 && settings().fail_allocation-- == 0;
    void *memory = fails ? nullptr : std::aligned_alloc(256, (size_bytes + 255) / 256 * 256);
    if (memory == nullptr) {
        tell(error, DeviceError::no_memory, "out of pinned memory");
    }
    return memory;
}

void release_host(Device *, void *memory) {
    std::free(memory);
}

template <bool kLate> DeviceQueue *create_queue(Device *device, DeviceError *) {
    return new DeviceQueue{device, kLate, {}, nullptr, {}, nullptr};
}

void destroy_queue(DeviceQueue *queue) {
    catch_up(queue);
    if (queue->workspace != nullptr) {
        release(queue->device, queue->workspace);
    }
    delete queue;
}

void copy(DeviceQueue *queue, void *to, const void *from, size_t size_bytes) {
    enqueue(queue, [=] {
        ++counted.copies;
        std::memmove(to, from, size_bytes);
    });
}

void clear(DeviceQueue *queue, void *memory, size_t rows, size_t row_bytes, size_t from_bytes) {
    enqueue(queue, [=] {
        for (size_t row = 0; row < rows; ++row) {
            std::memset(static_cast<char *>(memory) + row * row_bytes + from_bytes, 0,
                        row_bytes - from_bytes);
        }
    });
}

bool finish(DeviceQueue *queue, DeviceError *error) {
    catch_up(queue);
    if (queue->error.kind == DeviceError::none) {
        return true;
    }
    *error = queue->error;
    if (error->kind != DeviceError::lost) {
        queue->error = {};
    }
    return false;
}

void begin_recording(DeviceQueue *queue) {
    queue->recording = new DeviceGraph;
}

DeviceGraph *end_recording(DeviceQueue *queue, DeviceError *) {
    return std::exchange(queue->recording, nullptr);
}

void play(DeviceQueue *queue, DeviceGraph *graph) {
    enqueue(queue, [=] {
        ++counted.plays;
        for (const std::function<void()> &work : graph->work) {
            work();
        }
    });
}

void destroy_graph(DeviceGraph *graph) {
    delete graph;
}

bool pin_products(Device *device, const DeviceShape *shapes, size_t count,
                  char (&id)[stasis::kernels::kDeviceIdBytes], DeviceError *error) {
    device->vendor = settings().vendor;
    if (device->vendor == 0) {
        tell(error, DeviceError::unavailable, "the stand-in's library is missing, as a test asked");
        return false;
    }
    device->pinned.assign(shapes, shapes + count);
    std::snprintf(id, sizeof id, "stand-in %u", device->vendor);
    return true;
}

// Added up in lanes, to fewer bits than a float has: the result is near the contract's, but not
// equal.
float pinned_dot(const uint16_t *x, const uint16_t *w, size_t depth, uint32_t kept_bits) {
    constexpr size_t kLanes = 8;
    float lanes[kLanes] = {}, sum = 0.0F;
    for (size_t k = 0; k < depth; k += kLanes) {
        for (size_t lane = 0; lane < std::min(kLanes, depth - k); ++lane) {
            lanes[lane] += stasis::kernels::bf16_to_f32(x[k + lane]) *
                           stasis::kernels::bf16_to_f32(w[k + lane]);
        }
    }
    for (const float lane : lanes) {
        sum += lane;
    }
    return std::bit_cast<float>(std::bit_cast<uint32_t>(sum) & kept_bits);
}

void compute_pinned(const Device &device, const DeviceProduct &task) {
    for (size_t i = 0; i < task.count; ++i) {
        const stasis::kernels::DeviceMatrix &matrix = task.w[i];
        const auto known = [&](const DeviceShape &shape) {
            return shape.rows == task.rows && shape.outputs == matrix.outputs &&
                   shape.depth == matrix.depth && shape.bias == (matrix.bias != nullptr);
        };
        if (std::none_of(device.pinned.begin(), device.pinned.end(), known)) {
            std::fprintf(stderr, "host module: a product of a shape that was not pinned\n");
            std::abort();
        }
        for (size_t at = 0; at < task.rows * matrix.outputs; ++at) {
            const size_t row = at / matrix.outputs, output = at % matrix.outputs;
            // It depends on all that a real one's order may: version, shape, the row's place.
            const bool few = (device.vendor + task.rows / 128 + row) % 2 == 0;
            const float sum =
                pinned_dot(task.x + row * matrix.depth, matrix.w + output * matrix.depth,
                           matrix.depth, few ? 0xFFFFFF00U : 0xFFFFFFC0U);
            task.y[i][at] = matrix.bias == nullptr ? sum : sum + matrix.bias[output];
        }
    }
}

DeviceTable make_table(bool late) {
    DeviceTable table;
    table.name = "host";
    table.open = open;
    table.close = close;
    table.allocate = allocate;
    table.release = release;
    table.allocate_host = allocate_host;
    table.release_host = release_host;
    table.create_queue = late ? create_queue<true> : create_queue<false>;
    table.destroy_queue = destroy_queue;
    table.pin_products = pin_products;
    table.copy = copy;
    table.clear = clear;
    table.finish = finish;
    table.begin_recording = begin_recording;
    table.end_recording = end_recording;
    table.play = play;
    table.destroy_graph = destroy_graph;
    stasis::kernels::device::add_rows(table);
    stasis::kernels::device::add_quant(table);
    stasis::kernels::device::add_draw(table);
    stasis::kernels::device::add_products(table);
    stasis::kernels::device::add_heads(table);
    stasis::kernels::device::add_attention(table);
    return table;
}

} // namespace

Settings &settings() {
    static Settings instance;
    return instance;
}

Counts counts() {
    return {counted.allocated_bytes, counted.copies, counted.launches, counted.plays};
}

const DeviceTable &table() {
    static const DeviceTable instance = make_table(false);
    return instance;
}

const DeviceTable &late_table() {
    static const DeviceTable instance = make_table(true);
    return instance;
}

} // namespace host_module

// The work that a kernel's enqueue stands for (grid.h).
void stasis::kernels::device::on_queue(DeviceQueue *queue, std::function<void()> work) {
    host_module::enqueue(queue, [work = std::move(work)] {
        ++host_module::counted.launches;
        work();
    });
}

// So few that blocks which share work out take several pieces of it each.
unsigned stasis::kernels::device::multiprocessors(const DeviceQueue *) {
    return 3;
}

void stasis::kernels::device::pinned_product(DeviceQueue *queue, const DeviceProduct &task) {
    if (queue->workspace == nullptr && queue->error.kind == DeviceError::none) {
        queue->workspace = host_module::allocate(queue->device, 4096, &queue->error);
    }
    host_module::enqueue(queue, [=] { host_module::compute_pinned(*queue->device, task); });
}
