// Tokenizer: published ids, exact round trips, no forged special tokens, where tokens come from.
#include "runtime/host/utf8.h"
#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/text/chat.h"
#include "runtime/text/sentencepiece_model.h"
#include "tests/data_files.h"
#include "tests/places.h"
#include "tests/runtime/failure.h"
#include "tests/runtime/random_text.h"

namespace fs = std::filesystem;
using namespace stasis;
using namespace stasis::test;
using TokenIds = std::vector<uint32_t>;

namespace {

std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file.good(), path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path &path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A directory that goes when the test ends.
struct Directory {
    fs::path path;
    explicit Directory(const std::string &name)
        : path(fs::path(places::binary) / ("tokenizer_test_" + name)) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Directory() { fs::remove_all(path); }
    std::string name() const { return path.string(); }
};

std::unique_ptr<Tokenizer> open_recall(const std::string &model) {
    const bool gemma = model == "recall-gemma3";
    const TokenIds bos = {gemma ? 2U : 1U}, end = {gemma ? 5U : 4U};
    return Tokenizer::open(test_data(model), 1024, bos, end);
}

// Llama 2's vocabulary; null where the shared data is not beside the clone.
std::unique_ptr<Tokenizer> open_llama2(const Directory &directory) {
    const std::string path = shared_data("tokenizers/llama2_tokenizer.model");
    if (path.empty()) {
        return nullptr;
    }
    write_file(directory.path / "tokenizer.model", read_file(path));
    return Tokenizer::open(directory.name(), 32000, TokenIds{1}, TokenIds{2});
}

TokenIds numbers(const std::string &text) {
    TokenIds out;
    std::string digits = text;
    std::replace(digits.begin(), digits.end(), ',', ' ');
    std::istringstream stream(digits);
    for (uint32_t id; stream >> id;) {
        out.push_back(id);
    }
    return out;
}

} // namespace

