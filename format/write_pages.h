// Writing the pages of a state: what the file already holds stays, slot by slot; the rest becomes
// new runs, or fingerprints (FORMAT.md, "Pages"). Knows neither roots nor trees.
#pragma once

#include <vector>

#include "format/layout.h"
#include "format/output.h"
#include "format/reader.h"
#include "format/writer.h"

namespace stasis::format {

// A state to be written, and where its pages come from.
struct SaveInput {
    const State &state;
    const Snapshot *pages_in = nullptr; // the pages' data lie in this file (compact), not in memory
    const Snapshot *old = nullptr;      // what the file holds already
    const SaveOptions &options;

    bool has_data(size_t group, uint64_t index) const;
};

// Appends the runs that are missing and returns the whole page tables, [group][index].
std::vector<std::vector<PageRecord>> write_pages(Output &output, const SaveInput &input);

} // namespace stasis::format
