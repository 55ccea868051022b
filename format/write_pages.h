// Writing the pages of a state. Slots that the file already holds stay in it; the rest becomes new
// runs, or fingerprints (FORMAT.md, "Pages"). Must not know roots or trees.
#pragma once

#include <functional>
#include <vector>

#include "format/layout.h"
#include "format/output.h"
#include "format/reader.h"
#include "format/writer.h"

namespace stasis::format {

// A state to be written, and the origin of its pages.
struct SaveInput {
    const State &state;
    const Snapshot *pages_in = nullptr; // the pages' data is in this file (compact), not in memory
    const Snapshot *old = nullptr;      // the state that the file holds already
    const SaveOptions &options;

    // Returns whether the page's keys and values are in memory, on the device or in `pages_in`.
    bool has_data(size_t group, uint64_t index) const;
};

using PageTables = std::vector<std::vector<PageRecord>>; // [group][index]

// Appends the missing runs and returns the whole page tables. `between` is called when runs of a
// lender were appended, and none of one's own.
PageTables write_pages(Output &output, const SaveInput &input,
                       const std::function<void(const PageTables &)> &between);

} // namespace stasis::format
