// Modules that bring a store's backend: how they are found, and what they may ask; see
// stasis_module.h and store_backend.h.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>

#include "abi/message.h"
#include "abi/store_backend.h"
#include "modules/stasis_module.h"

namespace stasis::abi {

namespace {

constexpr size_t kSchemeMax = 16, kNameMax = 1024;

// The call of a thread. A key and not thread_local, as for InsideMark.
class CurrentCall {
  public:
    CurrentCall() : made_(pthread_key_create(&key_, nullptr) == 0) {}
    ~CurrentCall() {
        if (made_) {
            pthread_key_delete(key_);
        }
    }
    CurrentCall(const CurrentCall &) = delete;
    CurrentCall &operator=(const CurrentCall &) = delete;

    ModuleCall *get() const {
        return made_ ? static_cast<ModuleCall *>(pthread_getspecific(key_)) : nullptr;
    }
    // Where it fails, the call cannot be ended early and its failures are not explained.
    void set(ModuleCall *call) const {
        if (made_) {
            pthread_setspecific(key_, call);
        }
    }

  private:
    pthread_key_t key_{};
    const bool made_;
};

const CurrentCall &current() {
    static const CurrentCall call;
    return call;
}

// Loads the module from the folder of this library, else as the loader finds libraries. It stays
// loaded: its threads and connections may end after the store is closed.
void *load(const std::string &scheme, const std::string &file, const std::string &uri) {
    constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    Dl_info here{};
    std::string own, problem;
    if (dladdr(reinterpret_cast<const void *>(&load), &here) != 0 && here.dli_fname != nullptr) {
        own = here.dli_fname;
        own.resize(own.rfind('/') + 1); // npos + 1 is 0
    }
    for (const std::string &path : {own + file, file}) {
        if (void *const handle = dlopen(path.c_str(), kHow)) {
            return handle;
        }
        const char *const why = dlerror();
        problem += (problem.empty() ? "" : "; ") + std::string(why != nullptr ? why : "");
    }
    fail(Status::unsupported,
         "uri '%s': there are no stores of scheme '%s', but dir and sqlite: the module %s is not "
         "installed: %s",
         uri.c_str(), scheme.c_str(), file.c_str(), problem.c_str());
}

} // namespace

ModuleCall::ModuleCall(const Watch &watch) : watch_(watch), before_(current().get()) {
    current().set(this);
}

ModuleCall::~ModuleCall() {
    current().set(before_);
}

stasis_status ModuleCall::look() noexcept {
    const ModuleCall *const call = current().get();
    if (call == nullptr || !call->watch_.ends()) {
        return STASIS_OK;
    }
    return call->watch_.deadline.passed() ? STASIS_TIMEOUT : STASIS_CANCELLED;
}

void ModuleCall::explain(const char *message) noexcept {
    ModuleCall *const call = current().get();
    if (call != nullptr && message != nullptr) {
        write_message(message, call->message_, sizeof call->message_);
    }
}

ModuleBackend open_module(const std::string &scheme, const std::string &uri, uint32_t flags) {
    const bool possible =
        scheme.size() <= kSchemeMax && std::all_of(scheme.begin(), scheme.end(), [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        });
    if (!possible) {
        fail(Status::unsupported,
             "uri '%s': there are no stores of scheme '%s', but dir and sqlite", uri.c_str(),
             scheme.c_str());
    }
    const std::string file = "libstasis_" + scheme + ".so.0";
    const auto entry = reinterpret_cast<stasis_store_module_fn>(
        dlsym(load(scheme, file, uri), STASIS_STORE_MODULE_ENTRY));
    if (entry == nullptr) {
        fail(Status::unsupported, "uri '%s': %s has no %s", uri.c_str(), file.c_str(),
             STASIS_STORE_MODULE_ENTRY);
    }
    const Watch never;
    const ModuleCall call(never);
    stasis_store_module_request request{};
    request.struct_size = sizeof request;
    request.flags = flags;
    request.uri = uri.c_str();
    request.look = ModuleCall::look;
    request.explain = ModuleCall::explain;
    stasis_store_backend backend{};
    backend.struct_size = sizeof backend;
    char name[kNameMax] = {};
    const stasis_status status = entry(&request, &backend, name, sizeof name);
    if (status != STASIS_OK) {
        const bool known = status > STASIS_OK && status <= STASIS_TIMEOUT;
        fail(known ? static_cast<Status>(status) : Status::io, "%s",
             call.explained()[0] != '\0' ? call.explained() : stasis_status_name(status));
    }
    std::shared_ptr<HostBackend> opened = host_backend(&backend);
    opened->opened = true;
    name[sizeof name - 1] = '\0';
    return {name, std::move(opened)};
}

} // namespace stasis::abi
