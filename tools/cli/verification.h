// Verifying a snapshot with the command's progress bar, and its report as JSON, for `verify` and
// `replay`. Prints nothing.
#pragma once

#include <string>

#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command {

// Verifies a snapshot and shows the progress. `options` supplies cancel and the audit's fields.
// Throws Failure, but not for a difference.
stasis_verify_report verify_snapshot(const stasis_snapshot *snapshot, stasis_model *model,
                                     stasis_verify_options options, const std::string &path);

// Adds position, layer, head, part, element and message of the first divergence; null if they do
// not apply.
void add_divergence(const stasis_verify_report &report, Json &object);

} // namespace command
