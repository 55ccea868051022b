// The backends of the library, and the one in memory; see backends.h.
#include "backends.h"
#include "memory_backend.h"

namespace stasis::format {

std::vector<BackendKind> backend_kinds() {
    return {
        {"directory", [](const std::string &path) { return open_directory_backend(path); }, true,
         true},
        {"sqlite", [](const std::string &path) { return open_sqlite_backend(path); }, true, true},
        {"memory",
         [](const std::string &) -> std::unique_ptr<Backend> {
             return std::make_unique<MemoryBackend>();
         },
         false, true},
    };
}

} // namespace stasis::format
