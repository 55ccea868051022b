// The elements of a session's state (elements.h) as JSON. Knows files only through Snapshot.
#pragma once

#include <cstdint>
#include <string>

#include "format/elements.h"
#include "format/reader.h"

namespace stasis::format {

// One JSON object. Error(invalid_argument) unless `element` is 1 to 12. Bytes of texts that are not
// UTF-8 become U+FFFD.
std::string element_json(const Snapshot &snapshot, uint32_t element);

} // namespace stasis::format
