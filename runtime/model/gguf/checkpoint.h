// The tensors of a GGUF file under the names that the weights' plan knows them by.
#pragma once

#include <string>

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/safetensors.h"

namespace stasis {

// All of them, but for rope_freqs where it is part of the description. `config` is the file's.
// Throws Error(unsupported): a tensor of another type, or that no such architecture has (named).
Checkpoint checkpoint_of(const GgufFile &file, const Config &config);

// The other way round: "model.layers.3.mlp.up_proj.weight" gives "blk.3.ffn_up.weight". Empty where
// GGUF has no such tensor.
std::string gguf_name(const std::string &planned, const Config &config);

} // namespace stasis