TEST_CASE("Tokenizer: Llama 2's published ids") {
    const Directory directory("llama2");
    const auto tokenizer = open_llama2(directory);
    if (!tokenizer) {
        STASIS_SKIP("tokenizers/llama2_tokenizer.model is not beside the clone");
    }
    SUBCASE("kitoken, line by line") {
        std::istringstream inputs(read_file(shared_data("tokenizers/kitoken/small_input.txt")));
        std::istringstream expected(
            read_file(shared_data("tokenizers/kitoken/small_tokens_llama2.txt")));
        size_t lines = 0;
        for (std::string input, ids; std::getline(inputs, input) && std::getline(expected, ids);) {
            for (const auto &[escape, meaning] : {std::pair("\\n", "\n"), std::pair("\\s", " ")}) {
                for (size_t at = 0; (at = input.find(escape, at)) != std::string::npos; ++at) {
                    input.replace(at, 2, meaning);
                }
            }
            CHECK_MESSAGE(tokenizer->encode(input, false, false) == numbers(ids), input);
            ++lines;
        }
        CHECK(lines == 20);
    }
    SUBCASE("kitoken, a whole file") {
        const std::string input = read_file(shared_data("tokenizers/kitoken/utf8_input.txt"));
        const TokenIds expected =
            numbers(read_file(shared_data("tokenizers/kitoken/utf8_tokens_llama2.txt")));
        REQUIRE(expected.size() > 1000);
        CHECK(tokenizer->encode(input, false, false) == expected);
        // One of its characters is the one that vocabularies spell a space with.
        std::string decoded = input;
        decoded.replace(decoded.find("\u2581"), 3, " ");
        CHECK(tokenizer->decode(expected, true, false) == decoded);
    }
    SUBCASE("the published vocabulary test of llama.cpp") {
        const std::string inputs =
            read_file(shared_data("tokenizers/ggml-vocab-llama-spm.gguf.inp"));
        std::istringstream expected(
            read_file(shared_data("tokenizers/ggml-vocab-llama-spm.gguf.out")));
        static constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
        size_t pieces = 0, begin = 0;
        for (std::string ids; std::getline(expected, ids) && begin <= inputs.size(); ++pieces) {
            const size_t end = std::min(inputs.find(kSeparator, begin), inputs.size());
            const std::string input = inputs.substr(begin, end - begin);
            CHECK_MESSAGE(tokenizer->encode(input, false, false) == numbers(ids), input);
            begin = end + kSeparator.size();
        }
        CHECK(pieces > 40);
    }
    SUBCASE("the space in front of a text is there once") {
        CHECK(tokenizer->encode("Hello", false, false) == TokenIds{15043});
        CHECK(tokenizer->encode("Hello", true, false) == TokenIds{1, 15043});
        CHECK(tokenizer->encode("<s>Hello", false, true) == TokenIds{1, 15043});
        CHECK(tokenizer->encode("<s>Hello</s>Hello", false, true) == TokenIds{1, 15043, 2, 10994});
        CHECK(tokenizer->encode("</s>Hello", false, true) == TokenIds{2, 10994});
        CHECK(tokenizer->encode("", true, false) == TokenIds{1});
        CHECK(tokenizer->decode(TokenIds{15043}, true, false) == "Hello");
        CHECK(tokenizer->decode(TokenIds{15043}, false, false) == " Hello");
        CHECK(tokenizer->decode(TokenIds{1, 15043}, true, true) == "<s>Hello");
        CHECK(tokenizer->decode(TokenIds{1, 15043}, true, false) == "Hello");
        CHECK(tokenizer->decode(TokenIds{2, 15043}, true, false) == " Hello");
    }
    SUBCASE("a turn rendered alone gets no space in front") {
        const std::vector<Segment> first = {
            {"<s>[INST] Hello [/INST]", TokenSource::templated, true, TurnPart::body, true}};
        std::vector<Segment> later = first;
        later[0].start = false;
        CHECK(tokenizer->encode(first)[1].token == 518);   // "\u2581["
        CHECK(tokenizer->encode(later)[1].token == 29961); // "["
    }
    SUBCASE("the space in front moves no token to another segment") {
        const std::vector<Segment> segments = {
            {"Hello Hello", TokenSource::templated, true, TurnPart::body, true},
            {" Hello", TokenSource::text},
            {" Hello", TokenSource::templated, true}};
        uint32_t expected[] = {0, 0, 1, 2}, *at = expected;
        for (const SourcedToken &token : tokenizer->encode(segments)) {
            CHECK(token.token == 15043);
            CHECK(token.segment == *at++);
        }
    }
    SUBCASE("bytes") {
        CHECK(tokenizer->piece(13) == "<0x0A>");
        CHECK(tokenizer->piece_bytes(13) == "\n");
        CHECK(tokenizer->piece(15043) == "\u2581Hello");
        CHECK(tokenizer->piece_bytes(15043) == " Hello");
        CHECK(tokenizer->piece_bytes(2) == "</s>");
        // An emoji that is no piece: four byte tokens, each of which adds its byte.
        const TokenIds emoji = tokenizer->encode("\U0001F634", false, false);
        REQUIRE(emoji.size() == 5);
        std::string text;
        for (size_t i = 1; i < 5; ++i) {
            text += tokenizer->piece_bytes(emoji[i]);
            CHECK(complete_utf8(text) == (i == 4 ? 4 : 0));
        }
        CHECK(text == "\U0001F634");
    }
}

TEST_CASE("Tokenizer: random texts come back byte for byte") {
    std::mt19937 random(7);
    const Directory directory("roundtrip");
    std::vector<std::unique_ptr<Tokenizer>> tokenizers;
    tokenizers.push_back(open_recall("recall-gemma3"));
    tokenizers.push_back(open_recall("recall-llama"));
    if (auto llama2 = open_llama2(directory)) {
        tokenizers.push_back(std::move(llama2));
    }
    for (const auto &tokenizer : tokenizers) {
        for (int i = 0; i < 3000; ++i) {
            const std::string text = random_utf8(random);
            const TokenIds tokens = tokenizer->encode(text, false, false);
            CHECK_MESSAGE(tokenizer->decode(tokens, true, false) == text, text);
        }
    }
}

