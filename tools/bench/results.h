// What a benchmark found, as numbers; how they are shown is report.cpp's. Knows no model.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/ceilings/measure.h"
#include "tools/cli/terminal.h"

namespace command::bench {

enum class Work { none, bytes, flops };

// One figure, measured several times.
struct Result {
    std::string name;
    double median, minimum, maximum;
    const char *unit;
    Work work = Work::none;
    double rate = 0;         // of bytes or flops per second, at the median
    std::string ceiling;     // name of the one that the rate comes up against; empty: none known
    double share = 0;        // of what the ceiling gave beside each repetition; their median
    double ceiling_rate = 0; // what the ceiling gave beside the repetitions; their median
};

struct Report {
    std::string model, kernels, device, profile, machine; // profile "": the contract
    unsigned threads;
    std::vector<ceilings::Ceiling> ceilings;
    std::vector<Result> results;
};

// The middle of the values, or the mean of the two in the middle.
double median_of(std::vector<double> values);
// From values in `unit`, without work.
Result summarise(const std::string &name, const std::vector<double> &values, const char *unit);
// The processor as it calls itself, and how many there are.
std::string machine_text();

Json to_json(const Report &report);
// Tables of at most 100 columns.
std::string to_text(const Report &report);

} // namespace command::bench
