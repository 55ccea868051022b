// Regular expressions as constraints: every construct with texts that fit and texts that do not,
// against another engine over random expressions, and what is refused.
#include <doctest/doctest.h>

#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/constraint/characters.h"
#include "tests/runtime/constraint_texts.h"

namespace stasis {
namespace {

using Strings = std::vector<std::string>;

void check_regex(std::string_view expression, const Strings &good, const Strings &bad) {
    Texts texts(ConstraintKind::regex, expression);
    for (const std::string &text : good) {
        CHECK_MESSAGE(texts.fits(text), expression, " does not fit ", text);
    }
    for (const std::string &text : bad) {
        CHECK_MESSAGE(!texts.fits(text), expression, " fits ", text);
    }
}

// Random expressions of what this library and the standard one write alike. Groups are not repeated
// without bounds: the standard library would take exponential time.
std::string random_expression(std::mt19937 &random, int depth) {
    static constexpr const char *kAtoms[] = {"a", "b", "c", "[ab]", "[^a]", ".", "[b-c]", "\\d"};
    static constexpr const char *kRepeats[] = {"", "", "?", "{2}", "{1,2}", "*", "+", "{2,}"};
    const auto pick = [&](size_t count) { return random() % count; };
    std::string text;
    const size_t count = 1 + pick(3);
    for (size_t i = 0; i < count; ++i) {
        const bool group = depth > 0 && pick(3) == 0;
        text += group ? "(" + random_expression(random, depth - 1) + ")" : kAtoms[pick(8)];
        text += kRepeats[pick(group ? 5 : 8)];
    }
    return depth > 0 && pick(3) == 0 ? text + "|" + random_expression(random, depth - 1) : text;
}

TEST_CASE("read_regex: characters, sequences and choices") {
    check_regex("", {""}, {"a"});
    check_regex("abc", {"abc"}, {"", "ab", "abcd", "abd"});
    check_regex("a|bc|", {"a", "bc", ""}, {"b", "abc"});
    check_regex("(a|b)(?:c|d)", {"ac", "bd"}, {"ab", "a", "cd"});
    check_regex("a.c",
                {"abc",
                 "a\xC3\xA9"
                 "c",
                 "a\xF0\x9F\x98\x80"
                 "c",
                 "a\rc"},
                {"ac", "a\nc",
                 "a\xC3"
                 "c",
                 "a\x80"
                 "c"});
    check_regex("^a|b$", {"a", "b"}, {"ab", ""});
    check_regex("\xC3\xA9+", {"\xC3\xA9\xC3\xA9"}, {"\xC3", "\xC3\xA9\xC3", "e"});
}

TEST_CASE("read_regex: repetitions") {
    check_regex("a*", {"", "a", "aaaa"}, {"b", "ab"});
    check_regex("a+b?", {"a", "aab"}, {"", "b", "abb"});
    check_regex("(ab){2}", {"abab"}, {"ab", "ababab", "aba"});
    check_regex("a{2,3}", {"aa", "aaa"}, {"a", "aaaa"});
    check_regex("a{2,}", {"aa", "aaaaaaa"}, {"a", ""});
    check_regex("a{0}", {""}, {"a"});
    check_regex("a*?b+?c??", {"b", "aabbc"}, {"a", "c"});
    check_regex("((a*)*)*b", {"b", "aaab"}, {"", "a"});
    check_regex("(a?){3}", {"", "a", "aaa"}, {"aaaa"});
}

TEST_CASE("read_regex: classes and escapes") {
    check_regex("[a-cx]", {"a", "b", "x"}, {"d", "", "ab"});
    check_regex("[^a-c]", {"d", "\n", "\xE2\x82\xAC"}, {"a", "c", "\xE2", "\xED\xA0\x80"});
    check_regex("[-a]", {"-", "a"}, {"b"});
    check_regex("[a\\]\\-[]", {"a", "]", "-", "["}, {"\\", "b"});
    check_regex("\\d\\D", {"1a", "9\xC3\xA9"},
                {"11", "a1",
                 "\xD9\xA1"
                 "a"});
    check_regex("\\w\\W", {"a-", "_ ", "Z\n"}, {"ab", "-a", "\xC3\xA9-"});
    check_regex("\\s\\S", {" a", "\t1", "\r-", "\v+", "\f\xC2\xA0"},
                {"aa", "  ",
                 "\xC2\xA0"
                 "a"});
    check_regex("[\\d\\s]+", {"1 2", "\n"}, {"a"});
    check_regex("[^\\w]", {"-", " "}, {"a", "_"});
    check_regex("\\x41\\u0042\\u{43}\\u{1F600}", {"ABC\xF0\x9F\x98\x80"}, {"ABC"});
    check_regex("\\uD83D\\uDE00", {"\xF0\x9F\x98\x80"}, {"\xED\xA0\xBD\xED\xB8\x80"});
    check_regex("\\t\\n\\r\\f\\v[\\b]", {"\t\n\r\f\v\b"}, {"tnrfvb"});
    check_regex("\\.\\*\\\\\\/\\$\\^\\(\\{\\-\\\"", {".*\\/$^({-\""}, {"a*\\/$^({-\""});
    check_regex("[\\u0080-\\u{10FFFF}]", {"\xC2\x80", "\xE0\xA0\x80", "\xF4\x8F\xBF\xBF"},
                {"a", "\x80", "\xF4\x90\x80\x80", "\xED\xA0\x80", "\xC0\x80", "\xE0\x80\x80"});
}

TEST_CASE("read_regex: every character is one of a class or of its complement") {
    const char *const sets[] = {"[\\u0000-\\u007e]", "[\\u00ff-\\u0900]", "[\\u07ff\\uffff]",
                                "[\\u{ffff}-\\u{10000}]", "[\\ud7ff-\\ue000]"};
    std::mt19937 random(3);
    for (const char *set : sets) {
        Texts in(ConstraintKind::regex, set);
        Texts out(ConstraintKind::regex, "[^" + std::string(set).substr(1));
        for (uint32_t i = 0; i < 4000; ++i) {
            uint32_t character = i < 3000 ? i * 3 % 0x1000 : random() % 0x110000;
            character = i % 7 == 0 ? 0xD7F0 + i % 0x20 + (i % 0x20 >= 0x10 ? 0x800 : 0) : character;
            if (character >= 0xD800 && character < 0xE000) {
                continue;
            }
            const std::string text = constraint::utf8(character);
            CHECK(in.fits(text) != out.fits(text));
        }
    }
}

TEST_CASE("read_regex: random expressions mean what they mean to the standard library") {
    std::mt19937 random(20);
    size_t fitting = 0;
    for (int i = 0; i < 300; ++i) {
        const std::string expression = random_expression(random, 2);
        Texts texts(ConstraintKind::regex, expression);
        const std::regex standard(expression, std::regex::ECMAScript);
        for (int j = 0; j < 60; ++j) {
            std::string text;
            while (text.size() < 9 && random() % 6 != 0) {
                text += "abc1"[random() % 4];
            }
            const bool expected = std::regex_match(text, standard);
            fitting += expected ? 1 : 0;
            CHECK_MESSAGE(texts.fits(text) == expected, expression, " with ", text);
        }
    }
    CHECK(fitting > 1000);
}

TEST_CASE("read_regex: what is refused, and where") {
    constexpr auto kRegex = ConstraintKind::regex;
    const struct {
        const char *expression, *status, *named;
    } cases[] = {
        {"ab(c", "invalid", "a ( without its ) at byte 2"},
        {"a)b", "invalid", "a ) that closes nothing at byte 1"},
        {"a[bc", "invalid", "a [ without its ] at byte 1"},
        {"a**", "invalid", "a repetition of a repetition (write a group) at byte 2"},
        {"*a", "invalid", "a repetition of nothing"},
        {"a|*", "invalid", "at byte 2"},
        {"a{2,1}", "invalid", "bounds reversed at byte 1"},
        {"a{x}", "invalid", "at byte 2"},
        {"a{1", "invalid", "a { that begins no repetition"},
        {"a]", "invalid", "a bracket that closes nothing"},
        {"[b-a]", "invalid", "ends reversed at byte 1"},
        {"[a-\\d]", "invalid", "a range that ends in a set at byte 1"},
        {"\\", "invalid", "a \\ at its end at byte 0"},
        {"\\x4", "invalid", "without its 2 digits at byte 3"},
        {"\\uD800", "invalid", "no character at byte 0"},
        {"\\u{110000}", "invalid", "no character at byte 0"},
        {"a\xC3(", "invalid", "not UTF-8 at byte 1"},
        {"a(?=b)", "unsupported", "a look ahead at byte 1"},
        {"a(?!b)", "unsupported", "a look ahead at byte 1"},
        {"(?<=b)a", "unsupported", "a look behind at byte 0"},
        {"(?<n>b)", "unsupported", "a named group at byte 0"},
        {"(?i)b", "unsupported", "an option or special group at byte 0"},
        {"(a)\\1", "unsupported", "a reference to a group at byte 3"},
        {"a\\b", "unsupported", "a word boundary at byte 1"},
        {"\\p{L}", "unsupported", "a class of Unicode at byte 0"},
        {"\\q", "unsupported", "an unknown escape at byte 0"},
        {"a^b", "unsupported", "an anchor inside at byte 1"},
        {"(^a)", "unsupported", "an anchor inside at byte 1"},
        {"a$b", "unsupported", "an anchor inside at byte 1"},
        {"a++", "unsupported", "a possessive repetition at byte 2"},
        {"[[:alpha:]]", "unsupported", "a named class at byte 1"},
        {"a{1000001}", "unsupported", "more than 1000000 at byte 8"},
    };
    for (const auto &each : cases) {
        CHECK_MESSAGE(refused(kRegex, each.expression, each.status, each.named), each.expression,
                      ": ", refusal_of(kRegex, each.expression));
    }
    CHECK(refused(kRegex, "[]", "unsupported", "an empty class at byte 0"));
    CHECK(refused(kRegex, "[^\\u{0}-\\u{10ffff}]", "invalid", "no text fits"));
}

TEST_CASE("read_regex: what would grow without bounds is refused in bounded time") {
    constexpr auto kRegex = ConstraintKind::regex;
    for (const char *expression :
         {"(a|b)*a(a|b){25}", "(((a{1000}){1000}){1000}){1000}",
          "(((){1000000}){1000000}){1000000}", "(a{0,300}){0,300}", ".{1000000}"}) {
        CHECK_MESSAGE(refused(kRegex, expression, "unsupported", "too large"), expression);
    }
    CHECK(
        refused(kRegex, std::string(200, '(') + std::string(200, ')'), "unsupported", "too deep"));
    CHECK(refused(kRegex, std::string(300000, 'a'), "unsupported", "300000 bytes"));
    CHECK(refusal_of(kRegex, std::string(100, '(') + std::string(100, ')')).empty());
    CHECK(refusal_of(kRegex, "[a-z]{0,10000}").empty());
    Texts texts(kRegex, "(a|b)*a(a|b){10}"); // 2048 states: the smallest automaton there is
    CHECK(texts.fits("abbbbbbbbbb"));
    CHECK(!texts.fits("bbbbbbbbbbb"));
}

} // namespace
} // namespace stasis
