// The data of the report page as one JSON object: the snapshots' elements, shortened to what the
// page draws. Must not know how they are drawn.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/cli/handles.h"

namespace command::report {

// A snapshot, and what would otherwise need another reading of the file.
struct Shown {
    std::string path;
    Snapshot snapshot;
    std::string root;   // digest
    std::string format; // element 11
};
Shown open_shown(const std::string &path);
// The same of a snapshot that is open; `path` is what it is called.
Shown shown_of(const std::string &path, Snapshot snapshot);

using Out = std::function<void(std::string_view text)>;

// Returns the first difference of two snapshots as JSON. Reads pages. Throws Failure.
std::string difference_of(const Shown &shown, const Shown &other);

// Writes the object piece by piece: it may be many times as long as the files. `other` is another
// snapshot, whose `difference` is that of difference_of, or null. Throws only what `out` throws.
void write_data(const Shown &shown, const Shown *other, const std::string &difference,
                const Out &out);

} // namespace command::report
