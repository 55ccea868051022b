// File operations that fail once, on demand, for any caller in the program.
#pragma once

#include <cstdint>

namespace failures {

enum class Fault {
    error,       // EIO, of whatever it is
    full,        // ENOSPC where something is written, EMFILE where a file is opened
    interrupted, // EINTR
    partial,     // half of what was to be read or written
    ended,       // nothing is read: the file was cut short
};

// From now on the n-th operation (from 0) that can have this fault has it, once.
void fail_operation(Fault fault, int64_t n);

// Ends that. The name of the call that had the fault, null: none.
const char *end_of_faults();

} // namespace failures
