// Options whose values are checked before anything is loaded: numbers, words and paths. Must not
// know subcommands.
#pragma once

#include <charconv>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/handles.h"

namespace command {

// The values that a number may have, and their wording in a refusal.
template <typename Number> struct Range {
    Number least, most;
    std::string text;
};

// Adds an option for a decimal number. It reads the whole text: the parser alone would clamp a
// number that is too large, read "010" as octal and an empty value as 0.
template <typename Number>
CLI::Option *add_number(CLI::App &app, const std::string &name, Number &value,
                        const std::string &help, const Range<Number> &range) {
    const auto parse = [name, &value, range](const CLI::results_t &given) {
        const std::string &text = given.at(0);
        const char *const end = text.data() + text.size();
        Number number{};
        const auto [stop, problem] = std::from_chars(text.data(), end, number);
        const bool inside = number >= range.least && number <= range.most; // false for NaN
        if (problem != std::errc() || stop != end || !inside) {
            throw Failure(name + ": '" + text + "' is not " + range.text);
        }
        value = number;
        return true;
    };
    return app.add_option(name, parse, help)->type_name("N");
}

template <typename Unsigned>
CLI::Option *add_count(CLI::App &app, const std::string &name, Unsigned &value,
                       const std::string &help) {
    constexpr Unsigned most = std::numeric_limits<Unsigned>::max();
    const std::string text = "a whole number from 0 to " + std::to_string(most);
    return add_number<Unsigned>(app, name, value, help, {0, most, text});
}

// Adds an option for one of a few words, each with its value.
CLI::Option *add_word(CLI::App &app, const std::string &name, uint32_t &value,
                      const std::string &help,
                      const std::vector<std::pair<std::string, uint32_t>> &words);
// Add --codec and --keep, for snapshots that are written.
void add_codec(CLI::App &app, uint32_t &codec, const std::string &help);
void add_keep(CLI::App &app, uint32_t &keep);

// Adds an option for a path that is not empty.
CLI::Option *add_path(CLI::App &app, const std::string &name, std::string &path,
                      const std::string &help);

// Returns whether a file begins as snapshots do (FORMAT.md, "Header").
bool is_snapshot(const std::string &path);

enum class Special { refused, allowed };

// Throws Failure for a path that could not be written in the end: a missing folder, a directory, a
// symbolic link, and unless `special` allows them devices and pipes. If it does, the output is no
// snapshot, and an existing snapshot is not overwritten. `name` is the option.
void check_target(const std::string &name, const std::string &path, Special special);

} // namespace command
