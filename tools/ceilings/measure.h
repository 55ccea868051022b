// This machine's ceilings, measured: what reading memory, copying, the matrix instructions of some
// kernels and files can reach. Knows the names of kernel tables and nothing else of the library.
#pragma once

#include <string>
#include <vector>

namespace command::ceilings {

struct Ceiling {
    std::string name;
    double value;     // per second
    const char *unit; // "B" or "FLOP"
    std::string how;  // which variant was best
};

// With `threads` threads. "read", the kernels' own (the first is what their products come up
// against), "memcpy", and with files of `folder` "file_write" and "file_read". Takes seconds, and a
// gibibyte of memory for as long. Throws Failure.
std::vector<Ceiling> measure(const std::string &kernels, unsigned threads,
                             const std::string &folder);

} // namespace command::ceilings
