// JSON and JSON schemas as constraints: every keyword with instances that fit and texts that do
// not, and what is refused by name.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/runtime/constraint_texts.h"

namespace stasis {
namespace {

using Instances = std::vector<std::string>;

void check_schema(std::string_view schema, const Instances &good, const Instances &bad) {
    Texts texts(ConstraintKind::json_schema, schema);
    for (const std::string &text : good) {
        CHECK_MESSAGE(texts.fits(text), schema, " does not fit ", text, " from byte ",
                      texts.fitting(text));
    }
    for (const std::string &text : bad) {
        CHECK_MESSAGE(!texts.fits(text), schema, " fits ", text);
    }
}

TEST_CASE("JsonParts: any value of JSON") {
    Texts texts(ConstraintKind::json, "");
    for (const char *text :
         {"null", "true", "false", "0", "-0", "12.50", "-1e9", "1E+2", "3.0e-1", "\"\"", "[]", "{}",
          "[ ]", "{\n  }", "[1, [2,\n    [3]], {}]", "{\"a\": {\"b\":[null]}, \"\": 1}",
          "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u12aF\\uD83d\\uDe00\"",
          "\"\x7F\xC3\xA9\xF0\x9F\x98\x80\""}) {
        CHECK_MESSAGE(texts.fits(text), text);
    }
    for (const char *text : {"",
                             "nul",
                             "nulll",
                             "01",
                             "-",
                             "1.",
                             ".5",
                             "1e",
                             "+1",
                             "\"",
                             "\"\n\"",
                             "\"\\x\"",
                             "\"\\u12g4\"",
                             "\"\\ud83d\"",
                             "\"\\ude00\"",
                             "\"\xC3\"",
                             "\"\xED\xA0\x80\"",
                             "[1,]",
                             "[,]",
                             "{\"a\"}",
                             "{\"a\":}",
                             "{a:1}",
                             "{\"a\":1,}",
                             "[1",
                             " 1",
                             "1 ",
                             "[  1]",
                             "[1 ,2]",
                             "{\"a\" :1}",
                             "[\r\n1]"}) {
        CHECK_MESSAGE(!texts.fits(text), text);
    }
    CHECK(texts.begins("[\n" + std::string(32, ' ')));
    CHECK(!texts.begins("[\n" + std::string(33, ' ')));
    CHECK(refused(ConstraintKind::json, "{}", "invalid", "no text"));
}

TEST_CASE("read_schema: types, enum and const") {
    check_schema("{}", {"1", "[]", "\"a\"", "null"}, {""});
    check_schema("true", {"1"}, {"a"});
    check_schema(R"({"type":"null"})", {"null"}, {"0"});
    check_schema(R"({"type":["boolean","integer"]})", {"true", "false", "-12"}, {"1.5", "null"});
    check_schema(R"({"type":"integer"})", {"0", "-7", "123"}, {"1.0", "1e3", "01"});
    check_schema(R"({"type":"number"})", {"0", "-7.25", "1e3"}, {"\"1\"", ".5"});
    check_schema(R"({"enum":["a","b\"\n\u00e9",1,2.50,null,[1,{"x":[]}]]})",
                 {"\"a\"", "\"b\\\"\\n\xC3\xA9\"", "1", "2.50", "null", "[ 1, {\"x\":[]}]"},
                 {"\"b\"", "2.5", "[1]", "\"b\\\"\\n\\u00e9\""});
    check_schema(R"({"const":{"a":1,"b":2}})", {R"({"a": 1, "b": 2})"}, {R"({"b":2,"a":1})"});
    check_schema(R"({"type":"string","enum":["a",1,null]})", {"\"a\""}, {"1", "null"});
    check_schema(R"({"type":"integer","enum":[1.0,1.5]})", {"1.0"}, {"1.5"});
    check_schema(R"({"enum":[1,2,3],"allOf":[{"enum":[3.0,1,4]}]})", {"1", "3"}, {"2", "4"});
}

