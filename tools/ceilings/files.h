// How fast one file is written and read back, by plain calls of the system.
#pragma once

#include <cstddef>
#include <string>

namespace command::ceilings {

inline constexpr size_t kFileBytes = 128 << 20;

struct FileRates {
    double write, read; // bytes per second; written with fsync
};
// A temporary file in `folder`, made of kFileBytes at `data`, gone at the end. Throws Failure.
FileRates measure_files(const std::string &folder, char *data);

} // namespace command::ceilings
