// Where the files of a model are: in a directory, or with a host that gives them by name. Knows
// nothing of their contents.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/model/model_file.h"

namespace stasis {

class ModelFolder {
  public:
    // A directory of the system.
    ModelFolder(std::string directory) : directory_(std::move(directory)) {}
    ModelFolder(const char *directory) : directory_(directory) {}
    // Files of a host, which outlives the folder.
    explicit ModelFolder(const HostFiles &host) : host_(host) {}

    // Reports whether a file exists. Throws Error(io) if that cannot be determined.
    bool has(const std::string &name) const;
    // Returns the bytes of a file. Throws Error: not_found, io, corrupt (longer than the limit).
    std::string text(const std::string &name, size_t size_limit_bytes) const;
    // Throws as ModelFile.
    std::shared_ptr<ModelFile> open(const std::string &name) const;
    // Returns what messages call a file of this name.
    std::string shown(const std::string &name) const;

  private:
    std::string directory_;
    HostFiles host_; // without functions: a directory
};

} // namespace stasis
