// Finds and opens a device's module; see device.h.
#include "runtime/compute/device/device.h"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>

namespace stasis {

namespace {

constexpr const char *kModule = "libstasis_cuda.so.0";

struct Library {
    void *handle = nullptr;
    std::string problem;
};

// Loads the module as the loader finds libraries, else from the folder of this library. The
// loader's path comes first, as for every library: it is set on purpose (tests exchange modules in
// this way), and where packages install both, the two ways end in the same folder. A module built
// for another version is found but refused: open_device reports its version.
Library load_module() {
    // The module stays loaded: threads that called it may end after the model is closed.
    constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    if (void *handle = dlopen(kModule, kHow)) {
        return {handle, ""};
    }
    const char *why = dlerror();
    Library library{nullptr, why != nullptr ? why : "it cannot be loaded"};
    Dl_info here{};
    if (dladdr(reinterpret_cast<const void *>(&load_module), &here) != 0 &&
        here.dli_fname != nullptr) {
        const std::string own = here.dli_fname;
        const size_t folder = own.rfind('/');
        if (folder != std::string::npos) {
            const std::string beside = own.substr(0, folder + 1) + kModule;
            library.handle = dlopen(beside.c_str(), kHow);
            const char *other = library.handle == nullptr ? dlerror() : nullptr;
            library.problem += other != nullptr ? std::string("; ") + other : "";
        }
    }
    return library;
}

// Returns the index of "cuda" or "cuda:<index>".
uint32_t device_index(const std::string &name) {
    uint32_t index = 0;
    const std::string rest = name.starts_with("cuda") ? name.substr(4) : "?";
    if (rest.empty()) {
        return 0;
    }
    const char *end = rest.data() + rest.size();
    const auto [read, problem] = std::from_chars(rest.data() + 1, end, index);
    if (rest[0] != ':' || problem != std::errc() || read != end) {
        fail(Status::device, "device \"%s\": devices are \"cpu\", \"cuda\" and \"cuda:<number>\"",
             name.c_str());
    }
    return index;
}

void load_table(OpenDevice &opened, const std::string &name) {
    const Library library = load_module();
    if (library.handle == nullptr) {
        fail(Status::device, "device \"%s\": no module %s: %s", name.c_str(), kModule,
             library.problem.c_str());
    }
    opened.library = library.handle;
    auto *entry =
        reinterpret_cast<kernels::DeviceEntry *>(dlsym(library.handle, kernels::kDeviceEntry));
    opened.table = entry != nullptr ? entry() : nullptr;
    if (opened.table == nullptr) {
        fail(Status::device, "device \"%s\": %s has no %s", name.c_str(), kModule,
             kernels::kDeviceEntry);
    }
}

} // namespace

OpenDevice::OpenDevice() : process(getpid()) {}

OpenDevice::~OpenDevice() {
    if (device != nullptr && of_this_process()) {
        table->close(device);
    }
    if (library != nullptr) {
        dlclose(library);
    }
}

bool OpenDevice::of_this_process() const noexcept {
    return getpid() == process;
}

void OpenDevice::require_this_process() const {
    if (!of_this_process()) {
        fail(Status::device,
             "device \"%s\": it was opened before fork(), by process %lld; this process has to "
             "open models of its own",
             name.c_str(), static_cast<long long>(process));
    }
}

void OpenDevice::fail_with(const kernels::DeviceError &error, const char *doing) const {
    const bool memory = error.kind == kernels::DeviceError::no_memory;
    fail(memory ? Status::no_memory : Status::device, "device \"%s\", %s: %s", name.c_str(), doing,
         error.message);
}

// Each failure for lack of memory reclaims some, until nothing more can be reclaimed.
void *OpenDevice::take(size_t size_bytes) const {
    require_this_process();
    for (;;) {
        kernels::DeviceError error;
        if (void *memory = table->allocate(device, size_bytes, &error)) {
            return memory;
        }
        const bool full = error.kind == kernels::DeviceError::no_memory;
        if (!full || make_room == nullptr || !make_room(size_bytes)) {
            const std::string doing = "taking " + std::to_string(size_bytes) + " bytes";
            fail_with(error, doing.c_str());
        }
    }
}

void OpenDevice::give_back(void *memory) const noexcept {
    if (memory != nullptr && of_this_process()) {
        table->release(device, memory);
    }
}

std::unique_ptr<OpenDevice> open_device(const std::string &name,
                                        const kernels::DeviceTable *module) {
    const uint32_t index = device_index(name);
    auto opened = std::make_unique<OpenDevice>();
    opened->name = "cuda:" + std::to_string(index);
    opened->table = module;
    if (module == nullptr) {
        load_table(*opened, name);
    }
    const kernels::DeviceTable &table = *opened->table;
    if (table.version != kernels::kDeviceVersion ||
        table.size_bytes != sizeof(kernels::DeviceTable)) {
        fail(Status::device, "device \"%s\": the module is of version %u, this library needs %u",
             name.c_str(), table.version, kernels::kDeviceVersion);
    }
    kernels::DeviceError error;
    opened->device = table.open(index, &opened->info, &error);
    if (opened->device == nullptr) {
        opened->fail_with(error, "opening");
    }
    return opened;
}

bool DeviceBuffer::grow(size_t size_bytes) {
    if (size_bytes <= size_bytes_) {
        return false;
    }
    void *data = on_.take(size_bytes);
    on_.give_back(data_);
    data_ = data;
    size_bytes_ = size_bytes;
    return true;
}

PinnedBuffer::~PinnedBuffer() {
    if (data_ != nullptr && on_.of_this_process()) {
        on_.table->release_host(on_.device, data_);
    }
}

void PinnedBuffer::grow(size_t size_bytes) {
    if (size_bytes <= size_bytes_) {
        return;
    }
    on_.require_this_process();
    kernels::DeviceError error;
    void *data = on_.table->allocate_host(on_.device, size_bytes, &error);
    if (data == nullptr) {
        on_.fail_with(error, "taking pinned memory");
    }
    if (data_ != nullptr) {
        on_.table->release_host(on_.device, data_);
    }
    data_ = data;
    size_bytes_ = size_bytes;
}

DeviceWorkQueue::DeviceWorkQueue(const OpenDevice &on) : on_(on) {
    on.require_this_process();
    kernels::DeviceError error;
    queue_ = on.table->create_queue(on.device, &error);
    if (queue_ == nullptr) {
        on.fail_with(error, "making a queue");
    }
}

DeviceWorkQueue::~DeviceWorkQueue() {
    if (on_.of_this_process()) {
        on_.table->destroy_queue(queue_);
    }
}

void DeviceWorkQueue::finish(const char *doing) const {
    on_.require_this_process();
    kernels::DeviceError error;
    if (!on_.table->finish(queue_, &error)) {
        on_.fail_with(error, doing);
    }
}

void DeviceWorkQueue::finish_quietly() const noexcept {
    kernels::DeviceError error;
    if (on_.of_this_process()) {
        on_.table->finish(queue_, &error);
    }
}

} // namespace stasis
