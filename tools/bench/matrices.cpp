// See matrices.h. A safetensors file begins with the size of its header (u64, little-endian), then
// the header, a JSON object of name -> {dtype, shape, data_offsets}
// (github.com/huggingface/safetensors, "Format"). GGUF's is read in gguf_tensors.cpp.
#include "tools/bench/matrices.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/bench/gguf_tensors.h"
#include "tools/cli/model.h"
#include "tools/cli/terminal.h"

namespace command::bench {

namespace {

Json read_header(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    uint64_t size = 0;
    file.read(reinterpret_cast<char *>(&size), sizeof size);
    std::string text(file ? size : 0, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file) {
        throw Failure(path + ": the header cannot be read");
    }
    return Json::parse(text);
}

// As the library chooses them: the one file, or what the index names.
std::set<std::string> files_of(const std::string &directory) {
    const std::string single = directory + "/model.safetensors";
    if (std::filesystem::exists(single)) {
        return {single};
    }
    std::set<std::string> files;
    const Json index = Json::parse(read_file(single + ".index.json"));
    for (const auto &[name, file] : index.at("weight_map").items()) {
        files.insert(directory + "/" + file.get<std::string>());
    }
    return files;
}

Matrices measure_directory(const std::string &directory, uint64_t head) {
    Matrices total;
    for (const std::string &path : files_of(directory)) {
        const Json header = read_header(path);
        for (const auto &[name, tensor] : header.items()) {
            if (name == "__metadata__") {
                continue;
            }
            const auto offsets = tensor.at("data_offsets").get<std::vector<uint64_t>>();
            const auto shape = tensor.at("shape").get<std::vector<uint64_t>>();
            total.file_bytes += offsets[1] - offsets[0];
            if (shape.size() == 2 && name.find("vision_tower") == std::string::npos &&
                name.find("multi_modal") == std::string::npos) {
                const uint64_t elements = shape[0] * shape[1];
                const bool mapped = tensor.at("dtype").get<std::string>() == "BF16";
                const bool rows = name.ends_with("embed_tokens.weight"); // kept in f32 as well
                total.copied += mapped ? 0 : elements * (sizeof(uint16_t) + (rows ? 4 : 0));
                total.layers += name.find(".layers.") != std::string::npos ? elements : 0;
            }
        }
    }
    total.token_bytes = (total.layers + head) * sizeof(uint16_t);
    return total;
}

Matrices measure_gguf(const std::string &path) {
    constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 30;
    Matrices total;
    uint64_t embeddings = 0, head = 0, looked_up = 0; // in integers: copied only as a head
    for (const GgufTensor &tensor : read_gguf_tensors(path)) {
        total.file_bytes += tensor.bytes;
        if (tensor.dimensions != 2) {
            continue;
        }
        const bool converted = tensor.type == kF32 || tensor.type == kF16;
        const uint64_t bytes = converted ? tensor.elements * sizeof(uint16_t) : tensor.bytes;
        total.copied += tensor.type == kBf16 ? 0 : bytes;
        if (tensor.name.starts_with("blk.")) {
            total.layers += tensor.elements;
            total.token_bytes += bytes;
        } else if (tensor.name == "token_embd.weight") {
            embeddings = bytes;
            looked_up = tensor.type == kBf16 || converted ? 0 : bytes;
            total.copied += converted ? tensor.elements * sizeof(float) : 0; // looked up in f32
        } else if (tensor.name == "output.weight") {
            head = bytes;
        }
    }
    total.token_bytes += head != 0 ? head : embeddings;
    total.copied -= head != 0 ? looked_up : 0;
    return total;
}

} // namespace

Matrices measure_matrices(const std::string &path, uint64_t head) {
    return std::filesystem::is_directory(path) ? measure_directory(path, head) : measure_gguf(path);
}

} // namespace command::bench
