// Grammars in GBNF as constraints: every construct, recursion, and what is refused.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/runtime/constraint_texts.h"

namespace stasis {
namespace {

using Lines = std::vector<std::string>;

void check_grammar(std::string_view grammar, const Lines &good, const Lines &bad) {
    Texts texts(ConstraintKind::grammar, grammar);
    for (const std::string &text : good) {
        CHECK_MESSAGE(texts.fits(text), grammar, " does not fit ", text);
    }
    for (const std::string &text : bad) {
        CHECK_MESSAGE(!texts.fits(text), grammar, " fits ", text);
    }
}

TEST_CASE("read_gbnf: literals, classes, repetitions and groups") {
    check_grammar("root ::= \"ab\" | \"c\"", {"ab", "c"}, {"", "a", "abc"});
    check_grammar("root ::= \"\"", {""}, {"a"});
    check_grammar("root ::= [a-c] [^a-c] .", {"axx", "b\n\n", "c\xC3\xA9\xC3\xA9"}, {"aax", "ax"});
    check_grammar("root ::= [-a\\]\\[^] \"\\\"\\\\\\t\\n\\r\"", {"-\"\\\t\n\r", "^\"\\\t\n\r"},
                  {"b\"\\\t\n\r"});
    check_grammar("root ::= \"\\x41\\u00e9\\U0001F600\"", {"A\xC3\xA9\xF0\x9F\x98\x80"}, {"A"});
    check_grammar("root ::= \"a\"* \"b\"+ \"c\"?", {"b", "aabbc"}, {"ac", "", "bcc"});
    check_grammar("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2}", {"aab", "aabbcc"}, {"ab", "aaabccc"});
    check_grammar("root ::= (\"a\" | \"b\" \"c\")+ \"d\"", {"ad", "bcad"}, {"bd", "d"});
    check_grammar("root ::= \"a\"?+", {"", "aaa"}, {"b"});
}

TEST_CASE("read_gbnf: rules, blanks and comments") {
    check_grammar("# a comment\nroot ::= first-1 |\n  second # another\n\n"
                  "first-1 ::= \"x\"\r\nsecond ::=\n \"y\" (\n \"z\"\n | \"w\" )\n",
                  {"x", "yz", "yw"}, {"y", "xz"});
    check_grammar("a ::= \"1\"\nroot ::= a a\n", {"11"}, {"1"});
    check_grammar("root ::= empty \"a\" empty\nempty ::= \"\" | empty2\nempty2 ::= \"b\"*",
                  {"a", "ba", "abb", "bbab"}, {"", "b", "aa"});
}

TEST_CASE("read_gbnf: recursion") {
    check_grammar("root ::= \"(\" root \")\" root | \"\"", {"", "()", "(()())()"},
                  {"(", ")(", "(()"});
    check_grammar("root ::= \"a\" root \"b\" | \"ab\"", {"ab", "aaabbb"}, {"aab", "abb", ""});
    check_grammar("root ::= \"a\" root | \"b\"", {"b", "aaaab"}, {"a", "ba"});
    // Palindromes: where the middle is cannot be known, so every place has many readings.
    check_grammar("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\" | \"b\" | \"\"",
                  {"abba", "ababa", "b", "bbaabb"}, {"ab", "abab"});
    check_grammar("root ::= sum\nsum ::= product (\"+\" product)*\n"
                  "product ::= atom (\"*\" atom)*\natom ::= [0-9]+ | \"(\" sum \")\"",
                  {"1+2*3", "(1+2)*(3)", "((7))"}, {"1+", "()", "(1"});
    // An ambiguous grammar: as many readings as there are trees of a length.
    Texts texts(ConstraintKind::grammar, "root ::= \"a\" root root | \"a\"");
    CHECK(texts.fits(std::string(101, 'a')));
    CHECK(!texts.fits(std::string(100, 'a')));
    CHECK_THROWS_AS(texts.fits(std::string(20000, 'a')), Error);
}

TEST_CASE("read_gbnf: schemas inside a grammar") {
    check_grammar("root ::= \"<\" %json {\"enum\": [1, \"}\"]} \">\"", {"<1>", "<\"}\">"},
                  {"1", "<1", "<2>", "<\"\">"});
    check_grammar(
        "root ::= (\"a\" %json\t{\"type\": \"integer\",\n\"maximum\": 9,\r\n"
        "\"minimum\": 0} | other)+\n"
        "other ::= %json {\"type\": \"object\", \"properties\": {\"k\": {\"$ref\": \"#\"}},\n"
        "  \"additionalProperties\": false}? \";\"",
        {"a1a2", "{};", "a3{\"k\": {\"k\":{}}};;a4"}, {"a", "a10", "{}", "{\"k\": 1};"});
    // Each has definitions of its own.
    const std::string one = "%json {\"$ref\": \"#/$defs/a\", \"$defs\": {\"a\": {\"const\": ";
    check_grammar("root ::= " + one + "1}}} " + one + "2}}}", {"12"}, {"11", "22", "21"});
}

TEST_CASE("read_gbnf: nesting is followed as deep as it goes") {
    Texts texts(ConstraintKind::grammar, "root ::= \"(\" root \")\" | \"x\"");
    const std::string deep(3000, '('), back(3000, ')');
    CHECK(texts.fits(deep + "x" + back));
    CHECK(!texts.fits(deep + "x" + back + ")"));
    CHECK(!texts.fits(deep + "x" + back.substr(1)));
}

TEST_CASE("read_gbnf: rules without a text lead nowhere") {
    Texts texts(ConstraintKind::grammar,
                "root ::= \"a\" | \"b\" endless\nendless ::= \"c\" endless");
    CHECK(texts.fits("a"));
    CHECK(texts.fitting("bc") == 0);
}

TEST_CASE("read_gbnf: what is refused, and where") {
    constexpr auto kGrammar = ConstraintKind::grammar;
    const struct {
        const char *grammar, *status, *named;
    } cases[] = {
        {"", "invalid", "no rule \"root\""},
        {"a ::= \"x\"", "invalid", "no rule \"root\""},
        {"root ::= a", "invalid", "no rule \"a\", which byte 9 names"},
        {"root ::= \"a\"\nroot ::= \"b\"", "invalid", "a second rule of the same name at byte 13"},
        {"root = \"a\"", "invalid", "no ::= after the name of a rule at byte 5"},
        {"::= \"a\"", "invalid", "no name of a rule where one must be at byte 0"},
        {"root ::= \"a", "invalid", "a \" without its second one at byte 9"},
        {"root ::= \"a\n\"", "invalid", "a \" without its second one at byte 9"},
        {"root ::= [a", "invalid", "a [ without its ] at byte 9"},
        {"root ::= (\"a\"", "invalid", "a ( without its ) at byte 9"},
        {"root ::= \"a\")", "invalid", "a ) that closes nothing at byte 12"},
        {"root ::= *", "invalid", "a repetition of nothing at byte 9"},
        {"root ::= \"a\"{2,1}", "invalid", "bounds reversed at byte 12"},
        {"root ::= \"a\"{,1}", "invalid", "a repetition without a number at byte 13"},
        {"root ::= \"a\"{1", "invalid", "a repetition without its } at byte 14"},
        {"root ::= [b-a]", "invalid", "ends reversed at byte 10"},
        {"root ::= \"\\q\"", "invalid", "an unknown escape at byte 10"},
        {"root ::= \"\\uD800\"", "invalid", "no character at byte 10"},
        {"root ::= \"a\" $", "invalid", "what no rule can contain at byte 13"},
        {"root ::= \"a\" # \xFF", "invalid", "not UTF-8 at byte 15"},
        {"root ::= \"a\" root", "invalid", "no text fits"},
        {"root ::= %json", "invalid", "no JSON object after %json at byte 14"},
        {"root ::= %json true", "invalid", "no JSON object after %json at byte 15"},
        {"root ::= %json {\"a\": \"}", "invalid", "no JSON object after %json at byte 15"},
        {"root ::= %lark {}", "invalid", "a % that is not %json at byte 9"},
        {"root ::= %json {a}", "invalid", "the schema at byte 15 of the grammar: "},
        {"root ::= %json {\"type\": 1}", "invalid", "the schema at byte 15 of the grammar: "},
        {"root ::= %json {\"not\": {}}", "unsupported", "\"not\""},
        {"root ::= <think>", "unsupported", "a token in place of a text at byte 9"},
        {"root ::= !<1>", "unsupported", "a token in place of a text at byte 9"},
        {"root ::= []", "unsupported", "an empty class at byte 9"},
        {"root ::= \"a\"{1000001}", "unsupported", "more than 1000000"},
        {"root ::= root \"a\" | \"b\"", "unsupported", "\"root\" of the constraint"},
        {"root ::= a? root \"x\" | \"b\"\na ::= \"a\"", "unsupported", "calls itself"},
        {"root ::= \"x\" a\na ::= b | \"1\"\nb ::= \"\" a \"2\"", "unsupported", "calls itself"},
    };
    for (const auto &each : cases) {
        CHECK_MESSAGE(refused(kGrammar, each.grammar, each.status, each.named), each.grammar, ": ",
                      refusal_of(kGrammar, each.grammar));
    }
    std::string wide = "root ::= r0\n", deep = wide;
    for (int i = 0; i < 9000; ++i) {
        const std::string rule = "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1);
        wide += rule + "?\n";
        deep += rule + "\n";
    }
    CHECK(refused(kGrammar, wide + "r9000 ::= \"a\"", "unsupported", "1024 ways at once"));
    CHECK(refused(kGrammar, deep + "r9000 ::= \"\"", "unsupported", "too large"));
    const std::string groups(200, '(');
    CHECK(refused(kGrammar, "root ::= " + groups, "unsupported", "too deep"));
}

TEST_CASE("Places: only what is asked for is looked at, and refused") {
    std::string palindromes = "root ::= \"-\""; // each letter leads to a stack of its own
    for (char letter = 'a'; letter <= 'z'; ++letter) {
        const std::string quoted = {'"', letter, '"'};
        palindromes += " | " + quoted + " root " + quoted;
    }
    constraint::Places places(constraint::compile_constraint(ConstraintKind::grammar, palindromes));
    constraint::Place place = places.start();
    const size_t before = places.bytes();
    for (int i = 0; i < 100; ++i) {
        place = places.next(place, static_cast<uint8_t>('a' + i % 26));
    }
    CHECK(place != constraint::Places::kDead);
    CHECK(places.bytes() - before < size_t{100} * 2048); // a place and a stack for each letter

    std::string wide = "root ::= \"a\" | \"b\" r0\n";
    for (int i = 0; i < 2000; ++i) {
        wide += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "?\n";
    }
    const auto automaton =
        constraint::compile_constraint(ConstraintKind::grammar, wide + "r2000 ::= \"c\"");
    constraint::Places ways(automaton);
    const constraint::Place after = ways.next(ways.start(), 'a');
    CHECK(after != constraint::Places::kDead);
    CHECK(ways.accepts(after));
    CHECK_THROWS_AS(ways.next(ways.start(), 'b'), Error);
}

} // namespace
} // namespace stasis
