// Any GGUF file ends in a description whose sizes fit each other and in weights within it, or in an
// Error with a reason. The input describes a small model and changes to it: keys are set or
// removed, tensors get other types, shapes, names and bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "format/state/error.h"
#include "runtime/host/threads.h"
#include "runtime/model/gguf/checkpoint.h"
#include "runtime/model/gguf/config.h"
#include "runtime/model/model_file.h"
#include "runtime/model/rope.h"
#include "runtime/model/weights.h"
#include "tests/fuzz/description.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"
#include "tests/runtime/gguf_writer.h"

using namespace stasis;

namespace {

using Type = GgufValueType;

// Of the supported ones one with each kind of layer, and one that is not. In the order in which
// they came, so that what a stored input says stays.
constexpr const char *kArchitectures[] = {"llama",    "gemma3", "qwen2",   "qwen3",
                                          "phi3",     "mamba",  "qwen35",  "smollm3",
                                          "mistral3", "olmo2",  "gpt-oss", "lfm2"};

// Keys that a description may have, those of architectures without theirs.
constexpr const char *kKeys[] = {"block_count",
                                 "embedding_length",
                                 "attention.head_count",
                                 "attention.head_count_kv",
                                 "attention.key_length",
                                 "attention.value_length",
                                 "rope.dimension_count",
                                 "feed_forward_length",
                                 "context_length",
                                 "vocab_size",
                                 "expert_count",
                                 "attention.sliding_window",
                                 "attention.sliding_window_pattern",
                                 "attention.layer_norm_rms_epsilon",
                                 "attention.scale",
                                 "attn_logit_softcapping",
                                 "final_logit_softcapping",
                                 "rope.freq_base",
                                 "rope.freq_base_swa",
                                 "rope.scaling.type",
                                 "rope.scaling.factor",
                                 "rope.scale_linear",
                                 "rope.scaling.attn_factor",
                                 "rope.scaling.original_context_length",
                                 "rope.scaling.yarn_attn_factor",
                                 "rope.scaling.yarn_beta_fast",
                                 "rope.scaling.yarn_beta_slow",
                                 "rope.scaling.yarn_ext_factor",
                                 "rope.scaling.yarn_log_multiplier",
                                 "logit_scale",
                                 "attention.causal",
                                 "use_parallel_residual",
                                 ":general.architecture",
                                 ":tokenizer.ggml.bos_token_id",
                                 ":tokenizer.ggml.eos_token_id",
                                 ":tokenizer.ggml.eot_token_id",
                                 ":general.alignment",
                                 "ssm.conv_kernel",
                                 "ssm.state_size",
                                 "ssm.group_count",
                                 "ssm.time_step_rank",
                                 "ssm.inner_size",
                                 "full_attention_interval",
                                 "attention.recurrent_layers",
                                 "nextn_predict_layers",
                                 "shortconv.l_cache",
                                 "expert_used_count",
                                 "expert_feed_forward_length",
                                 "expert_weights_norm",
                                 "expert_gating_func"};

struct Value {
    Type type;
    std::string bytes;
};

struct Tensor {
    GgufType type;
    std::vector<uint64_t> shape;
    std::string bytes;
};

struct Draft {
    std::map<std::string, Value> keys;
    std::map<std::string, Tensor> tensors;
};

void integer(Draft &draft, const std::string &key, uint32_t value) {
    draft.keys[key] = {Type::u32, gguf_number(value)};
}

void tensor(Draft &draft, const std::string &name, GgufType type,
            const std::vector<uint64_t> &shape) {
    uint64_t elements = 1;
    for (const uint64_t dimension : shape) {
        elements *= dimension;
    }
    const GgufBlock block = gguf_block(type);
    draft.tensors[name] = {type, shape,
                           std::string(elements / block.elements * block.size_bytes, 0)};
}

// The other layer of a hybrid: the first is recurrent, this has attention.
void second_layer(Draft &draft, GgufType type, uint32_t width) {
    const uint64_t query_size = uint64_t{2} * width; // with the output gate
    tensor(draft, "blk.1.attn_q.weight", type, {width, query_size});
    for (const char *name : {"attn_k", "attn_v"}) {
        tensor(draft, std::string("blk.1.") + name + ".weight", type, {width, width / 2});
    }
    for (const char *name : {"attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
        tensor(draft, std::string("blk.1.") + name + ".weight", type, {width, width});
    }
    for (const char *norm : {"attn_norm", "post_attention_norm"}) {
        tensor(draft, std::string("blk.1.") + norm + ".weight", GgufType::f32, {width});
    }
    for (const char *norm : {"attn_q_norm", "attn_k_norm"}) {
        tensor(draft, std::string("blk.1.") + norm + ".weight", GgufType::f32, {width / 4});
    }
}

Draft small_hybrid(GgufType type) {
    const uint32_t width = gguf_block(type).elements == 256 ? 256 : 32;
    const std::string layer = "blk.0.";
    Draft draft;
    draft.keys[":general.architecture"] = {Type::string, gguf_text("qwen35")};
    for (const auto &[key, value] : {std::pair{"block_count", 2U},
                                     {"embedding_length", width},
                                     {"attention.head_count", 4U},
                                     {"attention.head_count_kv", 2U},
                                     {"feed_forward_length", width},
                                     {"context_length", 64U},
                                     {"full_attention_interval", 2U},
                                     {"rope.dimension_count", 4U},
                                     {"ssm.conv_kernel", 2U},
                                     {"ssm.state_size", 4U},
                                     {"ssm.group_count", 2U},
                                     {"ssm.time_step_rank", 4U},
                                     {"ssm.inner_size", width}}) {
        integer(draft, key, value);
    }
    draft.keys["attention.layer_norm_rms_epsilon"] = {Type::f32, gguf_number(1e-5F)};
    tensor(draft, "token_embd.weight", type, {width, 8});
    for (const char *name : {"attn_gate", "ssm_out", "ffn_gate", "ffn_up", "ffn_down"}) {
        tensor(draft, layer + name + ".weight", type, {width, width});
    }
    tensor(draft, layer + "attn_qkv.weight", type, {width, 16 + width});
    tensor(draft, layer + "ssm_alpha.weight", type, {width, 4});
    tensor(draft, layer + "ssm_beta.weight", type, {width, 4});
    tensor(draft, layer + "ssm_conv1d.weight", GgufType::f32, {2, 16 + width});
    tensor(draft, layer + "ssm_a", GgufType::f32, {4});
    tensor(draft, layer + "ssm_dt.bias", GgufType::f32, {4});
    tensor(draft, layer + "ssm_norm.weight", GgufType::f32, {width / 4});
    tensor(draft, layer + "attn_norm.weight", GgufType::f32, {width});
    tensor(draft, layer + "post_attention_norm.weight", GgufType::f32, {width});
    tensor(draft, "output_norm.weight", GgufType::f32, {width});
    second_layer(draft, type, width);
    return draft;
}

// The sizes that all small models have; keys and tensors that an architecture lacks are not there.
Draft sizes(const std::string &architecture, uint32_t layers, uint32_t width) {
    Draft draft;
    draft.keys[":general.architecture"] = {Type::string, gguf_text(architecture)};
    for (const auto &[key, value] : {std::pair{"block_count", layers},
                                     {"embedding_length", width},
                                     {"attention.head_count", 4U},
                                     {"attention.head_count_kv", 2U},
                                     {"feed_forward_length", width},
                                     {"context_length", 64U}}) {
        integer(draft, key, value);
    }
    draft.keys["attention.layer_norm_rms_epsilon"] = {Type::f32, gguf_number(1e-5F)};
    return draft;
}

void attention(Draft &draft, const std::string &layer, GgufType type, uint32_t width) {
    for (const char *name : {"attn_q", "attn_output"}) {
        tensor(draft, layer + name + ".weight", type, {width, width});
    }
    for (const char *name : {"attn_k", "attn_v"}) {
        tensor(draft, layer + name + ".weight", type, {width, width / 2});
    }
}

// A layer with a mixture of experts, sinks and biases.
Draft small_gpt_oss(GgufType type) {
    const uint32_t width = gguf_block(type).elements == 256 ? 256 : 32, experts = 4;
    const std::string layer = "blk.0.";
    Draft draft = sizes("gpt-oss", 1, width);
    for (const auto &[key, value] : {std::pair{"expert_count", experts},
                                     {"expert_used_count", 2U},
                                     {"expert_feed_forward_length", width},
                                     {"attention.sliding_window", 16U},
                                     {"attention.key_length", width / 4}}) {
        integer(draft, key, value);
    }
    tensor(draft, "token_embd.weight", type, {width, 8});
    tensor(draft, "output.weight", type, {width, 8});
    attention(draft, layer, type, width);
    for (const char *name : {"attn_q", "attn_output", "attn_k", "attn_v"}) {
        const uint32_t rows = name[5] == 'k' || name[5] == 'v' ? width / 2 : width;
        tensor(draft, layer + name + ".bias", GgufType::f32, {rows});
    }
    tensor(draft, layer + "attn_sinks.weight", GgufType::f32, {4});
    tensor(draft, layer + "ffn_gate_inp.weight", GgufType::f32, {width, experts});
    tensor(draft, layer + "ffn_gate_inp.bias", GgufType::f32, {experts});
    for (const char *name : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
        tensor(draft, layer + name + ".weight", type, {width, width, experts});
        tensor(draft, layer + name + ".bias", GgufType::f32, {width, experts});
    }
    for (const std::string &norm :
         {layer + "attn_norm", layer + "post_attention_norm", std::string("output_norm")}) {
        tensor(draft, norm + ".weight", GgufType::f32, {width});
    }
    return draft;
}

// A short convolution, and a layer with attention.
Draft small_lfm2(GgufType type) {
    const uint32_t width = gguf_block(type).elements == 256 ? 256 : 32;
    Draft draft = sizes("lfm2", 2, width);
    draft.keys["attention.head_count_kv"] = {
        Type::array, gguf_array(Type::u32, 2, gguf_number(0U) + gguf_number(2U))};
    integer(draft, "shortconv.l_cache", 3);
    tensor(draft, "token_embd.weight", type, {width, 8});
    tensor(draft, "token_embd_norm.weight", GgufType::f32, {width});
    for (const std::string layer : {"blk.0.", "blk.1."}) {
        for (const char *name : {"ffn_gate", "ffn_up", "ffn_down"}) {
            tensor(draft, layer + name + ".weight", type, {width, width});
        }
        for (const char *norm : {"attn_norm", "ffn_norm"}) {
            tensor(draft, layer + norm + ".weight", GgufType::f32, {width});
        }
    }
    tensor(draft, "blk.0.shortconv.in_proj.weight", type, {width, 3 * width});
    tensor(draft, "blk.0.shortconv.out_proj.weight", type, {width, width});
    tensor(draft, "blk.0.shortconv.conv.weight", GgufType::f32, {3, width});
    attention(draft, "blk.1.", type, width);
    for (const char *norm : {"attn_q_norm", "attn_k_norm"}) {
        tensor(draft, std::string("blk.1.") + norm + ".weight", GgufType::f32, {width / 4});
    }
    return draft;
}

// One layer; what the architecture has of biases and norms is there.
Draft small_model(const std::string &architecture, GgufType type) {
    const bool gemma = architecture == "gemma3", phi = architecture == "phi3";
    const bool olmo = architecture == "olmo2"; // norms after, and over all heads together
    const bool normed = gemma || olmo || architecture == "qwen3";
    const std::string prefix = architecture + ".", layer = "blk.0.";
    const uint32_t width = gguf_block(type).elements == 256 ? 256 : 32;
    Draft draft;
    draft.keys[":general.architecture"] = {Type::string, gguf_text(architecture)};
    for (const auto &[key, value] : {std::pair{"block_count", 1U},
                                     {"embedding_length", width},
                                     {"attention.head_count", 4U},
                                     {"attention.head_count_kv", 2U},
                                     {"feed_forward_length", width},
                                     {"context_length", 64U},
                                     {"attention.sliding_window", 16U}}) {
        integer(draft, key, value);
    }
    draft.keys["attention.layer_norm_rms_epsilon"] = {Type::f32, gguf_number(1e-5F)};
    tensor(draft, "token_embd.weight", type, {width, 8});
    tensor(draft, layer + "attn_output.weight", type, {width, width});
    tensor(draft, layer + "ffn_down.weight", type, {width, width});
    if (phi) {
        tensor(draft, layer + "attn_qkv.weight", type, {width, 2 * width});
        tensor(draft, layer + "ffn_up.weight", type, {width, 2 * width});
    } else {
        tensor(draft, layer + "attn_q.weight", type, {width, width});
        tensor(draft, layer + "attn_k.weight", type, {width, width / 2});
        tensor(draft, layer + "attn_v.weight", type, {width, width / 2});
        tensor(draft, layer + "ffn_gate.weight", type, {width, width});
        tensor(draft, layer + "ffn_up.weight", type, {width, width});
    }
    for (const char *norm : {"attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"}) {
        if (norm[0] == 'p' ? gemma || olmo : !olmo) {
            tensor(draft, layer + norm + ".weight", GgufType::f32, {width});
        }
    }
    if (normed) {
        tensor(draft, layer + "attn_q_norm.weight", GgufType::f32, {olmo ? width : width / 4});
        tensor(draft, layer + "attn_k_norm.weight", GgufType::f32, {width / (olmo ? 2 : 4)});
    }
    tensor(draft, "output_norm.weight", GgufType::f32, {width});
    return draft;
}

Value any_value(Description &reader) {
    switch (reader.byte() % 8) {
    case 0:
        return {Type::u32, gguf_number(static_cast<uint32_t>(reader.number()))};
    case 1:
        return {Type::u64, gguf_number(reader.number())};
    case 2:
        return {Type::i32, gguf_number(static_cast<int32_t>(reader.number()))};
    case 3: {
        const std::string bits = reader.bytes(4);
        return {Type::f32, bits + std::string(4 - bits.size(), '\0')};
    }
    case 4:
        return {Type::boolean, std::string(1, static_cast<char>(reader.byte() % 2))};
    case 5:
        return {Type::string, gguf_text(reader.bytes(reader.byte() % 16))};
    case 6: {
        std::string bytes;
        const uint64_t count = reader.byte() % 8;
        for (uint64_t i = 0; i < count; ++i) {
            bytes += gguf_number(static_cast<uint32_t>(reader.number()));
        }
        return {Type::array, gguf_array(Type::u32, count, bytes)};
    }
    default: {
        std::string bytes;
        const uint64_t count = reader.byte() % 8;
        for (uint64_t i = 0; i < count; ++i) {
            bytes += static_cast<char>(reader.byte() % 2);
        }
        return {Type::array, gguf_array(Type::boolean, count, bytes)};
    }
    }
}

// The tensor at some place, by name.
std::map<std::string, Tensor>::iterator any_tensor(Draft &draft, Description &reader) {
    return std::next(draft.tensors.begin(),
                     static_cast<ptrdiff_t>(reader.byte() % draft.tensors.size()));
}

void change(Draft &draft, Description &reader) {
    const uint8_t what = reader.byte() % 8;
    if (what < 3) {
        const char *key = kKeys[reader.byte() % std::size(kKeys)];
        what == 0 ? void(draft.keys.erase(key)) : void(draft.keys[key] = any_value(reader));
        return;
    }
    if (draft.tensors.empty()) {
        return;
    }
    const auto found = any_tensor(draft, reader);
    Tensor &entry = found->second;
    if (what == 3) {
        entry.type = static_cast<GgufType>(reader.byte() % 44);
    } else if (what == 4) {
        entry.shape.at(reader.byte() % entry.shape.size()) = reader.number();
    } else if (what == 5) {
        const size_t at = reader.byte() * 37U % std::max<size_t>(entry.bytes.size(), 1);
        entry.bytes.replace(std::min(at, entry.bytes.size()), 2, reader.bytes(2));
    } else if (what == 6) { // of another size, and to a fitting one
        entry.bytes.resize(reader.byte() * 64U);
    } else { // under another name as well, or only there
        const Tensor copy = entry;
        const char *names[] = {"output.weight",
                               "rope_freqs.weight",
                               "blk.1.attn_q.weight",
                               "blk.0.attn_q.bias",
                               "blk.0.attn_k.bias",
                               "blk.0.attn_v.bias",
                               "blk.0.ffn_gate.bias",
                               "blk.0.ffn_gate.weight",
                               "blk.0.attn_sinks.weight",
                               "blk.0.ffn_gate_up_exps.weight",
                               "blk.0.shortconv.conv.weight",
                               "blk.0.ffn_up_exps.bias"};
        const uint8_t name = reader.byte();
        if ((name & 0x80) != 0) {
            draft.tensors.erase(found);
        }
        draft.tensors[name % 16 < std::size(names) ? names[name % 16] : reader.bytes(8)] = copy;
    }
}

std::string written(const Draft &draft, const std::string &architecture) {
    GgufWriter writer;
    for (const auto &[key, value] : draft.keys) {
        writer.pair(key[0] == ':' ? key.substr(1) : architecture + "." + key, value.type,
                    value.bytes);
    }
    for (const auto &[name, tensor] : draft.tensors) {
        writer.tensor(name, tensor.type, tensor.shape, tensor.bytes);
    }
    return writer.bytes();
}

void check(const Config &config) {
    fuzz::expect(config.layer.size() == config.layers && config.layers > 0, "layers");
    fuzz::expect(config.head_dim % 2 == 0 && config.head_dim <= kHeadDimMax &&
                     config.heads % config.kv_heads == 0 && config.vocabulary > 0,
                 "heads");
    for (const LayerConfig &layer : config.layer) {
        fuzz::expect(layer.rope < config.ropes.size(), "a layer without a rope");
    }
    for (const Rope &rope : config.ropes) {
        fuzz::expect(rope_frequencies(rope, config.rotary()).size() == config.rotary() / 2,
                     "a rope of another size than a head");
    }
    const Recurrent &sizes = config.recurrent;
    const bool grouped = sizes.key_heads == 0 // short convolutions
                         || sizes.value_heads % sizes.key_heads == 0;
    fuzz::expect(sizes.value_heads == 0 || (grouped && sizes.taps > 1 && sizes.value_dim > 0),
                 "recurrent layers");
    fuzz::expect(!describe(config).empty(), "a config without a description");
}

void load(const std::string &file) {
    static Threads threads(1);
    static const fuzz::Folder folder;
    folder.write("fuzz.gguf", file);
    const Memory heap;
    ModelIdentity identity;
    const fuzz::Meter meter(16 * file.size() + (4 << 20)); // and of layers, a bounded many;
    const GgufFile gguf = open_gguf(folder.path() + "/fuzz.gguf");
    const Config config = read_config(gguf);
    check(config);
    const Weights weights =
        load_weights(checkpoint_of(gguf, config), config, {heap}, threads, {}, identity);
    if (weights.embedding_blocks != nullptr) {
        const Matrix &rows = weights.embeddings;
        const size_t bytes = rows.rows * kernels::quant_row_bytes(rows.quant, rows.columns);
        const uint8_t *begin = gguf.files[0]->map(), *end = begin + file.size();
        fuzz::expect(weights.embedding_blocks >= begin &&
                         bytes <= size_t(end - weights.embedding_blocks),
                     "blocks outside the file");
    }
    for (uint32_t i = 0; i < config.layers; ++i) {
        const LayerWeights &layer = weights.layers[i];
        const RecurrentWeights &recurrent = layer.recurrent;
        const auto expect_all = [](std::initializer_list<const Matrix *> matrices) {
            for (const Matrix *matrix : matrices) {
                fuzz::expect((matrix->data != nullptr) != (matrix->strips != nullptr), "a matrix");
            }
        };
        if (config.layer[i].experts) {
            fuzz::expect(layer.experts.each.size() == config.experts.count, "experts");
            for (const Mlp &expert : layer.experts.each) {
                expect_all({&expert.gate, &expert.up, &expert.down});
            }
            expect_all({&layer.experts.router});
        } else {
            expect_all({&layer.mlp.gate, &layer.mlp.up, &layer.mlp.down});
        }
        fuzz::expect((layer.sinks != nullptr) ==
                         (config.attention_sinks && !config.layer[i].recurrent),
                     "sinks");
        if (config.layer[i].recurrent) {
            expect_all({&recurrent.input, &recurrent.output});
            fuzz::expect(recurrent.convolution != nullptr, "a convolution");
            if (!config.recurrent.short_convolutions()) {
                expect_all({&recurrent.gate, &recurrent.decay, &recurrent.beta});
            }
        } else {
            expect_all({&layer.query, &layer.key, &layer.value, &layer.output});
        }
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Description reader{{reinterpret_cast<const char *>(data), size}};
    constexpr GgufType kTypes[] = {
        GgufType::bf16, GgufType::f32,    GgufType::f16,    GgufType::q8_0,
        GgufType::q4_0, GgufType::q4_1,   GgufType::q5_0,   GgufType::q5_1,
        GgufType::q4_k, GgufType::q5_k,   GgufType::q6_k,   GgufType::q2_k,
        GgufType::q3_k, GgufType::iq4_nl, GgufType::iq4_xs, GgufType::mxfp4};
    const std::string architecture = kArchitectures[reader.byte() % std::size(kArchitectures)];
    const GgufType type = kTypes[reader.byte() % std::size(kTypes)];
    Draft draft = architecture == "qwen35"    ? small_hybrid(type)
                  : architecture == "gpt-oss" ? small_gpt_oss(type)
                  : architecture == "lfm2"    ? small_lfm2(type)
                                              : small_model(architecture, type);
    while (!reader.input.empty()) {
        change(draft, reader);
    }
    try {
        load(written(draft, architecture));
    } catch (const Error &error) {
        if (error.status() != Status::nonfinite) {
            fuzz::check_refusal(error);
        }
    }
    return 0;
}
