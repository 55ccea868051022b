// See matrices.h. A safetensors file begins with the size of its header (u64, little-endian), then
// the header, a JSON object of name -> {dtype, shape, data_offsets}
// (github.com/huggingface/safetensors, "Format"). GGUF's is read in gguf_tensors.cpp.
#include "tools/bench/matrices.h"

#include <algorithm>
#include <cmath>
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

// What a config says that the tensors do not.
struct Sizes {
    uint64_t experts = 0, chosen = 0;
    uint64_t key_dim = 0; // of a recurrent layer's head
};

// Adds up the tensors of the layers.
struct Sum {
    Matrices total;
    Sizes sizes;
    bool coded = false;
    uint64_t expert_elements = 0;

    // Of numbers of bf16, as a product reads them.
    uint64_t bf16_bytes(uint64_t elements) const {
        constexpr uint64_t kCodedBits = 12, kBits = 16;
        return elements * (coded ? kCodedBits : kBits) / 8;
    }
    void layer_matrix(uint64_t elements, uint64_t bytes, bool expert) {
        (expert ? expert_elements : total.layers) += elements;
        (expert ? total.expert_bytes : total.token_bytes) += bytes;
    }
    // One that a recurrent layer alone has.
    void state_vector(const std::string &name, uint64_t elements, uint64_t taps) {
        const bool rates = name.ends_with(".A_log") || name.ends_with(".ssm_a");
        const bool inputs = name.ends_with("conv1d.weight");
        total.recurrent_layers += rates ? 1 : 0;
        if (inputs) { // the last inputs, all but one of the taps'
            total.state_bytes += elements / taps * (taps - 1) * sizeof(float);
        }
    }
    // The states of the rule, as large as the values times a key: `values` of all heads.
    void rule_states(uint64_t values) {
        total.state_bytes += values * sizes.key_dim * sizeof(float);
    }
    Matrices finish() {
        total.experts = sizes.experts;
        total.chosen = sizes.chosen;
        if (sizes.experts != 0) {
            total.layers += expert_elements * sizes.chosen / sizes.experts;
            total.token_bytes += total.expert_bytes * sizes.chosen / sizes.experts;
        }
        return total;
    }
};

Sizes sizes_of_directory(const std::string &directory) {
    const Json config = Json::parse(read_file(directory + "/config.json"));
    const Json &text = config.contains("text_config") ? config.at("text_config") : config;
    const auto first = [&](std::initializer_list<const char *> keys) {
        for (const char *key : keys) {
            if (text.contains(key) && text.at(key).is_number_unsigned()) { // null: none
                return text.at(key).get<uint64_t>();
            }
        }
        return uint64_t{0};
    };
    return {first({"num_experts", "num_local_experts"}),
            first({"num_experts_per_tok", "top_k_experts"}), first({"linear_key_head_dim"})};
}

// Beside the layers, what Gemma 4 computes their inputs with.
constexpr char kLayerInputs[] = "per_layer_model_projection.weight";

bool is_of_text_layer(const std::string &name) {
    return name.find(".layers.") != std::string::npos && !name.starts_with("mtp.");
}

