// Verifying a snapshot with the command's progress bar, and its report as JSON: what `verify` and
// `replay` share. Prints nothing.
#pragma once

#include <string>

#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command {

// `options`: cancel and the audit's fields; the progress is shown here.
stasis_verify_report verify_snapshot(const stasis_snapshot *snapshot, stasis_model *model,
                                     stasis_verify_options options, const std::string &path);

// position, layer, head, part, element, message of the first divergence; null: does not apply.
void add_divergence(const stasis_verify_report &report, Json &object);

} // namespace command
