// Writing recurrent states. A state that the file already holds stays in it; the others become
// sections of their own (FORMAT.md, "Recurrent states"). Must not know roots or trees.
#pragma once

#include <vector>

#include "format/layout.h"
#include "format/output.h"
#include "format/write_pages.h"

namespace stasis::format {

// Returns for each state its section in the file, if that has it and it is to be kept; else an
// empty reference.
std::vector<StateRef> states_in_file(const SaveInput &input);
// Returns the bytes of the numbers that write_states will append.
uint64_t missing_state_bytes(const SaveInput &input, const std::vector<StateRef> &refs);
// Appends the states without a reference, and sets it. Holds the numbers of one state at most
// (compact), and its stored bytes.
void write_states(Output &output, const SaveInput &input, std::vector<StateRef> &refs);

} // namespace stasis::format
