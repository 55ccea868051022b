// Memory of models and sessions, said before it is taken, and rows of tables.
#pragma once

#include <string>

#include "tools/cli/model.h"
#include "tools/cli/terminal.h"

namespace command {

// What a model that is not open would take, and a session in it.
struct Estimate {
    stasis_estimate model = sized<stasis_estimate>();
    stasis_session_memory session = sized<stasis_session_memory>();
    uint64_t positions = 0; // of the session
};

// Estimates a model and a session of `positions`; 0: of the context. Throws Failure.
Estimate estimate_of(const ModelChoice &choice, uint64_t positions);
Json describe(const Estimate &estimate);
// Prints what can be said without opening the model; print_memory its last rows alone.
void print_estimate(const Estimate &estimate);
void print_memory(const Estimate &estimate);

// Prints a row of a table.
void row(const std::string &name, const std::string &value);
// Returns "1.5 MB".
std::string megabytes(uint64_t bytes);

} // namespace command
