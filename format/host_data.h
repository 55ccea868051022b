// A host's data in a file: a section for each value, and an index of their names (FORMAT.md, "Data
// of hosts"). Must not know what the data means.
#pragma once

#include "format/input.h"
#include "format/output.h"
#include "format/reader.h"

namespace stasis::format {

// Appends the values that the file does not hold under the same names, and the index where it
// differs. Returns the index's place, and in `values` those of the values, in the order of the
// names. `old`: what the file holds; null: a new file.
SectionRef write_host_data(Output &output, const State &state, const Contents *old,
                           std::vector<SectionRef> &values);

// Reads the data that the layout refers to. Uses memory in proportion to the file. Throws
// Error(corrupt).
void read_host_data(const Committed &committed, uint64_t file_bytes, Contents &into);

// The conditions on a state's data. Throws Error(status).
void check_host_data(const State &state, Status status);

} // namespace stasis::format
