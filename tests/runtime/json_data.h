// JSON files of tests/data. In a header of its own, because parsing this library's header takes
// seconds.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace stasis::test {

inline nlohmann::json read_json(const std::string &path) {
    std::ifstream file(path);
    return nlohmann::json::parse(file);
}

} // namespace stasis::test