TEST_CASE("Tokenizer: marker texts become special tokens only where asked for") {
    struct Case {
        const char *model, *text;
        uint32_t token;
    };
    static constexpr Case kCases[] = {{"recall-gemma3", "<bos>", 2},
                                      {"recall-gemma3", "<eos>", 1},
                                      {"recall-gemma3", "<pad>", 0},
                                      {"recall-gemma3", "<unk>", 3},
                                      {"recall-gemma3", "<start_of_turn>", 4},
                                      {"recall-gemma3", "<end_of_turn>", 5},
                                      {"recall-llama", "<s>", 1},
                                      {"recall-llama", "</s>", 2},
                                      {"recall-llama", "<|im_start|>", 3},
                                      {"recall-llama", "<|im_end|>", 4}};
    for (const Case &c : kCases) {
        const auto tokenizer = open_recall(c.model);
        const std::string text = std::string("a ") + c.text + c.text + " b";
        const TokenIds plain = tokenizer->encode(text, false, false);
        CHECK_MESSAGE(std::none_of(plain.begin(), plain.end(),
                                   [&](uint32_t t) { return tokenizer->is_special(t); }),
                      c.text);
        CHECK(tokenizer->decode(plain, true, false) == text);
        const TokenIds parsed = tokenizer->encode(text, false, true);
        CHECK(std::count(parsed.begin(), parsed.end(), c.token) == 2);
        CHECK(tokenizer->decode(parsed, true, true) == text);
        CHECK(tokenizer->decode(parsed, true, false) == "a  b");
        CHECK(tokenizer->is_special(c.token));
        CHECK(tokenizer->piece_bytes(c.token) == c.text);
    }
    // Nor by parts that meet.
    const auto gemma = open_recall("recall-gemma3");
    const std::vector<Segment> parts = {{"<start_of", TokenSource::templated, true},
                                        {"_turn>", TokenSource::text, false}};
    for (const SourcedToken &token : gemma->encode(parts)) {
        CHECK_FALSE(gemma->is_special(token.token));
    }
    CHECK_FALSE(gemma->is_special(6)); // "\n" is user-defined, and a text like any other
    CHECK(gemma->encode("\n", false, false) == TokenIds{6});
}

TEST_CASE("Tokenizer: every token knows where it came from") {
    const auto tokenizer = open_recall("recall-gemma3");
    const std::vector<Segment> segments = {{"<start_of_turn>user\nA", TokenSource::templated, true},
                                           {"nd then \u20AC", TokenSource::text, false},
                                           {"<end_of_turn>\n", TokenSource::templated, true}};
    const std::vector<SourcedToken> tokens = tokenizer->encode(segments);
    REQUIRE(tokens.front().token == 4);
    CHECK(tokens.front().source == TokenSource::templated);
    CHECK(tokens[tokens.size() - 2].token == 5);
    CHECK(tokens.back().source == TokenSource::templated);
    // One token over two segments belongs to the message.
    const std::vector<Segment> word = {{" t", TokenSource::templated, true},
                                       {"he", TokenSource::text, false}};
    const std::vector<SourcedToken> the = tokenizer->encode(word);
    REQUIRE(the.size() == 1);
    CHECK(the[0].source == TokenSource::text);
    CHECK(the[0].segment == 1);

    size_t at = 0; // in the text after the marker
    const size_t begin = 5, end = 6 + std::string("nd then \u20AC").size();
    for (size_t i = 1; i + 2 < tokens.size(); ++i) {
        const size_t size = tokenizer->piece_bytes(tokens[i].token).size();
        const bool covers = at + size > begin + 1 && at < end;
        CHECK((tokens[i].source == TokenSource::text) == covers);
        CHECK(tokens[i].segment == (covers ? 1 : at < begin + 1 ? 0 : 2));
        at += size;
    }
    CHECK(at == end);
}

TEST_CASE("Tokenizer: the recall models' conversations, turn by turn") {
    for (const std::string model : {"recall-gemma3", "recall-llama"}) {
        const auto tokenizer = open_recall(model);
        const auto chat = ChatTemplate::recognise(test_data(model), std::nullopt);
        REQUIRE(chat);
        CHECK(chat->problem() == "");
        CHECK(chat->name() == (model == "recall-gemma3" ? "gemma" : "chatml"));
        const auto conversation =
            nlohmann::json::parse(read_file(test_data(model + "/conversation.json")));
        ChatPosition position;
        for (const auto &turn : conversation.at("turns")) {
            const auto rendered =
                chat->turn(position, "user", turn.at("user").get<std::string>(), true);
            TokenIds ids;
            for (const SourcedToken &token : tokenizer->encode(rendered.segments)) {
                ids.push_back(token.token);
            }
            CHECK(ids == turn.at("prompt_ids").get<TokenIds>());
            const auto reply = turn.at("reply_ids").get<TokenIds>();
            CHECK(tokenizer->decode(reply, false, false) == turn.at("reply").get<std::string>());
            position = {true, Role::assistant, true, true, tokenizer->piece_bytes(reply.back()),
                        ""};
        }
    }
}

