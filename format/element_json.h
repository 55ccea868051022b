// The elements of a session's state (elements.h) as JSON. Knows files only through Snapshot.
#pragma once

#include <cstdint>
#include <span>

#include "format/reader.h"
#include "format/state/elements.h"

namespace stasis::format {

// Writes one JSON object into `room`, up to its end, and returns the object's length, which may be
// more. The object has at most 64 bytes for each byte of the file plus 64 KiB, and memory does not
// grow with it: if the texts of the log and of the best logits together exceed four times the file,
// they are cut, with U+2026 in place of the rest. Bytes of texts that are not UTF-8 become U+FFFD.
// Throws Error(invalid_argument) unless `element` is 1 to 12.
size_t element_json(const Snapshot &snapshot, uint32_t element, std::span<char> room);

} // namespace stasis::format
