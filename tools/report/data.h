// What the report page shows, as one JSON object: the snapshots' own words, shortened to what the
// page draws. Knows nothing of how it is drawn.
#pragma once

#include <string>

#include "tools/terminal.h"

namespace command::report {

// `against`: another snapshot to compare with, or empty.
Json collect(const std::string &path, const std::string &against);

} // namespace command::report
