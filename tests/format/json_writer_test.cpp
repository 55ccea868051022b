// JSON text against nlohmann's library, which reads it back and writes texts the same.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "format/state/json_writer.h"

using nlohmann::json;
using stasis::JsonWriter;

TEST_CASE("JsonWriter: structure, commas and kinds of values") {
    JsonWriter writer;
    writer.begin_object().field("a", 1U).field("b", std::string("x,{[:")).field("c", true);
    writer.key("d").begin_array().end_array().key("e").begin_object().end_object();
    writer.key("f").begin_array().null().value(-5).begin_array().value("y").end_array();
    writer.begin_object().field("g", UINT64_MAX).end_object().end_array();
    writer.array("h", std::vector<uint32_t>{1, 2, 3}).end_object();
    CHECK(writer.take() == R"({"a":1,"b":"x,{[:","c":true,"d":[],"e":{},"f":[null,-5,["y"],)"
                           R"({"g":18446744073709551615}],"h":[1,2,3]})");
}

TEST_CASE(
    "JsonWriter: any bytes give the text that the library gives, broken characters replaced") {
    std::mt19937 random(7);
    // Bytes at the edges of what UTF-8 allows come up more often than others.
    const std::string edges = "\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xED\xEF\xF0\xF4\xF5"
                              "\xFF\"\\\n\x01 a";
    for (int i = 0; i < 20000; ++i) {
        std::string text(random() % 8, '\0');
        for (char &c : text) {
            c = random() % 4 == 0 ? static_cast<char>(random()) : edges[random() % edges.size()];
        }
        JsonWriter writer;
        writer.value(text);
        REQUIRE(writer.text() == json(text).dump(-1, ' ', false, json::error_handler_t::replace));
    }
}

TEST_CASE("JsonWriter: a text in parts is the text that they make, wherever they part") {
    std::mt19937 random(11);
    const std::string edges = "\x80\xBF\xC2\xE0\xA0\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\xFF\"\n a";
    for (int i = 0; i < 20000; ++i) {
        std::string text(random() % 12, '\0');
        for (char &c : text) {
            c = edges[random() % edges.size()];
        }
        JsonWriter whole, parts;
        whole.value(text).value(1);
        parts.begin_text();
        for (size_t at = 0; at < text.size();) {
            const size_t length = random() % (text.size() - at + 1);
            parts.part(std::string_view(text).substr(at, length));
            at += length;
        }
        parts.end_text().value(1);
        REQUIRE(parts.text() == whole.text());
        REQUIRE(parts.length() == whole.text().size());
    }
}

TEST_CASE("JsonWriter: a number is read as what it was, and as a number with a fraction") {
    std::mt19937_64 random(7);
    const auto written = [](double value) {
        JsonWriter writer;
        writer.value(value);
        return writer.take();
    };
    CHECK(written(1) == "1.0");
    CHECK(written(1e100) == "1e+100");
    CHECK(written(std::numeric_limits<double>::infinity()) == "null");
    CHECK(written(std::numeric_limits<double>::quiet_NaN()) == "null");
    for (int i = 0; i < 20000; ++i) {
        const auto value = std::bit_cast<double>(random());
        if (std::isfinite(value)) {
            const json read = json::parse(written(value));
            REQUIRE(read.is_number_float());
            REQUIRE(std::bit_cast<uint64_t>(read.get<double>()) == std::bit_cast<uint64_t>(value));
        }
    }
}
