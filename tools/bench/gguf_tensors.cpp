// See gguf_tensors.h. Layout: docs/gguf.md of github.com/ggml-org/ggml, versions 2 and 3.
#include "tools/bench/gguf_tensors.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tools/cli/terminal.h"

namespace command::bench {

namespace {

constexpr uint32_t kString = 8, kArray = 9, kUint32 = 4; // types of values

template <typename Number> Number read(std::ifstream &file) {
    Number number{};
    file.read(reinterpret_cast<char *>(&number), sizeof number);
    return number;
}

std::string read_string(std::ifstream &file) {
    std::string text(read<uint64_t>(file), '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
}

void skip_value(std::ifstream &file, uint32_t type) {
    constexpr int kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kString) {
        file.ignore(static_cast<std::streamsize>(read<uint64_t>(file)));
    } else if (type == kArray) {
        const auto of = read<uint32_t>(file);
        for (auto left = read<uint64_t>(file); left > 0 && file; --left) {
            skip_value(file, of);
        }
    } else if (type < std::size(kSizes)) {
        file.ignore(kSizes[type]);
    }
}

GgufTensor read_tensor(std::ifstream &file) {
    GgufTensor tensor;
    tensor.name = read_string(file);
    tensor.dimensions = read<uint32_t>(file);
    for (uint64_t i = 0; i < tensor.dimensions && file; ++i) {
        tensor.elements *= read<uint64_t>(file);
    }
    tensor.type = read<uint32_t>(file);
    tensor.offset = read<uint64_t>(file);
    return tensor;
}

void add_tensors(const std::string &path, GgufHeader &all) {
    std::ifstream file(path, std::ios::binary);
    file.ignore(8); // magic, version
    const auto count = read<uint64_t>(file);
    uint64_t alignment = 32;
    for (auto left = read<uint64_t>(file); left > 0 && file; --left) {
        const std::string key = read_string(file);
        const auto type = read<uint32_t>(file);
        if (type == kUint32) {
            const uint64_t value = read<uint32_t>(file);
            alignment = key == "general.alignment" ? value : alignment;
            all.counts[key.substr(key.find('.') + 1)] = value;
        } else {
            skip_value(file, type);
        }
    }
    std::vector<GgufTensor> tensors;
    while (tensors.size() < count && file) {
        tensors.push_back(read_tensor(file));
    }
    if (!file || alignment == 0) {
        throw Failure(path + ": the header cannot be read");
    }
    const auto header = static_cast<uint64_t>(file.tellg());
    uint64_t end =
        std::filesystem::file_size(path) - (header + alignment - 1) / alignment * alignment;
    std::sort(tensors.begin(), tensors.end(),
              [](const auto &a, const auto &b) { return a.offset > b.offset; });
    for (GgufTensor &tensor : tensors) {
        tensor.bytes = end - tensor.offset;
        end = tensor.offset;
    }
    all.tensors.insert(all.tensors.end(), tensors.begin(), tensors.end());
}

} // namespace

GgufHeader read_gguf_header(const std::string &path) {
    GgufHeader all;
    constexpr size_t kSuffix = std::string_view("-00001-of-00001.gguf").size();
    unsigned count = 0;
    if (path.size() > kSuffix &&
        std::sscanf(path.c_str() + path.size() - kSuffix, "-00001-of-%5u.gguf", &count) == 1) {
        for (unsigned number = 1; number <= count; ++number) {
            char name[64];
            std::snprintf(name, sizeof name, "-%05u-of-%05u.gguf", number, count);
            add_tensors(path.substr(0, path.size() - kSuffix) + name, all);
        }
    } else {
        add_tensors(path, all);
    }
    return all;
}

} // namespace command::bench
