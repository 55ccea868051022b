// A host's table of functions, or a module's, as a backend of a store. Must not know what the bytes
// mean.
#pragma once

#include <memory>
#include <string>

#include "abi/options.h"
#include "format/state/watch.h"
#include "format/store/backend.h"

namespace stasis::abi {

// A call of a function of a module (stasis_module.h), on this thread until it ends: what the
// module's function may ask meanwhile, and what it explains.
class ModuleCall {
  public:
    explicit ModuleCall(const Watch &watch);
    ~ModuleCall();
    ModuleCall(const ModuleCall &) = delete;
    ModuleCall &operator=(const ModuleCall &) = delete;

    const char *explained() const { return message_; } // empty: nothing

    // `look` and `explain` of a stasis_store_module_request.
    static stasis_status look() noexcept;
    static void explain(const char *message) noexcept;

  private:
    const Watch &watch_;
    ModuleCall *const before_; // which a visitor of this one's list is inside of
    char message_[sizeof(stasis_error::message)] = {};
};

struct HostBackend : format::Backend {
    bool opened = false; // the host's `release` is called at the end
};

// Throws Error(invalid_argument) where a function is missing.
std::shared_ptr<HostBackend> host_backend(const stasis_store_backend *backend);

// What a module has opened: `name` tells it apart.
struct ModuleBackend {
    std::string name;
    std::shared_ptr<format::Backend> backend;
};
// Loads the module of a scheme and opens the store. Throws Error(unsupported) if there is no module
// of this name, and what the module's entry says.
ModuleBackend open_module(const std::string &scheme, const std::string &uri, uint32_t flags);

} // namespace stasis::abi