Matrices measure_directory(const std::string &directory, uint64_t head, bool coded) {
    Sum sum{{}, sizes_of_directory(directory), coded};
    for (const std::string &path : files_of(directory)) {
        const Json header = read_header(path);
        for (const auto &[name, tensor] : header.items()) {
            if (name == "__metadata__") {
                continue;
            }
            const auto offsets = tensor.at("data_offsets").get<std::vector<uint64_t>>();
            const auto shape = tensor.at("shape").get<std::vector<uint64_t>>();
            sum.total.file_bytes += offsets[1] - offsets[0];
            const bool tower = name.find("visual.") != std::string::npos ||
                               name.find("vision_tower") != std::string::npos ||
                               name.find("multi_modal") != std::string::npos;
            uint64_t elements = 1;
            for (const uint64_t dimension : shape) {
                elements *= dimension;
            }
            const bool in_layer = is_of_text_layer(name) && !tower;
            const bool expert = name.find(".experts.") != std::string::npos;
            if (tensor.at("dtype").get<std::string>() ==
                "U8") { // MXFP4: two values a byte, and scales
                sum.total.copied += elements;
                sum.layer_matrix(name.ends_with("_blocks") ? 2 * elements : 0, elements, expert);
            } else if ((shape.size() == 2 || expert) && !tower) {
                const bool mapped = tensor.at("dtype").get<std::string>() == "BF16";
                const bool rows = name.ends_with("embed_tokens.weight"); // kept in f32 as well
                sum.total.copied += mapped ? 0 : elements * (sizeof(uint16_t) + (rows ? 4 : 0));
                const uint64_t bytes =
                    mapped ? sum.bf16_bytes(elements) : elements * sizeof(uint16_t);
                if (in_layer) {
                    sum.layer_matrix(elements, bytes, expert);
                } else if (name.ends_with(kLayerInputs)) {
                    sum.layer_matrix(elements, bytes, false);
                }
            } else if (in_layer) {
                sum.state_vector(name, elements, shape.back());
            }
            if (in_layer && name.ends_with("linear_attn.in_proj_z.weight")) {
                sum.rule_states(shape[0]);
            }
        }
    }
    sum.total.token_bytes += sum.bf16_bytes(head);
    return sum.finish();
}

// Beside the layers, what Gemma 4 computes their inputs with, and the rows that it looks up.
constexpr char kGgufLayerInputs[] = "per_layer_model_proj.weight";
constexpr char kGgufLayerTokens[] = "per_layer_token_embd.weight";

Matrices measure_gguf(const std::string &path, bool coded) {
    constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 30;
    const GgufHeader header = read_gguf_header(path);
    const auto count = [&](const char *key) {
        const auto found = header.counts.find(key);
        return found == header.counts.end() ? 0 : found->second;
    };
    const uint64_t taps = std::max<uint64_t>(1, count("ssm.conv_kernel"));
    Sum sum{
        {}, {count("expert_count"), count("expert_used_count"), count("ssm.state_size")}, coded};
    Matrices &total = sum.total;
    uint64_t embeddings = 0, head = 0, looked_up = 0; // in integers: copied only as a head
    for (const GgufTensor &tensor : header.tensors) {
        total.file_bytes += tensor.bytes;
        const bool in_layer = tensor.name.starts_with("blk.");
        if (tensor.dimensions < 2 || tensor.name.ends_with("ssm_conv1d.weight")) {
            sum.state_vector(tensor.name, tensor.elements, taps);
            continue;
        }
        if (tensor.name == kGgufLayerTokens) {
            continue; // neither copied nor read whole
        }
        const bool converted = tensor.type == kF32 || tensor.type == kF16;
        const uint64_t bytes = converted              ? tensor.elements * sizeof(uint16_t)
                               : tensor.type == kBf16 ? sum.bf16_bytes(tensor.elements)
                                                      : tensor.bytes;
        total.copied += tensor.type == kBf16 ? 0 : bytes;
        if (in_layer) {
            sum.layer_matrix(tensor.elements, bytes,
                             tensor.name.find("_exps.") != std::string::npos);
            if (tensor.name.ends_with(".ssm_out.weight")) {
                sum.rule_states(count("ssm.inner_size"));
            }
        } else if (tensor.name == kGgufLayerInputs) {
            sum.layer_matrix(tensor.elements, bytes, false);
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
    return sum.finish();
}

} // namespace

double Matrices::step_bytes(uint64_t tokens) const {
    if (experts == 0) {
        return static_cast<double>(token_bytes);
    }
    const double share = static_cast<double>(chosen) / static_cast<double>(experts);
    const double all = static_cast<double>(expert_bytes);
    const double read = 1 - std::pow(1 - share, static_cast<double>(tokens));
    return static_cast<double>(token_bytes) + all * (read - share);
}

Matrices measure_matrices(const std::string &path, uint64_t head, bool coded) {
    return std::filesystem::is_directory(path) ? measure_directory(path, head, coded)
                                               : measure_gguf(path, coded);
}

} // namespace command::bench
