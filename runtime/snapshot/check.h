// Whether a stored state is one of this model and of this build.
#pragma once

#include <vector>

#include "format/state/state.h"
#include "runtime/session/model.h"

namespace stasis {

// Returns the contract that this build computes under for a log drawn by such settings.
ContractId contract_of(const std::vector<Sampling> &samplings);

// Checks that a snapshot's identity is the model's; throws Error(model_mismatch) naming the first
// of the Big 8 + 4 that differs and both values ("attention module weights differ: layer 3 ...").
void check_identity(const ModelIdentity &stored, const ModelIdentity &model);

// Checks the shape of a stored state. Throws Error(model_mismatch), Error(version).
void check_geometry(const State &state, const Model &model);

} // namespace stasis
