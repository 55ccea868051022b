// Masks of tokens: what the walk of a vocabulary's tree finds is what feeding each token by itself
// finds, with any cache, on any copy; bytes of characters in pieces; end tokens.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "format/state/error.h"
#include "runtime/constraint/constraint.h"
#include "runtime/constraint/matcher.h"
#include "runtime/text/tokenizer.h"
#include "tests/places.h"
#include "tests/runtime/constraint_texts.h"

namespace stasis {
namespace {

using namespace constraint;

constexpr uint32_t kMaskSpecial = 1, kMaskEnd = 2, kMaskEndToo = 3; // tokens without a text

// All bytes, then pieces of JSON, of words, and of characters cut anywhere; some alike.
std::vector<std::string> mask_pieces(std::mt19937 &random) {
    std::vector<std::string> result = {"", "<special>", "</s>", "<end>"};
    result[kMaskSpecial].clear();
    for (int byte = 0; byte < 256; ++byte) {
        result.emplace_back(1, static_cast<char>(byte));
    }
    const std::vector<std::string> parts = {
        "{\"",    "\":",  "\": ", "\",", ", \"",  "}",   "]",        "true",     "null",
        "12",     "-3.5", "e+1",  "abc", "\\u00", "\\n", "\xC3\xA9", "\xF0\x9F", "\x98\x80",
        "\n    ", "name", "[",    "x",   "\"",    "0",   " "};
    for (int i = 0; i < 600; ++i) {
        std::string piece;
        for (uint32_t j = 0; j <= random() % 3; ++j) {
            piece += parts[random() % parts.size()];
        }
        result.push_back(piece);
    }
    result.push_back("abc");
    result.push_back("abc");
    return result;
}

struct MaskCase {
    ConstraintKind kind;
    const char *text;
};
const MaskCase kMaskCases[] = {
    {ConstraintKind::json, ""},
    {ConstraintKind::json_schema,
     R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},"x":{"type":)"
     R"("array","items":{"$ref":"#"}},"abc":{"type":"number","minimum":-3}},"required":["x"]})"},
    {ConstraintKind::regex, "(abc|x\xC3\xA9|\xF0\x9F\x98\x80|[^a-z]{2}){0,20}"},
    {ConstraintKind::grammar,
     "root ::= \"a\" root \"c\" | \"[\" root? \"]\" | [0-9x]+ root? | \"b\""},
};

std::shared_ptr<const Vocabulary> vocabulary_of(std::vector<std::string> pieces) {
    return std::make_shared<const Vocabulary>(std::move(pieces),
                                              std::vector<uint32_t>{kMaskEnd, kMaskEndToo});
}

// The definition: each token by itself, byte by byte, with places of its own.
Mask by_definition(const std::shared_ptr<const Automaton> &automaton, const std::string &text,
                   const Vocabulary &vocabulary) {
    Places places(automaton);
    Place here = places.start();
    for (const char byte : text) {
        here = places.next(here, static_cast<uint8_t>(byte));
    }
    Mask mask((vocabulary.size() + 63) / 64, 0);
    for (uint32_t token = 0; token < vocabulary.size(); ++token) {
        Place place = vocabulary.piece(token).empty() ? Places::kDead : here;
        for (const char byte : vocabulary.piece(token)) {
            place = places.next(place, static_cast<uint8_t>(byte));
        }
        const std::vector<uint32_t> &ends = vocabulary.end_tokens();
        const bool end = std::find(ends.begin(), ends.end(), token) != ends.end();
        if (end ? places.accepts(here) : place != Places::kDead) {
            mask[token / 64] |= uint64_t{1} << token % 64;
        }
    }
    return mask;
}

// Walks along allowed tokens and compares every mask. Returns the text.
std::string walk_tokens(const MaskCase &of, Matcher matcher,
                        const std::shared_ptr<const Automaton> &automaton,
                        const Vocabulary &vocabulary, uint32_t seed) {
    std::mt19937 random(seed);
    std::string text;
    for (int step = 0; step < 25; ++step) {
        const std::shared_ptr<const Mask> mask = matcher.mask();
        CHECK_MESSAGE(*mask == by_definition(automaton, text, vocabulary), of.text, " after ",
                      text);
        CHECK(allows(*mask, kMaskEnd) == matcher.complete());
        std::vector<uint32_t> allowed;
        for (uint32_t token = 0; token < vocabulary.size(); ++token) {
            const bool may = allows(*mask, token);
            Matcher other = matcher;
            CHECK(other.take_token(token) == (may && token != kMaskEnd && token != kMaskEndToo));
            if (may && !vocabulary.piece(token).empty()) {
                allowed.push_back(token);
            }
        }
        if (allowed.empty()) {
            break;
        }
        const uint32_t token = allowed[random() % allowed.size()];
        CHECK(matcher.take_token(token));
        text += vocabulary.piece(token);
    }
    return text;
}

TEST_CASE("Matcher::mask: the tokens that can be taken one by one, byte by byte") {
    std::mt19937 random(8);
    const auto vocabulary = vocabulary_of(mask_pieces(random));
    for (const MaskCase &each : kMaskCases) {
        const auto automaton = compile_constraint(each.kind, each.text);
        const Matcher start(automaton, vocabulary);
        for (uint32_t seed = 0; seed < 3; ++seed) {
            const std::string text = walk_tokens(each, start, automaton, *vocabulary, seed);
            CHECK(!text.empty());
            // With a cache so small that it is emptied within a walk of the tree.
            CHECK(walk_tokens(each, Matcher(automaton, vocabulary, 1), automaton, *vocabulary,
                              seed) == text);
        }
    }
}

TEST_CASE("Matcher::take: refuses a text and stays where it was") {
    std::mt19937 random(9);
    const auto vocabulary = vocabulary_of(mask_pieces(random));
    Matcher matcher(compile_constraint(ConstraintKind::regex, "ab*c"), vocabulary);
    CHECK(!matcher.take("abx"));
    CHECK(!matcher.take_token(kMaskSpecial));
    CHECK(!matcher.take_token(kMaskEnd));
    CHECK(matcher.take("abb"));
    CHECK(!matcher.complete());
    CHECK(matcher.take("c"));
    CHECK(matcher.complete());
    const std::shared_ptr<const Mask> mask = matcher.mask();
    for (uint32_t token = 0; token < vocabulary->size(); ++token) {
        CHECK(allows(*mask, token) == (token == kMaskEnd || token == kMaskEndToo));
    }
}

TEST_CASE("Matcher: copies go on by themselves, also from several threads") {
    std::mt19937 random(10);
    const auto vocabulary = vocabulary_of(mask_pieces(random));
    const MaskCase &schema = kMaskCases[1];
    const auto automaton = compile_constraint(schema.kind, schema.text);
    for (const size_t bytes : {size_t{1}, Matcher::kPlacesBytes}) {
        const Matcher start(automaton, vocabulary, bytes);
        std::string texts[4];
        std::vector<std::thread> threads;
        for (std::string &text : texts) {
            threads.emplace_back([&] {
                Matcher matcher = start;
                std::mt19937 choice(static_cast<uint32_t>(&text - texts));
                for (int step = 0; step < 40; ++step) {
                    const std::shared_ptr<const Mask> mask = matcher.mask();
                    uint32_t token = choice() % vocabulary->size();
                    for (uint32_t i = 0; i < vocabulary->size(); ++i) {
                        token = (token + 1) % vocabulary->size();
                        if (allows(*mask, token) && matcher.take_token(token)) {
                            text += vocabulary->piece(token);
                            break;
                        }
                    }
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        Texts whole(schema.kind, schema.text);
        for (const std::string &text : texts) {
            CHECK(!text.empty());
            CHECK(whole.begins(text));
        }
    }
}

TEST_CASE("Matcher: a bundled vocabulary, whose bytes are tokens of their own") {
    const uint32_t end_token = 1;
    const auto tokenizer = Tokenizer::open(
        places::source + std::string("/tests/data/recall-gemma3"), 1024, {}, {&end_token, 1});
    std::vector<std::string> texts;
    for (uint32_t token = 0; token < tokenizer->size(); ++token) {
        texts.push_back(tokenizer->is_special(token) ? "" : tokenizer->piece_bytes(token));
    }
    const auto vocabulary =
        std::make_shared<const Vocabulary>(texts, std::vector<uint32_t>{end_token});
    const auto automaton =
        compile_constraint(ConstraintKind::regex, "(\xE2\x82\xAC|k is \\d+\\.)+");
    const std::string text = "k is 5.\xE2\x82\xACk is 117.";
    Matcher matcher(automaton, vocabulary);
    std::string taken;
    for (const uint32_t token : tokenizer->encode(text, false, false)) {
        std::string piece = texts[token];
        CHECK(*matcher.mask() == by_definition(automaton, taken, *vocabulary));
        piece = taken.empty() && piece[0] == ' ' ? piece.substr(1) : piece;
        CHECK(matcher.take(piece));
        taken += piece;
    }
    CHECK(taken == text);
    CHECK(matcher.complete());
}

TEST_CASE("Vocabulary: refuses an end token that it does not have") {
    CHECK_THROWS_AS(Vocabulary({"a"}, {1}), Error);
}

} // namespace
} // namespace stasis
