// A run of tokens that are drawn on the device: one pass after the other without the host, which
// learns of the tokens at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/state/state.h"
#include "runtime/compute/workspace.h"

namespace stasis {

struct Network;

inline constexpr size_t kRunMost = 16; // tokens of a run

// Whether the device draws by such settings: those of a plain C7, without a look at the history.
bool drawn_on_device(const Sampling &sampling);

// Of each step: the token drawn behind it, and the layer that met what is not finite (C9), 0 if a
// logit did, UINT32_MAX: none. What comes behind such a step means nothing.
struct DeviceRun {
    std::vector<uint32_t> tokens, failures;
};

// Computes the rows of the work space's one sequence, kRunMost at most, whose first token is set
// and whose others are those drawn. Leaves the final hidden state of every row in work.hidden.
void run_on_device(const Network &network, Workspace &work, const Sampling &sampling,
                   DeviceRun &run);

} // namespace stasis
