// A host's table of functions as a backend of a store. Must not know what the bytes mean.
#pragma once

#include <memory>
#include <string>

#include "abi/options.h"
#include "format/store/backend.h"

namespace stasis::abi {

struct HostBackend : format::Backend {
    bool opened = false; // the host's `release` is called at the end
};

// Throws Error(invalid_argument) where a function is missing.
std::shared_ptr<HostBackend> host_backend(const stasis_store_backend *backend);

} // namespace stasis::abi
