// The tensors of a golden.safetensors file. In a header of its own, because parsing that of the
// JSON library takes seconds.
#pragma once

#include <cstring>
#include <vector>

#include "tests/runtime/json_data.h"
#include "tests/runtime/model_files.h"

namespace stasis::test {

class GoldenTensors {
  public:
    explicit GoldenTensors(const std::string &directory)
        : bytes_(read_bytes(directory + "/golden.safetensors")) {
        uint64_t header_bytes = 0;
        std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
        begin_ = sizeof header_bytes + header_bytes;
        header_ = nlohmann::json::parse(bytes_.substr(sizeof header_bytes, header_bytes));
    }

    template <typename T> void read(const char *tensor, std::vector<T> &values) const {
        const auto &offsets = header_.at(tensor).at("data_offsets");
        const size_t begin = offsets[0], end = offsets[1];
        values.resize((end - begin) / sizeof(T));
        std::memcpy(values.data(), bytes_.data() + begin_ + begin, end - begin);
    }

  private:
    std::string bytes_;
    size_t begin_ = 0; // of the data
    nlohmann::json header_;
};

} // namespace stasis::test
