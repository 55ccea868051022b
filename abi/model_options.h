// How a host wants a model opened, in the runtime's form.
#pragma once

#include "abi/stasis.h"
#include "runtime/session/model.h"

namespace stasis::abi {

// Returns all options but the watch. Throws Error: invalid_argument, unsupported.
ModelOptions read_model_options(const stasis_model_options &given);

} // namespace stasis::abi
