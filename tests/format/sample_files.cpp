// Files for the format's tests, and the count of their allocations; see sample.h.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "format/reader.h"
#include "sample.h"
#include "tests/sanitizers.h"

namespace {
std::atomic<size_t> largest_block{0};
std::atomic<bool> refusing{false};

[[maybe_unused]] void *note_and_allocate(size_t size_bytes, size_t alignment) {
    largest_block = std::max(largest_block.load(), size_bytes);
    void *memory =
        refusing
            ? nullptr
            : std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
} // namespace

// Every allocation of the test program passes through this function, so that a test can measure a
// reader's requests. Not under the thread sanitizer, which has an operator new of its own and runs
// no such test.
#ifndef STASIS_THREAD_SANITIZER
void *operator new(size_t size_bytes) {
    return note_and_allocate(size_bytes, 16);
}
void *operator new(size_t size_bytes, std::align_val_t alignment) {
    return note_and_allocate(size_bytes, static_cast<size_t>(alignment));
}
void *operator new(size_t size_bytes, const std::nothrow_t &) noexcept {
    return std::malloc(size_bytes); // std::stable_sort's buffer
}
void operator delete(void *memory, const std::nothrow_t &) noexcept {
    std::free(memory);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t, std::align_val_t) noexcept {
    std::free(memory);
}
#endif // STASIS_THREAD_SANITIZER

namespace stasis::format {

size_t largest_allocation() {
    return largest_block.exchange(0);
}

void refuse_memory(bool refuse) {
    refusing = refuse;
}

ScratchFolder::ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "stasis-format-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        fail_file(Status::io, FileFailure::create, name, errno);
    }
    folder_ = name;
}

ScratchFolder::~ScratchFolder() {
    std::filesystem::remove_all(folder_);
}

std::vector<std::string> ScratchFolder::names() const {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(folder_)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

Bytes read_bytes(const std::string &path) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    Bytes bytes(file ? static_cast<size_t>(file.tellg()) : 0);
    file.seekg(0).read(reinterpret_cast<char *>(bytes.data()),
                       static_cast<std::streamsize>(bytes.size()));
    return bytes;
}

void write_bytes(const std::string &path, const Bytes &bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::filesystem::permissions(path, std::filesystem::perms(0600)); // as a save leaves it
}

Bytes saved(const State &state, const SaveOptions &options) {
    const ScratchFolder folder;
    save(state, folder.path("s.stasis"), options);
    return read_bytes(folder.path("s.stasis"));
}

std::string refusal(const Bytes &bytes) {
    try {
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        State state = snapshot->state();
        snapshot->read_pages(state, {});
        snapshot->read_states(state, {});
        snapshot->logits_row();
    } catch (const Error &error) {
        return std::to_string(static_cast<int>(error.status())) + ": " + error.what();
    }
    return "";
}

} // namespace stasis::format
