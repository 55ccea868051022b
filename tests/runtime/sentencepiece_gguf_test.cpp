// SentencePiece vocabularies from GGUF metadata: the same library, the same tokens as from the
// tokenizer.model that the vocabulary was taken from.
#include <algorithm>
#include <limits>
#include <random>
#include <sstream>

#include "runtime/model/gguf/gguf.h"
#include "runtime/text/sentencepiece_build.h"
#include "runtime/text/sentencepiece_model.h"
#include "runtime/text/tokenizer.h"
#include "tests/data_files.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/random_text.h"

namespace stasis {

namespace {

using Tokens = std::vector<uint32_t>;
using Type = GgufValueType;

// Returns the scores of a tokenizer.model: for each piece (field 1, "\x0A") the number after its
// text (field 2, "\x15").
std::vector<float> scores_of(const std::string &model, size_t pieces) {
    std::vector<float> scores;
    for (size_t at = 0; scores.size() < pieces;) {
        REQUIRE(model.at(at) == '\x0A');
        const size_t size = static_cast<unsigned char>(model.at(at + 1)); // below 128
        const size_t text = static_cast<unsigned char>(model.at(at + 3));
        REQUIRE(model.at(at + 4 + text) == '\x15');
        float score = 0;
        std::memcpy(&score, model.data() + at + 5 + text, sizeof score);
        scores.push_back(score);
        at += 2 + size;
    }
    return scores;
}

struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<int32_t> types;
    bool prefix = true;

