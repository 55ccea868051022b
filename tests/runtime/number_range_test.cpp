// Numbers between bounds: all short spellings against the values that they have.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/runtime/constraint_texts.h"

namespace stasis {
namespace {

// Every text of digits, with a point in it or not, up to some length; with and without a sign.
std::vector<std::string> number_spellings() {
    std::vector<std::string> texts;
    const std::string digits = "0129";
    for (size_t length = 1; length <= 4; ++length) {
        size_t count = 1;
        for (size_t i = 0; i < length; ++i) {
            count *= digits.size();
        }
        for (size_t number = 0; number < count; ++number) {
            std::string text;
            for (size_t i = 0, rest = number; i < length; ++i, rest /= digits.size()) {
                text += digits[rest % digits.size()];
            }
            for (size_t point = 1; point <= length; ++point) {
                const std::string whole = text.substr(0, point), after = text.substr(point);
                if (whole.size() == 1 || whole[0] != '0') {
                    texts.push_back(after.empty() ? whole : whole + "." + after);
                    texts.push_back("-" + texts.back());
                }
            }
        }
    }
    return texts;
}

TEST_CASE("number_range: numbers fit if their values do") {
    const std::vector<std::string> texts = number_spellings();
    const char *const bounds[] = {"0",   "-0",  "1",    "-1",   "9",     "10",    "12",
                                  "-12", "0.1", "0.29", "-0.2", "1.02",  "-2.91", "99.999",
                                  "200", "1e1", "-2e2", "2.0",  "12e-1", "1000"};
    for (const char *type : {"integer", "number"}) {
        for (size_t i = 0; i < std::size(bounds) * 3; ++i) {
            const std::string low = bounds[i % std::size(bounds)];
            const std::string high = bounds[(i * 7 + 3) % std::size(bounds)];
            const bool open = i % 2 == 1, below = i % 3 != 1, above = i % 3 != 2;
            const std::string keyword = open ? "exclusiveMinimum" : "minimum";
            const std::string other = i % 5 == 2 ? "exclusiveMaximum" : "maximum";
            std::string schema = R"({"type":")" + std::string(type) + "\"";
            schema += below ? ",\"" + keyword + "\":" + low : "";
            schema += above ? ",\"" + other + "\":" + high : "";
            schema += "}";
            const std::string refusal = refusal_of(ConstraintKind::json_schema, schema);
            Texts fitting(ConstraintKind::json_schema,
                          refusal.empty() ? schema : R"({"type":"null"})");
            size_t wrong = 0, expected = 0;
            for (const std::string &text : texts) {
                const double value = std::strtod(text.c_str(), nullptr);
                const double from = std::strtod(low.c_str(), nullptr);
                const double to = std::strtod(high.c_str(), nullptr);
                const bool whole = text.find('.') == std::string::npos;
                bool fits = (whole || type[0] == 'n') && !(text[0] == '-' && value == 0);
                fits = fits && (!below || (open ? value > from : value >= from));
                fits = fits && (!above || (other[0] == 'e' ? value < to : value <= to));
                expected += fits ? 1 : 0;
                wrong += fitting.fits(text) != fits ? 1 : 0;
            }
            CHECK_MESSAGE(wrong == 0, schema);
            CHECK_MESSAGE((refusal.empty() || expected == 0), schema, ": ", refusal);
        }
    }
}

TEST_CASE("number_range: bounds of many digits are exact") {
    const std::string many = "12345678901234567890123456789";
    Texts texts(ConstraintKind::json_schema, R"({"type":"integer","minimum":)" + many + "}");
    CHECK(texts.fits(many));
    CHECK(texts.fits(many.substr(0, 28) + "9"));
    CHECK(!texts.fits(many.substr(0, 28) + "8"));
    CHECK(!texts.fits(many.substr(0, 28)));
    CHECK(texts.fits("1" + many));
    CHECK(!texts.fits(many + ".0"));
}

} // namespace
} // namespace stasis
