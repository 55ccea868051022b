// JSON files as trees: what is read, against nlohmann's library, and what is refused.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "format/state/error.h"
#include "runtime/model/json_file.h"

using namespace stasis;

namespace {

nlohmann::json converted(const Json &json) {
    if (json.object() != nullptr) {
        auto out = nlohmann::json::object();
        for (const auto &[key, value] : *json.object()) {
            out[key] = converted(value);
        }
        return out;
    }
    if (json.array() != nullptr) {
        auto out = nlohmann::json::array();
        for (const Json &value : *json.array()) {
            out.push_back(converted(value));
        }
        return out;
    }
    if (json.text() != nullptr) {
        return *json.text();
    }
    if (json.boolean() != nullptr) {
        return *json.boolean();
    }
    if (json.count() != nullptr) {
        return *json.count();
    }
    if (const int64_t *integer = std::get_if<int64_t>(&json.value)) {
        return *integer;
    }
    return json.is_null() ? nlohmann::json() : nlohmann::json(*json.number());
}

std::string nested(size_t depth, const std::string &innermost) {
    std::string text = innermost;
    for (size_t i = 0; i < depth; ++i) {
        text = i + 1 == depth ? "{\"a\":" + text + "}" : "[" + text + "]";
    }
    return text;
}

std::string parse_refusal(const std::string &text) {
    try {
        parse_json(text, "file");
    } catch (const Error &error) {
        CHECK(error.status() == Status::corrupt);
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("Json: every kind of value, members by name") {
    const std::string text = R"({"z": [1, -2, 3.5, 1e300, 18446744073709551615, 1e-400, true, null],
        "a": {"é\u0000\n": "\ud83d\ude00", "": {}}, "m": [], "b": [[[]], {"x": false}],
        "big": 18446744073709551616, "small": -9223372036854775808})";
    const Json json = parse_json(text, "file");
    CHECK(converted(json) == nlohmann::json::parse(text));
    for (const char *key : {"z", "a", "m", "b", "big", "small"}) {
        CHECK(json.find(key) != nullptr);
    }
    CHECK(json.find("c") == nullptr);
    CHECK(json.find("b")->find("x") == nullptr);
    CHECK(json.find("a")->find("") != nullptr);
    CHECK(json.find("z")->array()->back().is_null());
}

TEST_CASE("Json: numbers are equal by what they are worth, objects whatever their order") {
    const Json json = parse_json(R"({"a": {"x": 1, "y": [2.0, -3]}, "b": {"y": [2, -3.0], "x": 1.0},
        "c": {"x": 1, "y": [2, 3]}, "d": {"x": true, "y": [2, -3]}})",
                                 "file");
    CHECK(*json.find("a") == *json.find("b"));
    CHECK(*json.find("a") != *json.find("c"));
    CHECK(*json.find("a") != *json.find("d"));
}

TEST_CASE("Json: what is refused, and that a file may be nested 16 deep") {
    CHECK(parse_refusal("{") != "");
    CHECK(parse_refusal("{} x").find("file is not valid JSON: ") == 0);
    CHECK(parse_refusal("{\"a\": \"\xFF\"}").find("file is not valid JSON: ") == 0);
    CHECK(parse_refusal("{\"a\": 1e999}").find("file is not valid JSON: ") == 0);
    CHECK(parse_refusal("").find("file is not valid JSON: ") == 0);
    CHECK(parse_refusal("[1]") == "file: expected a JSON object, found array");
    CHECK(parse_refusal("7") == "file: expected a JSON object, found number");
    CHECK(parse_refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})") ==
          "file gives the key \"b\" twice in one object");
    CHECK(parse_refusal(R"({"a": 1, "b": {"a": 1}})") == "");
    CHECK(parse_refusal(nested(16, "1")) == "");
    CHECK(parse_refusal(nested(17, "1")) == "file is nested deeper than 16");
    CHECK(parse_refusal(nested(18, "")) == "file is nested deeper than 16");
    CHECK(parse_refusal(std::string(1000000, '[')) == "file is nested deeper than 16");
}

TEST_CASE("Json: a value in a message is cut between characters") {
    const std::string text = "{\"a\": [1, -2, 0.5, null, true, {\"b\": \"c\"}], \"d\": \"" +
                             std::string(29, 'x') + "\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9" +
                             "\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\u00E9\"}";
    const Json json = parse_json(text, "file");
    CHECK(shown(*json.find("a")) == R"([1,-2,0.5,null,true,{"b":"c"}])");
    std::string cut = "\"" + std::string(29, 'x');
    for (int i = 0; i < 15; ++i) {
        cut += "\u00E9";
    }
    CHECK(shown(*json.find("d")) == cut + "...");
    CHECK(shown(json).size() <= 63);
}
