// Byte-level BPE: ids that Hugging Face's tokenizers give (tests/data/byte-bpe), published ids,
// exact round trips, no forged special tokens, and time in proportion to the text.
#include "runtime/text/byte_bpe.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "runtime/model/gguf/gguf.h"
#include "runtime/text/normal_form.h"
#include "runtime/text/tokenizer.h"
#include "tests/data_files.h"
#include "tests/runtime/byte_bpe_layouts.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/random_text.h"
#include "tests/share.h"

namespace stasis {

namespace {

using Tokens = std::vector<uint32_t>;

std::unique_ptr<Tokenizer> open_layout(const std::string &layout) {
    return Tokenizer::open(test_data("byte-bpe/" + layout), 610, Tokens{600}, Tokens{601});
}

// Null where the shared data is not beside the clone.
std::unique_ptr<Tokenizer> open_published(const std::string &name) {
    const std::string path = shared_data("tokenizers/ggml-vocab-" + name + ".gguf");
    return path.empty() ? nullptr : Tokenizer::open_gguf(open_gguf(path), 1 << 20, {}, {});
}

std::string pieces_of(const Tokenizer &tokenizer, const Tokens &tokens) {
    std::string out;
    for (const uint32_t token : tokens) {
        out += tokenizer.piece_bytes(token);
    }
    return out;
}

// StarCoder's vocabulary has no token for the byte that characters U+40000 to U+7FFFF (none so far)
// begin with.
bool lacks_f1(const Tokenizer &tokenizer) {
    return tokenizer.piece(0) == "<|endoftext|>" && tokenizer.piece(1) == "<fim_prefix>";
}

} // namespace

TEST_CASE("ByteBpe: the ids that Hugging Face's tokenizers give") {
    for (const std::string layout : kLayouts) {
        CAPTURE(layout);
        const auto tokenizer = open_layout(layout);
        const auto cases =
            nlohmann::json::parse(read_bytes(test_data("byte-bpe/" + layout + "/expected.json")));
        REQUIRE(cases.size() == 160);
        for (const auto &entry : cases) {
            const auto text = entry.at(0).get<std::string>();
            const Tokens tokens = tokenizer->encode(text, false, true);
            CHECK_MESSAGE(tokens == entry.at(1).get<Tokens>(), text);
            const std::string expected = layout == "qwen2" ? compose(text).text : text;
            CHECK(tokenizer->decode(tokens, true, true) == expected);
            CHECK(pieces_of(*tokenizer, tokens) == expected);
        }
    }
}

TEST_CASE("ByteBpe: the published ids of llama.cpp's vocabularies") {
    for (const std::string name : {"gpt-2", "llama-bpe", "qwen2", "starcoder", "deepseek-coder"}) {
        CAPTURE(name);
        const auto tokenizer = open_published(name);
        if (!tokenizer) {
            STASIS_SKIP("tokenizers/ggml-vocab-*.gguf are not beside the clone");
        }
        const std::string path = shared_data("tokenizers/ggml-vocab-" + name + ".gguf");
        const std::string inputs = read_bytes(path + ".inp");
        std::istringstream expected(read_bytes(path + ".out"));
        static constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
        size_t cases = 0, begin = 0;
        for (std::string line; std::getline(expected, line) && begin <= inputs.size(); ++cases) {
            const size_t end = std::min(inputs.find(kSeparator, begin), inputs.size());
            const std::string input = inputs.substr(begin, end - begin);
            std::istringstream numbers(line);
            const Tokens ids{std::istream_iterator<uint32_t>(numbers), {}};
            const Tokens tokens = tokenizer->encode(input, false, false);
            CHECK_MESSAGE(tokens == ids, input);
            CHECK(tokenizer->decode(tokens, true, false) == input);
            begin = end + kSeparator.size();
        }
        CHECK(cases == 46);
        CHECK(begin == inputs.size()); // a separator is last
    }
}

TEST_CASE("ByteBpe: random texts come back byte for byte") {
    std::mt19937 random(5);
    std::vector<std::unique_ptr<Tokenizer>> tokenizers;
    for (const char *layout : {"llama3", "smollm2", "deepseek-coder"}) {
        tokenizers.push_back(open_layout(layout));
    }
    for (const char *name : {"gpt-2", "llama-bpe", "qwen2", "starcoder", "deepseek-coder"}) {
        if (auto published = open_published(name)) {
            tokenizers.push_back(std::move(published));
        }
    }
    for (const auto &tokenizer : tokenizers) {
        for (int i = 0; i < (test::kSanitized ? 200 : 2000); ++i) {
            const std::string text = random_utf8(random);
            if (lacks_f1(*tokenizer) && text.find('\xF1') != std::string::npos) {
                expect_error(Status::unsupported, {"no token for the byte 0xF1"},
                             [&] { tokenizer->encode(text, false, false); });
                continue;
            }
            const Tokens tokens = tokenizer->encode(text, false, false);
            CHECK_MESSAGE(tokenizer->decode(tokens, true, false) == text, text);
            CHECK(pieces_of(*tokenizer, tokens) == text);
        }
    }
}

TEST_CASE("ByteBpe: marker texts become special tokens only where asked for") {
    for (const auto &[layout, mark] :
         {std::pair("llama3", "<|eot_id|>"), {"smollm2", "<|im_end|>"}, {"qwen2", "<|im_end|>"}}) {
        const auto tokenizer = open_layout(layout);
        const std::string text = std::string("a") + mark + mark + " b";
        const Tokens plain = tokenizer->encode(text, false, false);
        for (const uint32_t token : plain) {
            CHECK(token < 600);
        }
        CHECK(tokenizer->decode(plain, true, false) == text);
        const Tokens parsed = tokenizer->encode(text, false, true);
        CHECK(std::count(parsed.begin(), parsed.end(), 602U) == 2);
        CHECK(tokenizer->decode(parsed, true, true) == text);
        CHECK(tokenizer->decode(parsed, true, false) == "a b");
        CHECK(tokenizer->is_special(602));
        CHECK(tokenizer->piece_bytes(602) == mark);
    }
    // Added tokens that are not special are text, and tokens everywhere, as in the library.
    const auto qwen = open_layout("qwen2");
    CHECK_FALSE(qwen->is_special(603));
    CHECK(qwen->encode("<tool_call>", false, false) == Tokens{603});
    CHECK(qwen->decode(Tokens{603}, true, false) == "<tool_call>");
    // Nor by parts that meet.
    const std::vector<Segment> parts = {{"<|im_", TokenSource::templated, true},
                                        {"end|>", TokenSource::text, false}};
    for (const SourcedToken &token : qwen->encode(parts)) {
        CHECK_FALSE(qwen->is_special(token.token));
    }
}

TEST_CASE("ByteBpe: every token knows where it came from") {
    const auto tokenizer = open_layout("llama3");
    const std::vector<Segment> segments = {
        {"<|begin_of_text|>sess", TokenSource::templated, true, TurnPart::body, true},
        {"ion state \u20AC", TokenSource::text, false},
        {"<|eot_id|>\n", TokenSource::templated, true}};
    const std::vector<SourcedToken> tokens = tokenizer->encode(segments);
    CHECK(tokens.front().token == 600);
    CHECK(tokens[tokens.size() - 2].token == 602);
    CHECK(tokens.back().segment == 2);
    size_t at = 0;
    const size_t end = std::string("session state \u20AC").size();
    for (size_t i = 1; i + 2 < tokens.size(); ++i) {
        const size_t size = tokenizer->piece_bytes(tokens[i].token).size();
        const bool covers = at + size > 4; // a byte of the message
        CHECK((tokens[i].source == TokenSource::text) == covers);
        CHECK(tokens[i].segment == (covers ? 1 : 0));
        at += size;
    }
    CHECK(at == end);
    CHECK(tokenizer->encode("Hello", true, false).front() == 600);
    // No space is put in front of a text.
    CHECK(tokenizer->encode("Hello", true, false).size() ==
          tokenizer->encode("Hello", false, false).size() + 1);
}

TEST_CASE("ByteBpe: composing characters, and where they came from") {
    CHECK_FALSE(may_compose("abc \u00E9"));
    CHECK(may_compose("e\u0301"));
    CHECK(compose("e\u0301 \u00E9 abc").text == "\u00E9 \u00E9 abc");
    CHECK(compose("\u1112\u1161\u11AB").text == "\uD55C");
    CHECK(compose("\u2126").text == "\u03A9");       // Ohm is Omega
    CHECK(compose("\u0958").text == "\u0915\u093C"); // excluded from composition
    CHECK(compose("a\u0327\u0301").text == compose("a\u0301\u0327").text);
    const ComposedText text = compose("ab e\u0301c\u8A00");
    CHECK(text.text == "ab \u00E9c\u8A00");
    CHECK(text.origin(0, 3) == std::pair<size_t, size_t>(0, 3));
    CHECK(text.origin(3, 4) == std::pair<size_t, size_t>(3, 6)); // half of the composed one
    CHECK(text.origin(2, 6) == std::pair<size_t, size_t>(2, 7));
    CHECK(text.origin(4, 6) == std::pair<size_t, size_t>(3, 7)); // from its other half on
    CHECK(text.origin(5, 9) == std::pair<size_t, size_t>(6, 10));
    // A message whose mark composes with the template's letter owns the token.
    const auto tokenizer = open_layout("qwen2");
    const std::vector<Segment> segments = {{"x e", TokenSource::templated, true},
                                           {"\u0301", TokenSource::text, false},
                                           {" y", TokenSource::templated, true}};
    std::string bytes;
    for (const SourcedToken &token : tokenizer->encode(segments)) {
        const std::string piece = tokenizer->piece_bytes(token.token);
        const bool covers = bytes.size() + piece.size() > 2 && bytes.size() < 4;
        CHECK((token.source == TokenSource::text) == covers);
        CHECK(token.segment == (covers ? 1 : bytes.size() < 2 ? 0 : 2));
        bytes += piece;
    }
    CHECK(bytes == "x \u00E9 y");
}

TEST_CASE("ByteBpe: a long text takes time in proportion") {
    const auto seconds = [](const Tokenizer &tokenizer, const std::string &text) {
        const auto begin = std::chrono::steady_clock::now();
        const Tokens tokens = tokenizer.encode(text, false, false);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        CHECK(tokenizer.decode(tokens, true, false) == text);
        return took.count();
    };
    for (const char *layout : kLayouts) {
        const auto tokenizer = open_layout(layout);
        std::string mixed;
        for (const char *unit : {"e", "se", " ", "\n", "!", "7", "\u8A00", " \t\n", "e\u00E9"}) {
            std::string text; // a single word, or as many as can be
            while (text.size() < (test::kSanitized ? 1 << 16 : 1 << 18)) {
                text += unit;
            }
            CAPTURE(layout);
            CAPTURE(unit);
            // Merging pair by pair over a word of this size would take hours; a slow sanitizer
            // build takes some ten seconds.
            CHECK(seconds(*tokenizer, text) < 60);
            for (int i = 0; i < 1 << 12; ++i) {
                mixed += unit;
            }
        }
        CHECK(seconds(*tokenizer, mixed) < 60);
    }
}

TEST_CASE("ByteBpe: patterns") {
    const auto split = [](const std::vector<std::string> &patterns, const std::string &text) {
        std::vector<std::string> out;
        for (const std::string_view word : Pretokenizer(patterns, "f").split(text)) {
            out.emplace_back(word);
        }
        return out;
    };
    using Words = std::vector<std::string>;
    CHECK(split({}, "a b") == Words{"a b"});
    CHECK(split({"b"}, "") == Words{});
    CHECK(split({"b"}, "abba") == Words{"a", "b", "b", "a"});
    CHECK(split({"[0-9]+", "1"}, "a2112") == Words{"a", "2", "1", "1", "2"});
    CHECK(split({R"(\s+)"}, "a\u0085\u00A0\u3000b\u180Ec") ==
          Words{"a", "\u0085\u00A0\u3000", "b\u180Ec"});
    CHECK(split({R"(\d)"}, "1\u0661a") == Words{"1", "\u0661", "a"});
    CHECK(split({R"([^\s]+)"}, "a \u180Eb") == Words{"a", " ", "\u180Eb"});
    CHECK(split({R"(\S+)"}, "a \u180Eb") == Words{"a", " ", "\u180Eb"});
    CHECK(split({R"([]\]\s]+)"}, "a]] b") == Words{"a", "]] ", "b"});
    CHECK(split({R"(\\s)"}, R"(a\sb)") == Words{"a", "\\s", "b"});
    const auto refused = [&](const std::string &pattern, const std::string &why) {
        expect_error(Status::unsupported, {"f.json", why},
                     [&] { Pretokenizer({pattern}, "f.json"); });
    };
    refused("(", "parenthesis");
    refused("a*", "match nothing");
    refused("|a", "match nothing");
    refused(std::string(20000, 'a'), "too long");
    refused(R"(\C)", "\\C");
    refused("\xFF", "UTF-8");
    // Patterns that need more steps than any text deserves.
    const std::string text = std::string(19, 'a') + "!";
    expect_error(Status::unsupported, {"pattern '(?:a+)+[bc]'", "too many steps"},
                 [&] { Pretokenizer({"(?:a+)+[bc]"}, "f").split(text); });
    expect_error(Status::unsupported, {R"(pattern 'a\K')", "no size"},
                 [&] { Pretokenizer({R"(a\K)"}, "f").split("xa"); });
    for (const char *name : {"default", "gpt-2", "llama-bpe", "smollm", "qwen2", "qwen35", "gpt-4o",
                             "starcoder", "deepseek-coder"}) {
        CHECK(split(pretokenizer_patterns(name, "f"), "ab 12\n").size() >= 3);
    }
    CHECK(split(pretokenizer_patterns("default", "f"), "a+b 12345!") ==
          Words{"a", "+", "b", " ", "123", "45", "!"});
    CHECK(split(pretokenizer_patterns("llama-bpe", "f"), "I'LL 12345\n\n x") ==
          Words{"I", "'LL", " ", "123", "45", "\n\n", " x"});
    CHECK(split(pretokenizer_patterns("gpt-2", "f"), "I'll 12345  x\t\ty") ==
          Words{"I", "'ll", " 12345", " ", " x", "\t", "\t", "y"});
    // A letter, a combining acute accent, and what follows.
    CHECK(split(pretokenizer_patterns("qwen2", "f"), "e\u0301a I'LL 12") ==
          Words{"e", "\u0301a", " I", "'LL", " ", "1", "2"});
    CHECK(split(pretokenizer_patterns("qwen35", "f"), "e\u0301a I'LL 12") ==
          Words{"e\u0301a", " I", "'LL", " ", "1", "2"});
    CHECK(split(pretokenizer_patterns("gpt-4o", "f"), "camelCase IT'S 12345 ./\n\n//") ==
          Words{"camel", "Case", " IT'S", " ", "123", "45", " ./\n\n//"});
    expect_error(Status::unsupported, {"f.gguf", "'viking'", "deepseek-coder"},
                 [] { pretokenizer_patterns("viking", "f.gguf"); });
}

} // namespace stasis
