// Paths of the tests' data. Folders of the clone always exist; those of ../shared exist only next
// to a full checkout: tests that need them call `shared_data` and skip, visibly and counted.
// STASIS_SOURCE_DIR in the environment is the path of the clone, for a program that was built when
// the clone was elsewhere.
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
