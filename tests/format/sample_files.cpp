// Files for the format's tests: scratch folders, files in memory, and forgeries whose checksums are
// right; see sample.h.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "format/manifest.h"
#include "format/reader.h"
#include "sample.h"

namespace {
std::atomic<size_t> largest_block{0};

void *note_and_allocate(size_t size_bytes, size_t alignment) {
    largest_block = std::max(largest_block.load(), size_bytes);
    if (void *memory =
            std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment)) {
        return memory;
    }
    throw std::bad_alloc();
}
} // namespace

// Every allocation of the test program passes here, so that a test can see what a reader asked for.
void *operator new(size_t size_bytes) {
    return note_and_allocate(size_bytes, 16);
}
void *operator new(size_t size_bytes, std::align_val_t alignment) {
    return note_and_allocate(size_bytes, static_cast<size_t>(alignment));
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

namespace stasis::format {

size_t largest_allocation() {
    return largest_block.exchange(0);
}

ScratchFolder::ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "stasis-format-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        fail_errno(Status::io, "create", name);
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
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::string &path, const Bytes &bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char *>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
}

Bytes saved(const State &state, const SaveOptions &options) {
    const ScratchFolder folder;
    save(state, folder.path("s.stasis"), options);
    return read_bytes(folder.path("s.stasis"));
}

namespace {

const Bytes *memory = nullptr;

ssize_t read_memory(int, void *data, size_t size_bytes, off_t offset) {
    const auto begin = std::min(static_cast<size_t>(offset), memory->size());
    const size_t count = std::min(size_bytes, memory->size() - begin);
    std::copy_n(memory->data() + begin, count, static_cast<uint8_t *>(data));
    return static_cast<ssize_t>(count);
}

int memory_status(int, struct stat *status) {
    *status = {};
    status->st_mode = S_IFREG;
    status->st_size = static_cast<off_t>(memory->size());
    return 0;
}

} // namespace

const FileOperations &memory_files(const Bytes &bytes) {
    static const FileOperations operations = [] {
        FileOperations files{};
        files.open = [](const char *, int, mode_t) { return 1000; };
        files.status = memory_status;
        files.read_at = read_memory;
        files.close = [](int) { return 0; };
        return files;
    }();
    memory = &bytes;
    return operations;
}

std::string refusal(const Bytes &bytes) {
    try {
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        State state = snapshot->state();
        snapshot->read_pages(state, {});
        snapshot->logits_row();
    } catch (const Error &error) {
        return std::to_string(static_cast<int>(error.status())) + ": " + error.what();
    }
    return "";
}

namespace {

void write_slot(Bytes &bytes, RootSlot slot) {
    const uint8_t *manifest = bytes.data() + slot.manifest_offset;
    slot.manifest_checksum = checksum(manifest, slot.manifest_bytes);
    slot.root = root_digest(slot, manifest, slot.manifest_bytes);
    const Block header = encode_header();
    const Block block = encode_slot(slot);
    std::copy(header.begin(), header.end(), bytes.begin());
    std::copy(block.begin(), block.end(), bytes.begin() + kSlotA);
}

RootSlot read_slot(const Bytes &bytes) {
    Block block;
    std::copy_n(bytes.begin() + kSlotA, block.size(), block.begin());
    return decode_slot(block);
}

} // namespace

void reseal(Bytes &bytes) {
    if (bytes.size() < kSectionsBegin) {
        return;
    }
    RootSlot slot;
    slot.sequence = 1;
    slot.file_bytes = bytes.size();
    std::memcpy(&slot.manifest_offset, bytes.data() + kSlotA + 40, 8);
    if (slot.manifest_offset <= bytes.size()) {
        slot.manifest_bytes = bytes.size() - slot.manifest_offset;
        write_slot(bytes, slot);
    }
}

Bytes forged(const Bytes &bytes, const Change &change) {
    RootSlot slot = read_slot(bytes);
    State state;
    Layout layout;
    parse_manifest({bytes.data() + slot.manifest_offset, slot.manifest_bytes}, state, layout);
    change(state, layout);
    const Bytes manifest = build_manifest(state, layout);
    Bytes result(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(slot.manifest_offset));
    result.insert(result.end(), manifest.begin(), manifest.end());
    slot.manifest_bytes = manifest.size();
    slot.file_bytes = result.size();
    write_slot(result, slot);
    return result;
}

Bytes forged_section(const Bytes &bytes, size_t section,
                     const std::function<void(uint8_t *)> &change) {
    Bytes changed = bytes;
    return forged(changed, [&](State &, Layout &layout) {
        Section &entry = layout.sections.at(section);
        uint8_t *data = changed.data() + entry.offset;
        change(data);
        entry.checksum = checksum(data, entry.raw_bytes);
        if (entry.kind != SectionKind::page) {
            entry.digest = Sha256().bytes(data, entry.raw_bytes).finish();
        }
    });
}

} // namespace stasis::format