TEST_CASE("read_schema: strings") {
    check_schema(R"({"type":"string","minLength":2,"maxLength":3})",
                 {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\ud83d\\ude00a\""},
                 {"\"a\"", "\"abcd\"", "\"\\n\""});
    check_schema(R"({"type":"string","pattern":"^a[\"\\\\\\n]+$"})", {"\"a\\\"\\\\\\n\""},
                 {"\"a\"", "\"a\\u000a\"", "\"a\n\""});
    check_schema(R"({"type":"string","pattern":"b.d"})", {"\"bcd\"", "\"abcde\"", "\"b\\\"d\""},
                 {"\"bc\"", "\"b\\nd\"", "\"\""});
    check_schema(R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\"", "\"a\\u0001\""},
                 {"\"xa\"", "\"bx\""});
    check_schema(R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":4})",
                 {"\"ab\"", "\"abcd\""}, {"\"a\"", "\"abcde\"", "\"a1\""});
    check_schema(R"({"allOf":[{"pattern":"a"},{"pattern":"b"},{"type":"string"}]})",
                 {"\"ab\"", "\"bxa\""}, {"\"a\"", "\"b\""});
    CHECK(
        refusal_of(ConstraintKind::json_schema, R"({"type":"string","maxLength":20000})").empty());
    CHECK(refused(ConstraintKind::json_schema, R"x({"pattern":"a(?=b)"})x", "unsupported",
                  "the schema's pattern at byte 11: the regular expression has a look ahead"));
}

TEST_CASE("read_schema: formats") {
    check_schema(R"({"type":"string","format":"date"})", {"\"2024-02-29\"", "\"1999-12-31\""},
                 {"\"2024-02-30\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"24-01-01\""});
    check_schema(R"({"type":"string","format":"time"})", {"\"23:59:60Z\"", "\"00:00:00.5+01:30\""},
                 {"\"24:00:00Z\"", "\"12:00:00\""});
    check_schema(R"({"type":"string","format":"date-time"})", {"\"2024-01-31T12:00:00Z\""},
                 {"\"2024-01-31 12:00:00Z\"", "\"2024-01-31\""});
    check_schema(R"({"type":"string","format":"uuid"})",
                 {"\"123e4567-E89b-12d3-a456-426614174000\""}, {"\"123e4567\""});
    check_schema(R"({"type":"string","format":"ipv4"})", {"\"255.0.10.199\""},
                 {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
    check_schema(R"({"type":"string","format":"hostname"})", {"\"a-b.example\""},
                 {"\"-a.b\"", "\"a..b\"", "\"\""});
    check_schema(R"({"type":"string","format":"email"})", {"\"a.b+c@example.org\""},
                 {"\"a\"", "\"@b\"", "\"a..b@c\""});
    CHECK(refused(ConstraintKind::json_schema, R"({"format":"uri"})", "unsupported",
                  "the format \"uri\""));
}

TEST_CASE("read_schema: arrays") {
    check_schema(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1,2, 3]"},
                 {"[null]", "[1,]"});
    check_schema(R"({"type":"array","items":{"type":"null"},"minItems":2,"maxItems":3})",
                 {"[null,null]", "[null,null,null]"}, {"[null]", "[null,null,null,null]"});
    check_schema(R"({"type":"array","maxItems":0})", {"[]", "[\n]"}, {"[1]"});
    const char *prefix = R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":)";
    check_schema(prefix + std::string("{\"const\":3}}"), {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
                 {"[2]", "[1,3]", "[1,2,1]"});
    check_schema(prefix + std::string("false}"), {"[]", "[1]", "[1,2]"}, {"[1,2,3]"});
    check_schema(prefix + std::string("{\"const\":3},\"minItems\":1,\"maxItems\":3}"),
                 {"[1]", "[1,2]", "[1,2,3]"}, {"[]", "[1,2,3,3]"});
    check_schema(prefix + std::string("{\"const\":3},\"minItems\":4}"),
                 {"[1,2,3,3]", "[1,2,3,3,3]"}, {"[1,2,3]"});
    check_schema(prefix + std::string("{\"const\":3},\"maxItems\":1}"), {"[]", "[1]"}, {"[1,2]"});
    check_schema(R"({"anyOf":[{"type":"null"},{"type":"array","minItems":2,"maxItems":1}]})",
                 {"null"}, {"[]", "[1]"});
}

TEST_CASE("read_schema: objects") {
    const std::string three =
        R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}})";
    check_schema(
        three + R"(,"additionalProperties":false})",
        {"{}", R"({"a":1})", R"({"a": 1, "c":3})", R"({"a":1,"b":2,"c":3})", R"({"b":2})"},
        {R"({"b":2,"a":1})", R"({"a":2})", R"({"d":1})", R"({"a":1,})", R"({"a":1,"a":1})"});
    check_schema(three + R"(,"required":["b"],"additionalProperties":false})",
                 {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})"},
                 {"{}", R"({"a":1,"c":3})"});
    check_schema(three + "}", {R"({"a":1,"d":[],"e":1})", R"({"d":null})", R"({"aa":1,"":2})"},
                 {R"({"d":1,"a":1})", R"({"a":1,"b":7})", R"({"d":1,"b":7})"});
    check_schema(three + R"(,"required":["z","a"],"additionalProperties":{"type":"null"}})",
                 {R"({"a":1,"z":null})", R"({"a":1,"c":3,"z":null,"y":null})"},
                 {R"({"a":1})", R"({"a":1,"z":1})", R"({"a":1,"y":null,"z":null})"});
    check_schema(R"({"type":"object","additionalProperties":{"type":"null"}})",
                 {"{}", R"({"a":null, "b":null})"}, {R"({"a":1})"});
    check_schema(R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"});
    check_schema(R"({"type":"object","minProperties":1,"maxProperties":2})",
                 {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
    check_schema(
        R"({"type":"object","properties":{"a":false,"b":{}},"additionalProperties":false})",
        {"{}", R"({"b":1})"}, {R"({"a":1})"});
    check_schema(R"({"properties":{"\u00e9\"\n":{"const":1}},"type":"object",)"
                 R"("additionalProperties":false})",
                 {"{\"\xC3\xA9\\\"\\n\":1}"}, {"{\"\\u00e9\\\"\\n\":1}"});
}

