// See matrices.h. A safetensors file begins with the size of its header (u64, little-endian), then
// the header, a JSON object of name -> {dtype, shape, data_offsets}
// (github.com/huggingface/safetensors, "Format").
#include "tools/bench/matrices.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/model.h"
#include "tools/terminal.h"

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

} // namespace

Matrices measure_matrices(const std::string &directory) {
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
                total.all += elements;
                total.layers += name.find(".layers.") != std::string::npos ? elements : 0;
            }
        }
    }
    return total;
}

} // namespace command::bench
