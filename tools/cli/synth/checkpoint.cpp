// Writing a checkpoint; see checkpoint.h. A safetensors file (github.com/huggingface/safetensors,
// "Format") is: u64 little-endian size of the header, the header (JSON), the tensors without a gap.
// As in the published writer, the header is padded with spaces to 8 bytes and no further, so that
// the alignment of the tensors is that of a real checkpoint.
#include "tools/cli/synth/checkpoint.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "tools/cli/handles.h"
#include "tools/cli/synth/random_weights.h"
#include "tools/cli/terminal.h"

namespace command::synth {

namespace {

static_assert(std::endian::native == std::endian::little, "weights are written as they lie");

constexpr uint64_t kPartElements = 1 << 21; // elements that one thread writes at a time

// Part of a tensor, and its place in a file.
struct Part {
    const TensorPlan *tensor;
    uint64_t begin, count; // elements
    int file;
    uint64_t offset; // in the file
};

struct File {
    int descriptor;
    std::string path;

    explicit File(const std::string &name)
        : descriptor(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
          path(name) {
        if (descriptor < 0) {
            fail();
        }
    }
    ~File() { close(descriptor); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    [[noreturn]] void fail() const { throw Failure(path + ": " + std::strerror(errno)); }
};

// Returns false, with errno set, if not all bytes could be written.
bool write_at(int file, const void *data, size_t size, uint64_t offset) {
    const char *bytes = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t count = pwrite(file, bytes, size, static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        bytes += count;
        size -= static_cast<size_t>(count);
        offset += static_cast<uint64_t>(count);
    }
    return true;
}

// Tensors [begin, end) of the shape, which make one file.
struct Shard {
    size_t begin, end;
};

// Cuts the tensors into shards of at most kShardBytes.
std::vector<Shard> cut(const Shape &shape) {
    std::vector<Shard> shards{{0, 0}};
    uint64_t bytes = 0;
    for (size_t i = 0; i < shape.tensors.size(); ++i) {
        const TensorPlan &tensor = shape.tensors[i];
        const uint64_t tensor_bytes = tensor.element_bytes() * tensor.elements();
        if (bytes + tensor_bytes > kShardBytes) {
            shards.push_back({i, i});
            bytes = 0;
        }
        bytes += tensor_bytes;
        shards.back().end = i + 1;
    }
    return shards;
}

std::string shard_name(size_t index, size_t count) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
    return count == 1 ? "model.safetensors" : name;
}

std::string header_of(const Shape &shape, const Shard &shard) {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    uint64_t at = 0;
    for (size_t i = shard.begin; i < shard.end; ++i) {
        const TensorPlan &tensor = shape.tensors[i];
        const uint64_t end = at + tensor.element_bytes() * tensor.elements();
        header[tensor.name] = {{"dtype", tensor.bits == 0 ? "BF16" : "U8"},
                               {"shape", tensor.shape},
                               {"data_offsets", {at, end}}};
        at = end;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

std::vector<Part> parts_of(const Shape &shape, const Shard &shard, int file, uint64_t offset) {
    std::vector<Part> parts;
    for (size_t i = shard.begin; i < shard.end; ++i) {
        const TensorPlan &tensor = shape.tensors[i];
        const uint64_t elements = tensor.elements(), bytes = tensor.element_bytes();
        for (uint64_t begin = 0; begin < elements; begin += kPartElements) {
            const uint64_t count = std::min(kPartElements, elements - begin);
            parts.push_back({&tensor, begin, count, file, offset + bytes * begin});
        }
        offset += bytes * elements;
    }
    return parts;
}

// Writes the parts on all cores. Returns the first error number of any thread, or 0.
int write_parts(const std::vector<Part> &parts, const std::atomic<bool> &stop) {
    std::atomic<size_t> next{0};
    std::atomic<int> error{0};
    const auto work = [&] {
        std::vector<uint16_t> weights(kPartElements);
        for (size_t i = next++; i < parts.size() && error == 0 && !stop; i = next++) {
            const Part &part = parts[i];
            if (part.tensor->bits == 0) {
                fill(*part.tensor, part.begin, part.count, weights.data());
            } else {
                fill(*part.tensor, part.begin, part.count,
                     reinterpret_cast<uint8_t *>(weights.data()));
            }
            if (!write_at(part.file, weights.data(), part.tensor->element_bytes() * part.count,
                          part.offset)) {
                error = errno;
            }
        }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) {
        threads.emplace_back(work);
    }
    work();
    threads.clear(); // joins
    return error;
}

void write_shard(const Shape &shape, const Shard &shard, const std::string &path,
                 const std::atomic<bool> &stop) {
    const File file(path);
    const std::string header = header_of(shape, shard);
    const uint64_t header_bytes = header.size();
    if (!write_at(file.descriptor, &header_bytes, sizeof header_bytes, 0) ||
        !write_at(file.descriptor, header.data(), header.size(), sizeof header_bytes)) {
        file.fail();
    }
    const std::vector<Part> parts =
        parts_of(shape, shard, file.descriptor, sizeof header_bytes + header_bytes);
    errno = write_parts(parts, stop);
    if (errno != 0) {
        file.fail();
    }
    if (stop) {
        throw Failure("interrupted");
    }
}

void write_index(const Shape &shape, const std::vector<Shard> &shards, uint64_t bytes,
                 const std::string &folder) {
    Json map = Json::object();
    for (size_t s = 0; s < shards.size(); ++s) {
        for (size_t i = shards[s].begin; i < shards[s].end; ++i) {
            map[shape.tensors[i].name] = shard_name(s, shards.size());
        }
    }
    const Json index = {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}};
    write_file(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

} // namespace

void write_file(const std::string &path, const std::string &content) {
    const File file(path);
    if (!write_at(file.descriptor, content.data(), content.size(), 0)) {
        file.fail();
    }
}

uint64_t write_weights(const Shape &shape, const std::string &folder,
                       const std::atomic<bool> &stop) {
    const std::vector<Shard> shards = cut(shape);
    uint64_t bytes = 0;
    for (const TensorPlan &tensor : shape.tensors) {
        bytes += tensor.element_bytes() * tensor.elements();
    }
    for (size_t i = 0; i < shards.size(); ++i) {
        write_shard(shape, shards[i], folder + "/" + shard_name(i, shards.size()), stop);
    }
    if (shards.size() > 1) {
        write_index(shape, shards, bytes, folder);
    }
    return bytes;
}

} // namespace command::synth
