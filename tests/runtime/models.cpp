// Golden values of the bundled models.
#include <fstream>
#include <iterator>

#include "tests/runtime/json_data.h"
#include "tests/runtime/models.h"

namespace stasis::test {

Golden golden(const std::string &name) {
    std::ifstream file(directory(name) + "/golden.safetensors", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    const auto read = [&]<typename T>(const char *tensor, std::vector<T> &values) {
        const size_t begin = header[tensor]["data_offsets"][0],
                     end = header[tensor]["data_offsets"][1];
        values.resize((end - begin) / sizeof(T));
        std::memcpy(values.data(), bytes.data() + 8 + header_bytes + begin, end - begin);
    };
    Golden golden;
    read("ids", golden.ids);
    read("logits_bf16p", golden.logits_bf16p);
    read("argmax", golden.argmax);
    read("nll", golden.nll);
    const auto facts = read_json(directory(name) + "/golden.json");
    golden.kept = facts["kept"];
    golden.vocabulary = facts["vocab"];
    golden.rms = facts["rms_bf16p_minus_bf16in"];
    golden.max = facts["max_bf16p_minus_bf16in"];
    golden.rms_most = facts.value("tolerance_rms", 1.5 * golden.rms);
    golden.max_most = facts.value("tolerance_max", 2.5 * golden.max);
    return golden;
}

} // namespace stasis::test
