// Where tests find their data. Folders of the clone are always there; those of ../shared only
// beside a full checkout: tests that need them call `shared_data` and skip, loudly and counted.
// STASIS_SOURCE_DIR of the environment says where the clone is, for a program that was built where
// it was elsewhere.
#pragma once

#include "tests/places.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

// Prints "SKIPPED: <test>: <reason>", which tools/test counts, and leaves the test case.
#define STASIS_SKIP(reason)                                                                        \
    do {                                                                                           \
        std::printf("SKIPPED: %s: %s\n", doctest::getContextOptions()->currentTest->m_name,        \
                    std::string(reason).c_str());                                                  \
        return;                                                                                    \
    } while (false)

inline std::string source_folder() {
    const char *told = std::getenv("STASIS_SOURCE_DIR");
    return told != nullptr ? told : places::source;
}

// Path below tests/data.
inline std::string test_data(const std::string &name) {
    return source_folder() + "/tests/data/" + name;
}

// Path below ../shared/data, empty if that folder is not beside the clone.
inline std::string shared_data(const std::string &name) {
    const std::filesystem::path path =
        std::filesystem::path(source_folder()) / ".." / "shared" / "data" / name;
    return std::filesystem::exists(path) ? path.lexically_normal().string() : std::string();
}
