// Saves a State as a snapshot file, whole or not at all (FORMAT.md, "Saving"). Paired with
// reader.h. Knows neither models nor sessions.
#pragma once

#include <span>
#include <string>

#include "format/file.h"
#include "format/state.h"
#include "format/watch.h"

namespace stasis::format {

struct SaveOptions {
    bool replace = false;                   // put it in the place of any regular file
    std::span<const float> logits_row = {}; // [vocabulary], kept too; empty: not
    Watch watch = {};                       // progress in bytes of sections
};

// Pages with data are stored; those without must come first in their group, and may hold no
// position that the window needs. An existing
// file is replaced if it is a snapshot of the same model whose log begins with the same token (or
// one of the logs is empty), or if options.replace. On failure, the old file is as it was and no
// temporary file remains. Error(invalid_argument): the state contradicts itself, or the file at
// `path` is something else; Error(busy), Error(io), Error(unsupported), Error(cancelled),
// Error(stopped).
void save(const State &state, const std::string &path, const SaveOptions &options,
          const FileOperations &files = system_files());

} // namespace stasis::format
