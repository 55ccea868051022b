// The list of tensors that a Config needs, and their places in a checkpoint. Included by
// weights*.cpp and their headers, and by quantize/quantize.cpp. Names follow Hugging Face's
// modeling_llama.py, modeling_gemma3.py, modeling_phi3.py, modeling_qwen3_5.py and
// modeling_granitemoehybrid.py, and for MTP heads vLLM's
// vllm/model_executor/models/qwen3_next_mtp.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"
#include "runtime/model/weights.h"

namespace stasis {

// Groups of the model's identity (format/state/state.h, ModelIdentity), and the MTP head, which is
// not part of it.
enum class WeightGroup { embeddings, norms, attention, mlp, head, mtp };

// How the values of a vector are stored, where the forward pass reads others.
enum class Stored {
    as_read,
    less_one,   // w, read as 1 + w
    log_rate,   // A_log, read as -exp(A_log) (C11)
    by_channel, // [channels][1][taps], read as [taps][channels]
};

struct PlannedTensor {
    // Without the checkpoint's prefix: "layers.3.self_attn.q_proj.weight", "mtp.fc.weight".
    std::string name;
    std::vector<uint64_t> shape;
    WeightGroup group = WeightGroup::norms;
    uint32_t layer = 0;             // attention and mlp
    Matrix *matrix = nullptr;       // a matrix: data to be filled in
    const float **vector = nullptr; // a norm or bias: to be filled in
    Stored stored = Stored::as_read;
    bool multiplied = true;         // false: a matrix whose rows are only looked up
    Lookup *lookup = nullptr;       // as they are stored: to be filled in
    uint8_t *strips = nullptr;      // a matrix of integers: to be filled in
    uint8_t *coded = nullptr;       // a matrix that is coded: blocks to be filled in
    const Tensor *tensor = nullptr; // as stored
    std::string shown = {};         // its name in messages
};

// Reports whether the checkpoint has the MTP head that `config` describes. Fine-tunes often drop it
// and keep its description. Heads of several layers do not count: they are not used.
bool has_mtp(const Config &config, const Checkpoint &checkpoint);

// Shapes `weights` by `config` and lists its tensors in a fixed order, none found yet. Those of the
// MTP head are the last, if `mtp` asks for them.
std::vector<PlannedTensor> plan_weights(const Config &config, bool mtp, Weights &weights);

// Gives the tensors of an architecture that has other names the plan's. Throws Error(corrupt) if
// two would have one name.
void rename_tensors(const Config &config, Checkpoint &checkpoint);

// Replaces tensors that hold several matrices by one for each, as the plan names them: q, k and v,
// gate and up (Phi-3), and the experts of a layer. Throws Error: corrupt (missing, wrong shape),
// unsupported (dtype).
void split_tensors(const Config &config, Checkpoint &checkpoint);

// Finds every planned tensor. Returns the others, which no result depends on, by the beginnings of
// their names and with their number. Throws Error: corrupt (missing, wrong shape), unsupported (its
// dtype, or a tensor of the checkpoint that is neither in the plan nor harmless).
std::string find_tensors(const Config &config, const Checkpoint &checkpoint,
                         std::vector<PlannedTensor> &plan);

} // namespace stasis
