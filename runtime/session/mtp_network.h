// The network of a model's MTP head (multi-token prediction): one layer behind the join of hidden
// states and embeddings, with pages of its own. It predicts the token after the next from the final
// hidden state of a position and the token after it, and is used for proposals alone: no result
// depends on it.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/compute/network.h"

namespace stasis {

// `model` computes on the CPU, has a head (Weights::mtp), and must outlive what is returned. Pages
// may take `budget_bytes`. Throws Error(no_memory).
std::unique_ptr<Network> mtp_network(const Network &model, uint64_t budget_bytes);

} // namespace stasis
