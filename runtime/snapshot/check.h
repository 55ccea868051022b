// Checks that a stored state belongs to this model and this build. Knows neither files nor
// timelines.
#pragma once

#include <vector>

#include "format/state/state.h"
#include "runtime/session/model.h"

namespace stasis {

// Returns the contract under which this build computes a log of such a model, drawn by these
// settings.
ContractId contract_of(const Config &config, const std::vector<Sampling> &samplings);

// Returns the recurrent layers of a model and their sizes, as snapshots hold them.
RecurrentShape recurrent_shape_of(const Config &config);

// Throws Error(model_mismatch) unless a snapshot's identity is the model's. The message names the
// first element that differs (format/state/elements.h) and both values, as in
// "attention module weights differ: layer 3 ...".
void check_identity(const ModelIdentity &stored, const Model &model);
// Reports whether a stored session has the long factors of RoPE.
bool has_long_rope(const ModelIdentity &stored, const Model &model);

// Checks the shape of a stored state. Throws Error(model_mismatch), Error(version).
void check_geometry(const State &state, const Model &model);

} // namespace stasis