    GgufWriter writer() const {
        GgufWriter out;
        out.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
        out.array("tokenizer.ggml.scores", Type::f32, scores);
        out.array("tokenizer.ggml.token_type", Type::i32, types);
        out.boolean("tokenizer.ggml.add_space_prefix", prefix);
        return out;
    }
};

Vocabulary recall(const std::string &name, uint32_t unknown, GgufWriter &ids) {
    const std::string bytes = read_bytes(test_data(name + "/tokenizer.model"));
    const SentencepieceModel model = read_sentencepiece_model(bytes);
    Vocabulary out;
    out.scores = scores_of(bytes, model.pieces.size());
    out.prefix = model.add_dummy_prefix;
    for (const Piece &piece : model.pieces) {
        out.tokens.push_back(piece.text);
        out.types.push_back(static_cast<int32_t>(piece.kind));
    }
    ids = out.writer();
    ids.integer("tokenizer.ggml.unknown_token_id", unknown);
    return out;
}

std::unique_ptr<Tokenizer> open_sentencepiece(const GgufWriter &writer) {
    const std::string bytes = writer.bytes();
    return Tokenizer::open_gguf(
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f.gguf"), 1024,
        {}, {});
}

// Runs a published test: pieces of text and the ids of each. Returns their number.
size_t check_published(const Tokenizer &tokenizer, const std::string &name) {
    const std::string path = shared_data("tokenizers/ggml-vocab-" + name + ".gguf");
    const std::string inputs = read_bytes(path + ".inp");
    std::istringstream expected(read_bytes(path + ".out"));
    static constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
    size_t cases = 0, begin = 0;
    for (std::string line; std::getline(expected, line); ++cases) {
        const size_t end = std::min(inputs.find(kSeparator, begin), inputs.size());
        const std::string input = inputs.substr(begin, end - begin);
        std::istringstream numbers(line);
        CHECK_MESSAGE(tokenizer.encode(input, false, false) ==
                          Tokens(std::istream_iterator<uint32_t>(numbers), {}),
                      input);
        begin = end + kSeparator.size();
    }
    CHECK(begin == inputs.size());
    return cases;
}

} // namespace

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: the tokens of the recall models' own "
          "tokenizers") {
    for (const std::string name : {"recall-gemma3", "recall-llama"}) {
        CAPTURE(name);
        GgufWriter writer;
        recall(name, name == "recall-gemma3" ? 3 : 0, writer);
        const auto tokenizer = open_sentencepiece(writer);
        const auto original = Tokenizer::open(test_data(name), 1024, {}, {});
        CHECK(tokenizer->type() == original->type());
        std::mt19937 random(3);
        for (int i = 0; i < 2000; ++i) {
            const std::string text = random_utf8(random);
            const Tokens tokens = tokenizer->encode(text, false, false);
            CHECK_MESSAGE(tokens == original->encode(text, false, false), text);
            CHECK(tokenizer->decode(tokens, true, false) == text);
        }
        for (const std::string text :
             {"<start_of_turn>user\nHi<end_of_turn>", "<s>a</s>", "<|im_start|> x", "\n\n  a"}) {
            CHECK(tokenizer->encode(text, false, false) == original->encode(text, false, false));
            CHECK(tokenizer->encode(text, false, true) == original->encode(text, false, true));
        }
        for (uint32_t token = 0; token < 1024; ++token) {
            CHECK(tokenizer->piece(token) == original->piece(token));
            CHECK(tokenizer->is_special(token) == original->is_special(token));
            CHECK(tokenizer->piece_bytes(token) == original->piece_bytes(token));
        }
    }
}

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: published ids") {
    const std::string path = shared_data("tokenizers/ggml-vocab-llama-spm.gguf");
    if (path.empty()) {
        STASIS_SKIP("tokenizers/ggml-vocab-*.gguf are not beside the clone");
    }
    const auto llama = Tokenizer::open_gguf(open_gguf(path), 32000, {}, {});
    CHECK(check_published(*llama, "llama-spm") == 46);
    const auto phi3 = Tokenizer::open_gguf(
        open_gguf(shared_data("tokenizers/ggml-vocab-phi-3.gguf")), 32064, {}, {});
    CHECK(check_published(*phi3, "phi-3") == 46);
    CHECK(phi3->encode("<|user|>Hi<|end|>", false, true).front() == 32010);
    CHECK(phi3->encode("<|user|>", false, false).size() > 1);
    CHECK(phi3->encode("[PAD32011]", false, true).size() > 1);
    CHECK(phi3->eos_text() == "<|endoftext|>");

    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.model"),
                read_bytes(shared_data("tokenizers/llama2_tokenizer.model")));
    const auto original = Tokenizer::open(directory.path(), 32000, Tokens{1}, Tokens{2});
    CHECK(llama->bos() == 1);
    CHECK(llama->bos_text() == "<s>");
    CHECK(llama->eos_text() == "</s>");
    std::vector<std::string> texts;
    std::istringstream lines(read_bytes(shared_data("tokenizers/kitoken/small_input.txt")));
    for (std::string line; std::getline(lines, line);) {
        texts.push_back(line);
    }
    CHECK(texts.size() == 20);
    texts.push_back(read_bytes(shared_data("tokenizers/kitoken/utf8_input.txt")));
    std::mt19937 random(4);
    while (texts.size() < 2000) {
        texts.push_back(random_utf8(random));
    }
    for (const std::string &text : texts) {
        CHECK(llama->encode(text, true, false) == original->encode(text, true, false));
        CHECK(llama->encode(text, false, true) == original->encode(text, false, true));
    }
    for (uint32_t token = 0; token < 32000; ++token) {
        CHECK(llama->piece_bytes(token) == original->piece_bytes(token));
        CHECK(llama->is_special(token) == original->is_special(token));
    }
}

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: what is asked for in front of a text") {
    const Vocabulary vocabulary{{"<unk>", "<s>", "a", "\u2581", "\u2581a", "<pad>"},
                                {0, 0, -3, -2, -1, 0},
                                {2, 3, 1, 1, 1, 4}};
    CHECK(open_sentencepiece(vocabulary.writer())->encode("a", false, false) == Tokens{4});
    CHECK(open_sentencepiece(vocabulary.writer())->encode("<pad>", false, true) == Tokens{5});
    CHECK(open_sentencepiece(vocabulary.writer())->is_special(5));
    Vocabulary plain = vocabulary;
    plain.prefix = false;
    CHECK(open_sentencepiece(plain.writer())->encode("a", false, false) == Tokens{2});
    const auto rule = [](const Tokenizer &tokenizer, const std::string &name) {
        for (const auto &[key, value] : tokenizer.rules()) {
            if (key == name) {
                return value;
            }
        }
        return std::string("absent");
    };
    CHECK(rule(*open_sentencepiece(plain.writer()), "dummy_prefix") == "no");
    CHECK(rule(*open_sentencepiece(plain.writer()), "add_bos") == "absent");
    const auto adds =
        open_sentencepiece(plain.writer().boolean("tokenizer.ggml.add_bos_token", true));
    CHECK(rule(*adds, "add_bos") == "yes");
    CHECK(adds->digest() != open_sentencepiece(plain.writer())->digest());
    CHECK(adds->encode("a", false, false) == Tokens{2}); // by the caller, not by the tokenizer
    // The library takes one unknown piece; others are control pieces to it.
    const Vocabulary unknown{{"<unk>", "<x>", "a"}, {0, 0, -1}, {2, 2, 1}};
    CHECK(open_sentencepiece(unknown.writer())->encode("<x>", false, true) == Tokens{1});
    CHECK(open_sentencepiece(unknown.writer())->is_special(1));
    // Scores say which merge comes first.
    Vocabulary pairs{
        {"<unk>", "a", "b", "c", "ab", "bc"}, {0, 0, 0, 0, -1, -2}, {2, 1, 1, 1, 1, 1}};
    pairs.prefix = false;
    CHECK(open_sentencepiece(pairs.writer())->encode("abc", false, false) == Tokens{4, 3});
    std::swap(pairs.scores[4], pairs.scores[5]);
    CHECK(open_sentencepiece(pairs.writer())->encode("abc", false, false) == Tokens{1, 5});
}

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: what is wrong is named") {
    const Vocabulary good{{"<unk>", "b", "a"}, {0, 0, -1}, {2, 1, 1}};
    CHECK(open_sentencepiece(good.writer())->piece_bytes(1) == "b");
    const auto refused = [](const Vocabulary &vocabulary, const std::vector<std::string> &parts) {
        std::vector<std::string> all = parts;
        all.emplace_back("f.gguf");
        expect_error(Status::corrupt, all, [&] { open_sentencepiece(vocabulary.writer()); });
    };
    Vocabulary bad = good;
    bad.scores.pop_back();
    refused(bad, {"scores", "2 scores for 3 tokens"});
    bad = good;
    bad.scores[1] = std::numeric_limits<float>::quiet_NaN();
    refused(bad, {"scores", "token 1", "finite"});
    bad = good;
    bad.tokens[2] = "";
    refused(bad, {"token 2 is empty"});
    bad.tokens[2] = std::string("\0<", 2);
    refused(bad, {"token 2", "NUL"});
    bad = good;
    bad.types[1] = 6;
    bad.tokens[1] = "<0x0a>";
    refused(bad, {"token 1 is a byte"});
    bad.tokens[1] = "<0x0A>"; // one byte of 256: the library's own refusal, as the next
    refused(bad, {"256 byte pieces"});
    bad = good;
    bad.tokens[2] = "b";
    refused(bad, {"b is already defined"});
    // Text that the library would read as a control symbol.
    bad = good;
    bad.types[2] = 3;
    refused(bad, {"control piece 2", "'a'", "single character"});
    bad.tokens[2] = "\u2581";
    refused(bad, {"control piece 2", "single character"});
    bad.tokens = {"<unk>", "<s>", "<s>"};
    refused(bad, {"piece 1", "control piece 2", "<s>"});
    GgufWriter rules = good.writer();
    rules.array<uint8_t>("tokenizer.ggml.precompiled_charsmap", Type::u8, {1, 2});
    expect_error(Status::unsupported, {"f.gguf", "precompiled_charsmap"},
                 [&] { open_sentencepiece(rules); });
}

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: user-defined tokens of spaces, in either "
          "spelling") {
    GgufWriter unused;
    Vocabulary vocabulary = recall("recall-gemma3", 3, unused);
    vocabulary.types[900] = 4;
    for (const std::string spelled : {"  ", "\u2581\u2581"}) {
        CAPTURE(spelled);
        vocabulary.tokens[900] = spelled;
        GgufWriter writer = vocabulary.writer();
        writer.integer("tokenizer.ggml.unknown_token_id", 3);
        const auto tokenizer = open_sentencepiece(writer);
        const Tokens tokens = tokenizer->encode("a  b", false, false);
        CHECK(std::count(tokens.begin(), tokens.end(), 900) == 1);
        CHECK(tokenizer->decode(tokens, true, false) == "a  b");
        CHECK(!tokenizer->is_special(900));
        CHECK(tokenizer->piece_bytes(900) == "  ");
    }
}

TEST_CASE("SentencepieceEncoder: sentencepiece from gguf: this project's own keys, where they say "
          "what cannot be") {
    GgufWriter writer;
    recall("recall-gemma3", 3, writer);
    GgufWriter form = writer;
    form.text("stasis.tokenizer.normalization", "NFC");
    expect_error(Status::unsupported, {"stasis.tokenizer.normalization", "NFC"},
                 [&] { open_sentencepiece(form); });
    for (const int32_t id : {-5, 1024, 99999}) {
        GgufWriter tokens = writer;
        tokens.array("stasis.tokenizer.text_tokens", Type::i32, std::vector<int32_t>{1, id});
        expect_error(Status::corrupt, {"stasis.tokenizer.text_tokens", std::to_string(id)},
                     [&] { open_sentencepiece(tokens); });
    }
}

} // namespace stasis
