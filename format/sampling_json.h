// The sampling settings of a snapshot as members of a JSON object: constraints, each once, and the
// settings, which name them.
#pragma once

#include "format/reader.h"
#include "format/state/json_writer.h"

namespace stasis::format {

void write_samplings(const Snapshot &snapshot, JsonWriter &json);

} // namespace stasis::format
