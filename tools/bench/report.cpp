// See results.h.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

#include "tools/bench/results.h"

namespace command::bench {

namespace {

// 1234567890 as "1.23 G".
std::string scaled(double value) {
    static constexpr const char *kPrefixes[] = {"", "k", "M", "G", "T", "P"};
    size_t prefix = 0;
    while (value >= 1000 && prefix + 1 < std::size(kPrefixes)) {
        value /= 1000;
        ++prefix;
    }
    char text[40];
    std::snprintf(text, sizeof text, "%.*f %s", value < 100 ? 2 : 1, value, kPrefixes[prefix]);
    return text;
}

// Four digits or so, whatever the size.
std::string plain(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.*f", value >= 1000 ? 0 : value >= 10 ? 1 : 3, value);
    return text;
}

template <typename... Values> std::string line(const char *format, Values... values) {
    char text[200];
    std::snprintf(text, sizeof text, format, values...);
    return text;
}

} // namespace

double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result summarise(const std::string &name, const std::vector<double> &values, const char *unit) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return {name, median_of(values), *least, *most, unit, Work::none, 0, "", 0};
}

std::string machine_text() {
    std::ifstream file("/proc/cpuinfo");
    std::map<std::string, std::string> first; // of the first processor
    for (std::string row; std::getline(file, row) && !row.empty();) {
        const size_t colon = row.find(':');
        const size_t end = row.find_last_not_of(" \t", colon - 1);
        if (colon != std::string::npos && colon + 2 <= row.size()) {
            first[row.substr(0, end + 1)] = row.substr(colon + 2);
        }
    }
    const std::string name = first["model name"].empty() ? "unknown CPU" : first["model name"];
    const std::string number = first["cpu family"].empty() ? ""
                                                           : " (family " + first["cpu family"] +
                                                                 ", model " + first["model"] + ")";
    return name + number + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores";
}

Json to_json(const Report &report) {
    Json ceilings = Json::object(), results = Json::array();
    for (const ceilings::Ceiling &ceiling : report.ceilings) {
        ceilings[ceiling.name] = ceiling.value;
    }
    for (const Result &result : report.results) {
        Json entry = {{"name", result.name},
                      {"median", result.median},
                      {"min", result.minimum},
                      {"max", result.maximum},
                      {"unit", result.unit}};
        if (result.work != Work::none) {
            entry[result.work == Work::bytes ? "bytes_per_s" : "flops"] = result.rate;
        }
        if (!result.ceiling.empty()) {
            entry["ceiling"] = result.ceiling;
            entry["ceiling_rate"] = result.ceiling_rate;
            entry["share"] = result.share;
        } else {
            entry["ceiling"] = nullptr;
            entry["ceiling_rate"] = nullptr;
            entry["share"] = nullptr;
        }
        results.push_back(entry);
    }
    return {{"model", report.model},
            {"kernels", report.kernels},
            {"device", report.device},
            {"profile", report.profile.empty() ? Json() : Json(report.profile)},
            {"threads", report.threads},
            {"machine", report.machine},
            {"ceilings", ceilings},
            {"results", results}};
}

std::string to_text(const Report &report) {
    std::string text = visible(report.model) + "\n" + report.kernels + " kernels on " +
                       report.device + ", " + std::to_string(report.threads) +
                       (report.threads == 1 ? " thread, " : " threads, ") + report.machine + "\n";
    if (!report.profile.empty()) {
        text += "outside the contract, by the profile " + report.profile + "\n";
    }
    text += "\n";
    text += line("%-16s %14s   %s\n", "ceiling", "best rate", "how");
    for (const ceilings::Ceiling &ceiling : report.ceilings) {
        text += line("%-16s %14s   %s\n", ceiling.name.c_str(),
                     (scaled(ceiling.value) + ceiling.unit + "/s").c_str(), ceiling.how.c_str());
    }
    text += line("\n%-14s %9s %9s %9s  %-10s %14s   %s\n", "result", "median", "min", "max", "unit",
                 "rate", "share of ceiling");
    for (const Result &result : report.results) {
        text += line("%-14s %9s %9s %9s  %-10s", result.name.c_str(), plain(result.median).c_str(),
                     plain(result.minimum).c_str(), plain(result.maximum).c_str(), result.unit);
        if (result.work != Work::none) {
            const char *unit = result.work == Work::bytes ? "B/s" : "FLOP/s";
            text += line(" %14s", (scaled(result.rate) + unit).c_str());
        }
        if (!result.ceiling.empty()) {
            text += line(" %5.1f %% of %s", 100 * result.share, result.ceiling.c_str());
        }
        text.erase(text.find_last_not_of(' ') + 1);
        text += "\n";
    }
    return text;
}

} // namespace command::bench