TEST_CASE("Tokenizer: what it tells about itself") {
    const auto gemma = open_recall("recall-gemma3"), llama = open_recall("recall-llama");
    CHECK(gemma->size() == 1024);
    CHECK(gemma->bos() == 2);
    CHECK(gemma->bos_text() == "<bos>");
    CHECK(gemma->eos_text() == "<eos>");
    CHECK(gemma->type() == "sentencepiece-bpe");
    CHECK(gemma->digest() == open_recall("recall-gemma3")->digest());
    CHECK(gemma->digest() != llama->digest());
    const auto other_end =
        Tokenizer::open(test_data("recall-gemma3"), 1024, TokenIds{2}, TokenIds{1});
    CHECK(other_end->digest() != gemma->digest());
    CHECK(Tokenizer::open(test_data("zoo/llama-gqa-untied"), 1024, {}, {}) == nullptr);
    // Without a tokenizer_config.json the marker texts come from the ids.
    const Directory directory("bare");
    write_file(directory.path / "tokenizer.model",
               read_file(test_data("recall-llama/tokenizer.model")));
    const auto bare = Tokenizer::open(directory.name(), 2000, TokenIds{1}, TokenIds{4});
    CHECK(bare->bos_text() == "<s>");
    CHECK(bare->eos_text() == "<|im_end|>");
    CHECK(bare->size() == 2000);
}

TEST_CASE("Tokenizer: which tokens are special is part of the digest") {
    const auto digest = [](const char *special) {
        const Directory directory("digest");
        write_file(directory.path / "tokenizer.model",
                   read_file(test_data("recall-llama/tokenizer.model")));
        const auto entry = [&](const char *id, const char *text) {
            return std::string("\"") + id + R"(": {"content": ")" + text + R"(", "special": )" +
                   (special == std::string(id) ? "true}" : "false}");
        };
        write_file(directory.path / "tokenizer_config.json", "{\"added_tokens_decoder\": {" +
                                                                 entry("1024", "<a>") + ", " +
                                                                 entry("1025", "<b>") + "}}");
        return Tokenizer::open(directory.name(), 1100, TokenIds{1}, TokenIds{4})->digest();
    };
    CHECK(digest("1024") == digest("1024"));
    CHECK(digest("1024") != digest("1025"));
}

TEST_CASE("Tokenizer: tokens added beside the vocabulary") {
    const Directory directory("added");
    write_file(directory.path / "tokenizer.model",
               read_file(test_data("recall-llama/tokenizer.model")));
    write_file(
        directory.path / "tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "<|end|>", "added_tokens_decoder": {
                   "3": {"content": "<|im_start|>", "special": false},
                   "1024": {"content": "<|end|>", "special": true},
                   "1026": {"content": "<tool>", "special": false}}})");
    const auto tokenizer = Tokenizer::open(directory.name(), 1100, TokenIds{1}, TokenIds{1024});
    CHECK(tokenizer->size() == 1100);
    CHECK(tokenizer->eos_text() == "<|end|>");
    CHECK(tokenizer->encode("<|end|>", false, true) == TokenIds{1024});
    CHECK(tokenizer->decode(TokenIds{1024}, true, true) == "<|end|>");
    const TokenIds plain = tokenizer->encode("<|end|>", false, false);
    CHECK(std::find(plain.begin(), plain.end(), 1024U) == plain.end());
    // A token that the configuration calls not special is text, and is recognised in every text.
    CHECK_FALSE(tokenizer->is_special(3));
    CHECK(tokenizer->encode("<|im_start|>", false, false) == TokenIds{3});
    CHECK(tokenizer->encode("<tool>", false, false) == TokenIds{1026});
    CHECK(tokenizer->decode(TokenIds{1026, 3}, true, false) == "<tool><|im_start|>");
    CHECK(status_of([&] { Tokenizer::open(directory.name(), 1025, TokenIds{1}, TokenIds{}); }) ==
          Status::unsupported);
}