TEST_CASE("read_schema: schemas that hold together") {
    check_schema(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})",
                 {"1", "\"a\""}, {"\"ab\"", "null"});
    check_schema(R"({"oneOf":[{"type":"integer"},{"type":"null"},{"enum":["a"]},{"enum":["b"]}]})",
                 {"1", "null", "\"a\"", "\"b\""}, {"\"c\""});
    check_schema(R"({"oneOf":[)"
                 R"({"properties":{"k":{"const":"a"},"x":{}},"required":["k"],"type":"object"},)"
                 R"({"properties":{"k":{"const":"b"},"y":{}},"required":["k"],"type":"object"}]})",
                 {R"({"k":"a","x":1})", R"({"k":"b","y":1})"}, {R"({"k":"c"})", "{}"});
    check_schema(
        R"({"allOf":[{"properties":{"a":{"minimum":1}}},{"properties":{"a":{"maximum":3}},)"
        R"("required":["a"],"additionalProperties":false}],"type":"object"})",
        {R"({"a":2})"}, {R"({"a":0})", R"({"a":4})", R"({"b":1})", "{}"});
    check_schema(R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false,)"
                 R"("anyOf":[{"required":["a"]},{"required":["b"]}]})",
                 {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}"});
    check_schema(R"({"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"type":"integer"}},"minimum":5})",
                 {"5", "17"}, {"4", "null"});
    check_schema(R"({"$ref":"#/$defs/list","$defs":{"list":{"anyOf":[{"type":"null"},)"
                 R"({"type":"array","prefixItems":[{"type":"integer"},{"$ref":"#/$defs/list"}],)"
                 R"("minItems":2,"maxItems":2}]}}})",
                 {"null", "[1,null]", "[1, [2, null]]"}, {"[]", "[1]", "[1,[2]]"});
    check_schema(R"({"anyOf":[false,{"type":"null"}]})", {"null"}, {"1"});
}

