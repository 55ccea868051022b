// Timing of the tables' entries; see bench.cpp.
#pragma once

#include <string>

// Prints what each entry reaches in each table, for the shapes whose name contains `part`.
void bench(const std::string &part);