TEST_CASE("Tokenizer: bad input is named") {
    const auto tokenizer = open_recall("recall-gemma3");
    const auto bad = [&](const std::string &text) {
        return status_of([&] { tokenizer->encode(text, false, false); });
    };
    CHECK(bad("ab\xFF") == Status::invalid_argument);
    CHECK(bad("\xE2\x82") == Status::invalid_argument);
    CHECK(bad("\xED\xA0\x80") == Status::invalid_argument); // a surrogate
    CHECK(bad(std::string("a\0b", 3)) == Status::ok);
    CHECK_THROWS_WITH_AS(tokenizer->encode("ab\xFFz", false, false),
                         "the text is not UTF-8 (at byte 2)", Error);
    CHECK(status_of([&] { tokenizer->decode(TokenIds{1024}, true, false); }) ==
          Status::invalid_argument);
    CHECK(status_of([&] { tokenizer->piece(1024); }) == Status::invalid_argument);
    CHECK(status_of([&] { tokenizer->is_special(UINT32_MAX); }) == Status::invalid_argument);
    CHECK(status_of([&] { Tokenizer::open(test_data("recall-gemma3"), 1023, TokenIds{2}, {}); }) ==
          Status::unsupported);
    CHECK(status_of([&] {
              Tokenizer::open(test_data("recall-gemma3"), 1024, TokenIds{1024}, {});
          }) == Status::corrupt);
}

TEST_CASE("Tokenizer: damaged vocabularies are refused, or work") {
    const std::string bytes = read_file(test_data("recall-gemma3/tokenizer.model"));
    const Directory directory("damaged");
    const auto attempt = [&](const std::string &damaged) {
        write_file(directory.path / "tokenizer.model", damaged);
        const Status status = status_of([&] {
            const auto tokenizer = Tokenizer::open(directory.name(), 4096, {}, {});
            const TokenIds tokens = tokenizer->encode("Hello <bos>\n  w\u00F6rld \U0001F634", 0, 1);
            tokenizer->decode(tokens, true, true);
        });
        return status;
    };
    CHECK(attempt(bytes) == Status::ok);
    CHECK(attempt("") == Status::corrupt);
    const std::string cut = bytes + std::string("\x0A\x05\x0A\x01z", 5); // a piece lacks 2 bytes
    CHECK(status_of([&] { read_sentencepiece_model(cut); }) == Status::corrupt);
    size_t refused = 0;
    for (size_t size = 0; size < bytes.size(); size += size < 400 ? 1 : 97) {
        const Status status = attempt(bytes.substr(0, size));
        refused += status == Status::corrupt ? 1 : 0;
        CHECK((status == Status::corrupt || status == Status::ok)); // ok: cut between two fields
    }
    CHECK(refused > 400);
    std::mt19937 random(11);
    for (int i = 0; i < 600; ++i) {
        std::string damaged = bytes;
        const size_t at = i < 300 ? random() % damaged.size()
                                  : damaged.size() - 1 - random() % 400; // trainer, normalizer
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        const Status status = attempt(damaged);
        CHECK((status == Status::ok || status == Status::corrupt || status == Status::unsupported));
    }
}

TEST_CASE("Tokenizer: characters that are still coming are held back") {
    CHECK(complete_utf8("") == 0);
    CHECK(complete_utf8("abc") == 3);
    CHECK(complete_utf8("a\xE2\x82") == 1);
    CHECK(complete_utf8("a\xE2") == 1);
    CHECK(complete_utf8("a\xE2\x82\xAC") == 4);
    CHECK(complete_utf8("a\xF0\x9F\x98") == 1);
    CHECK(complete_utf8("a\x82") == 2);     // can never become valid
    CHECK(complete_utf8("a\xE0\x80") == 3); // nor this: overlong
    CHECK(complete_utf8("a\xF5") == 2);
    CHECK(complete_utf8("a\xED\xA0") == 3); // a surrogate
    CHECK(invalid_utf8("a\u20AC\U0001F634") == 8);
    CHECK(invalid_utf8("a\xC0\x80") == 1);
}