TEST_CASE("read_schema: what is refused by name") {
    constexpr auto kSchema = ConstraintKind::json_schema;
    const struct {
        const char *schema, *status, *named;
    } cases[] = {
        {"", "invalid", "no value at byte 0"},
        {"{\"a\":1,\"a\":2}", "invalid", "a name given twice at byte 7"},
        {"{} x", "invalid", "more after its value at byte 3"},
        {"[1,2", "invalid", "an array without its ]"},
        {"{\"a\":\"\\ud800\"}", "invalid", "half a surrogate pair"},
        {"3", "invalid", "is no schema"},
        {R"({"type":"int"})", "invalid", "type at byte 8 is none of"},
        {R"({"minLength":-1,"type":"string"})", "invalid", "minLength at byte 13 is not a count"},
        {R"({"properties":[]})", "invalid", "properties at byte 14 is not an object"},
        {R"({"required":[1],"type":"object"})", "invalid", "names what is not a string"},
        {R"({"$ref":"#"})", "invalid", "refers to itself"},
        {R"({"$ref":"#/$defs/x"})", "invalid", "refers to nothing"},
        {"false", "invalid", "no text fits"},
        {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "invalid",
         "no text fits"},
        {R"({"minLength":1e99,"type":"string"})", "unsupported", "more than 999999999"},
        {R"({"minimum":1e401,"type":"number"})", "unsupported", "an exponent beyond 400"},
        {R"({"multipleOf":2})", "unsupported", "\"multipleOf\""},
        {R"({"uniqueItems":true})", "unsupported", "\"uniqueItems\""},
        {R"({"patternProperties":{}})", "unsupported", "\"patternProperties\""},
        {R"({"not":{}})", "unsupported", "\"not\""},
        {R"({"properties":{"a":{"if":{}}},"type":"object"})", "unsupported", "byte 19 has \"if\""},
        {R"({"$ref":"other.json"})", "unsupported", "\"$ref\" to other than"},
        {R"({"properties":{"a":{"$id":"b"}}})", "unsupported", "\"$id\" inside"},
        {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "unsupported", "\"oneOf\""},
        {R"({"oneOf":[{"type":"object"},{"type":"object","required":["a"]}]})", "unsupported",
         "\"oneOf\""},
        {R"({"enum":["a"],"minLength":1})", "unsupported", "\"minLength\" beside a list"},
        {R"({"type":"object","properties":{"a":{}},"minProperties":1})", "unsupported",
         "\"minProperties\""},
        {R"({"type":"object","properties":{"a":{}},"maxProperties":1})", "unsupported",
         "\"maxProperties\""},
        {R"({"colour":1})", "unsupported", "\"colour\""},
    };
    for (const auto &each : cases) {
        CHECK_MESSAGE(refused(kSchema, each.schema, each.status, each.named), each.schema, ": ",
                      refusal_of(kSchema, each.schema));
    }
    CHECK(refusal_of(kSchema, R"({"x-name":1,"title":"","uniqueItems":false})").empty());
    CHECK(refused(kSchema, std::string(200, '['), "unsupported", "deeper than 128"));
    std::string branches;
    for (int i = 0; i < 10; ++i) {
        branches += R"({"anyOf":[{"minimum":1},{"maximum":0}]},)";
    }
    CHECK(refused(kSchema, R"({"allOf":[)" + branches + "{}]}", "unsupported",
                  "more than 256 alternatives"));
}

TEST_CASE("read_schema: references in a chain, and schemas in a circle") {
    std::string definitions;
    for (int i = 0; i < 2000; ++i) {
        definitions += "\"d" + std::to_string(i) +
                       R"(":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/d)" +
                       std::to_string((i + 1) % 2000) + "\"}},";
    }
    const std::string schema = "{\"$defs\":{" + definitions + R"("e":{}},"$ref":"#/$defs/d0"})";
    CHECK(refused(ConstraintKind::json_schema, schema, "invalid", "no text fits"));
}

} // namespace
} // namespace stasis
