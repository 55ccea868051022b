// What the report page shows, as one JSON object: the snapshots' own words, shortened to what the
// page draws. Knows nothing of how it is drawn.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/cli/handles.h"

namespace command::report {

// A snapshot, and what of it can only be told by reading the file once more.
struct Shown {
    std::string path;
    Snapshot snapshot;
    std::string root;   // digest
    std::string format; // element 11
};
Shown open_shown(const std::string &path);

using Out = std::function<void(std::string_view text)>;

// Where two snapshots first differ, as JSON. Reads pages.
std::string difference_of(const Shown &shown, const Shown &other);

// Writes the object piece by piece: it may be many times as long as the files. `other`: another
// snapshot, which differs as difference_of says, or null. Fails only where `out` does.
void write_data(const Shown &shown, const Shown *other, const std::string &difference,
                const Out &out);

} // namespace command::report
