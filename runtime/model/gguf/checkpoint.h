// The tensors of a GGUF file under their names in the plan of the weights. Knows no bytes of
// tensors.
#pragma once

#include <string>

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/safetensors.h"

namespace stasis {

// Returns all tensors, except rope_freqs if it is part of the description. `config` is the file's.
// What is not used of an MTP head is among those of other types, so that it is named and no more.
// Throws Error(unsupported) naming a tensor of another type, or one that the architecture does not
// have.
Checkpoint checkpoint_of(const GgufFile &file, const Config &config);

// The reverse: "model.layers.3.mlp.up_proj.weight" gives "blk.3.ffn_up.weight". Empty if GGUF has
// no such tensor.
std::string gguf_name(const std::string &planned, const Config &config);

} // namespace stasis
