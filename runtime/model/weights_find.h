// Finds the tensors of a plan in a checkpoint. Included by weights_*.cpp only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/safetensors.h"

namespace stasis {

inline constexpr char kEmbeddings[] = "embed_tokens.weight";
inline constexpr char kHead[] = "lm_head.weight";
// Of an MTP head, without a prefix in any checkpoint.
inline constexpr char kMtpJoin[] = "mtp.fc.weight";
inline constexpr char kMtpLayer[] = "mtp.layers.0.";

// Returns the prefix of a checkpoint's tensors, apart from the head's. Throws Error(corrupt) if it
// has no embeddings under any.
const char *body_prefix(const Checkpoint &checkpoint);

// Returns the name for messages.
std::string shown_name(const Checkpoint &checkpoint, const std::string &name);

// Returns the tensor of a name as stored. Throws Error: corrupt (missing, wrong shape), unsupported
// (dtype).
const Tensor &find_tensor(const Checkpoint &checkpoint, const std::string &name,
                          const std::vector<uint64_t> &shape);
// Returns a tensor of bytes in the same way.
const Tensor &find_bytes(const Checkpoint &checkpoint, const std::string &name,
                         const std::vector<uint64_t> &shape);

} // namespace stasis
