// The elements of a session's state (elements.h) as JSON. Knows files only through Snapshot.
#pragma once

#include <cstdint>
#include <span>

#include "format/reader.h"
#include "format/state/elements.h"

namespace stasis::format {

// One JSON object, written into `room` as far as that goes; returns its length. It has at most 64
// bytes for each byte of the file and 64 KiB more, and nothing of its size is kept in memory: texts
// of the log and of the best logits are cut, with U+2026 in their place, where together they would
// be more than four times the file. Bytes of texts that are not UTF-8 become U+FFFD.
// Error(invalid_argument) unless `element` is 1 to 12.
size_t element_json(const Snapshot &snapshot, uint32_t element, std::span<char> room);

} // namespace stasis::format
