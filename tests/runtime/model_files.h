// For tests of model files: temporary directories, safetensors files written from parts, and a
// check that a call throws the error it should. Owns nothing that the product uses.
#pragma once

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "format/state/error.h"
#include "runtime/model/model_file.h"
#include "runtime/model/safetensors.h"

namespace stasis {

// Calls `call`, which must throw an Error of that status whose message has every one of `parts`.
template <typename Call>
void expect_error(Status status, const std::vector<std::string> &parts, const Call &call) {
    try {
        call();
        FAIL("expected an error of status " << static_cast<int>(status));
    } catch (const Error &error) {
        const std::string message = error.what();
        CAPTURE(message);
        CHECK(static_cast<int>(error.status()) == static_cast<int>(status));
        for (const std::string &part : parts) {
            CAPTURE(part);
            CHECK(message.find(part) != std::string::npos);
        }
    }
}

inline std::string read_bytes(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file.good(), path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write_bytes(const std::string &path, const std::string &bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    REQUIRE_MESSAGE(file.good(), path);
}

class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        path_ = (std::filesystem::temp_directory_path() / "stasis-test-XXXXXX").string();
        REQUIRE(mkdtemp(path_.data()) != nullptr);
    }
    ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
    TemporaryDirectory(const TemporaryDirectory &) = delete;
    TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

    const std::string &path() const { return path_; }
    std::string file(const std::string &name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

struct StoredTensor {
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

// `padding`: spaces at the end of the header, which move the payload.
inline std::string safetensors_bytes(const StoredTensors &tensors, size_t padding = 0) {
    std::string header;
    std::string payload;
    for (const auto &[name, tensor] : tensors) {
        std::string shape;
        for (const uint64_t dimension : tensor.shape) {
            shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
        }
        const std::string begin = std::to_string(payload.size());
        payload += tensor.bytes;
        header += (header.empty() ? "" : ",") + ("\"" + name) + "\":{\"dtype\":\"" + tensor.dtype +
                  "\",\"shape\":[" + shape + "],\"data_offsets\":[" + begin + "," +
                  std::to_string(payload.size()) + "]}";
    }
    header = "{" + header + "}" + std::string(padding, ' ');
    std::string size(8, '\0');
    for (size_t i = 0; i < size.size(); ++i) {
        size[i] = static_cast<char>(header.size() >> (8 * i));
    }
    return size + header + payload;
}

inline std::string stored_bytes(const Tensor &tensor) {
    std::string bytes(tensor.size_bytes, '\0');
    tensor.source->read(bytes.data(), bytes.size(), tensor.offset_bytes);
    return bytes;
}

inline StoredTensors read_tensors_of(const std::string &directory) {
    const Checkpoint checkpoint = open_checkpoint(directory);
    StoredTensors tensors;
    for (const auto &[name, tensor] : checkpoint.tensors) {
        const char *dtype = name_of(tensor.type);
        tensors[name] = {dtype, tensor.shape, stored_bytes(tensor)};
    }
    return tensors;
}

} // namespace stasis
