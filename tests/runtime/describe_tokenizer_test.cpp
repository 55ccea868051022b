// Tokenizers through a GGUF file's metadata: the same ids, special tokens and templates as from the
// files of the directory.
#include "runtime/text/describe_tokenizer.h"

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "runtime/text/sentencepiece_build.h"
#include "runtime/text/sentencepiece_model.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_config.h"
#include "tests/data_files.h"
#include "tests/runtime/byte_bpe_layouts.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/random_text.h"

namespace stasis {

namespace {

using Tokens = std::vector<uint32_t>;

// The directory's tokenizer, and the one that its description as GGUF gives.
struct Both {
    std::unique_ptr<Tokenizer> original, described;
    std::string bytes;

    Both(const std::string &directory, const Config &config) {
        original = Tokenizer::open(directory, config.vocabulary, config.bos, config.end_tokens);
        GgufMetadata metadata;
        describe_tokenizer(directory, config, metadata);
        std::vector<GgufEntry> none;
        bytes = gguf_head(metadata, none);
        if (original != nullptr) {
            described = Tokenizer::open_gguf(file(), config.vocabulary, {}, {});
        }
    }
    GgufFile file() const {
        return parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f.gguf");
    }
    void check(const std::string &text) const {
        for (const bool special : {false, true}) {
            CHECK_MESSAGE(described->encode(text, false, special) ==
                              original->encode(text, false, special),
                          text);
        }
    }
    void check_tokens() const {
        CHECK(described->type() == original->type());
        CHECK(described->size() == original->size());
        CHECK(described->bos() == original->bos());
        CHECK(described->bos_text() == original->bos_text());
        CHECK(described->eos_text() == original->eos_text());
        for (uint32_t token = 0; token < original->size(); ++token) {
            CAPTURE(token);
            CHECK(described->is_special(token) == original->is_special(token));
            if (!original->piece(token).empty()) { // else: a name for what no text becomes
                CHECK(described->piece(token) == original->piece(token));
                CHECK(described->piece_bytes(token) == original->piece_bytes(token));
            }
        }
    }
    // Texts in which every token's spelling stands, special ones included.
    void check_spellings() const {
        for (uint32_t token = 0; token < original->size(); ++token) {
            check("a " + original->piece(token) + "b");
            check(original->piece(token));
        }
    }
};

Config config_of(uint32_t vocabulary, Tokens bos, Tokens end) {
    Config config;
    config.vocabulary = vocabulary;
    config.bos = std::move(bos);
    config.end_tokens = std::move(end);
    return config;
}

// The parts of a bundled model's vocabulary, for tests to change.
SentencepieceParts parts_of(const std::string &name) {
    const SentencepieceModel model =
        read_sentencepiece_model(read_bytes(test_data(name + "/tokenizer.model")));
    SentencepieceParts parts;
    parts.pieces = model.pieces;
    parts.scores = model.scores;
    parts.byte_fallback = model.byte_fallback;
    parts.add_dummy_prefix = model.add_dummy_prefix;
    return parts;
}

} // namespace

TEST_CASE("describe_tokenizer: sentencepiece vocabularies of the bundled models") {
    for (const std::string name : {"recall-gemma3", "recall-llama"}) {
        CAPTURE(name);
        const Both both(test_data(name), read_config(test_data(name)));
        both.check_tokens();
        both.check_spellings();
        std::mt19937 random(11);
        for (int i = 0; i < 1000; ++i) {
            both.check(random_utf8(random));
        }
        const GgufFile file = both.file();
        CHECK(file.text("tokenizer.chat_template") ==
              read_tokenizer_config(test_data(name)).chat_template);
        CHECK(file.boolean("tokenizer.ggml.add_bos_token") == true);
    }
}

TEST_CASE("describe_tokenizer: user-defined tokens of spaces, spelled as published files do") {
    SentencepieceParts parts = parts_of("recall-gemma3");
    parts.pieces[900] = {"\u2581\u2581", PieceKind::user_defined};
    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.model"), build_sentencepiece_model(parts));
    const Both both(directory.path(), config_of(1024, {2}, {1}));
    both.check_tokens();
    for (const std::string text : {"a  b", "a b", "a   b", "    ", "a \u2581b"}) {
        both.check(text);
    }
    const Tokens tokens = both.described->encode("a  b", false, false);
    CHECK(std::count(tokens.begin(), tokens.end(), 900) == 1);
    CHECK(both.file().texts("tokenizer.ggml.tokens")->at(900) == "  ");
}

TEST_CASE("describe_tokenizer: Llama 2's vocabulary and the texts that are published with ids") {
    const std::string model = shared_data("tokenizers/llama2_tokenizer.model");
    if (model.empty()) {
        STASIS_SKIP("tokenizers/llama2_tokenizer.model is not beside the clone");
    }
    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.model"), read_bytes(model));
    const Both both(directory.path(), config_of(32016, {1}, {2})); // a padded vocabulary
    both.check_tokens();
    std::istringstream lines(read_bytes(shared_data("tokenizers/kitoken/small_input.txt")));
    for (std::string line; std::getline(lines, line);) {
        both.check(line);
    }
    both.check(read_bytes(shared_data("tokenizers/kitoken/utf8_input.txt")));
    std::mt19937 random(12);
    for (int i = 0; i < 1000; ++i) {
        both.check(random_utf8(random));
    }
}

TEST_CASE("describe_tokenizer: byte-level BPE in the published layouts") {
    for (const std::string layout : kLayouts) {
        CAPTURE(layout);
        const std::string path = test_data("byte-bpe/" + layout);
        const Both both(path, config_of(610, {600}, {601, 602, 603}));
        both.check_tokens();
        both.check_spellings();
        const auto cases = nlohmann::json::parse(read_bytes(path + "/expected.json"));
        for (const auto &entry : cases) {
            both.check(entry.at(0).get<std::string>());
        }
        std::mt19937 random(13);
        for (int i = 0; i < 500; ++i) {
            both.check(random_utf8(random));
        }
        CHECK(both.file().integer("tokenizer.ggml.eot_token_id") == 602);
        CHECK(both.file().integer("tokenizer.ggml.eom_token_id") == 603);
    }
}

TEST_CASE("describe_tokenizer: no tokenizer at all, and what GGUF has no word for") {
    const TemporaryDirectory directory;
    const Both none(directory.path(), config_of(100, {5}, {7}));
    CHECK(none.original == nullptr);
    CHECK(none.file().text("tokenizer.ggml.model") == "no_vocab");
    CHECK(none.file().integer("tokenizer.ggml.bos_token_id") == 5);

    const auto refused = [&](const std::vector<std::string> &parts, const Config &config) {
        expect_error(Status::unsupported, parts, [&] {
            GgufMetadata metadata;
            describe_tokenizer(directory.path(), config, metadata);
        });
    };
    std::string json = read_bytes(test_data("byte-bpe/llama3/tokenizer.json"));
    const size_t at = json.find("{1,3}");
    REQUIRE(at != std::string::npos);
    write_bytes(directory.file("tokenizer.json"), std::string(json).replace(at, 5, "{1,4}"));
    refused({"tokenizer.json", "pre_tokenizer", "ignore_merges"}, config_of(610, {600}, {601}));
    write_bytes(directory.file("tokenizer.json"), json);
    refused({"4 end tokens"}, config_of(610, {600}, {601, 602, 603, 604}));
}

TEST_CASE("describe_tokenizer: the first end token is the one whose text templates write") {
    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.model"),
                read_bytes(test_data("recall-llama/tokenizer.model")));
    const std::string json = directory.file("tokenizer_config.json");
    write_bytes(json, R"({"eos_token": "</s>", "bos_token": "<s>"})");
    for (const Tokens &ends : {Tokens{4, 2}, Tokens{2, 4}, Tokens{4, 3, 2}}) {
        const Both both(directory.path(), config_of(1024, {1}, ends));
        both.check_tokens();
        CHECK(both.described->eos_text() == "</s>");
        CHECK(both.file().integer("tokenizer.ggml.eos_token_id") == 2);
        CHECK(both.file().integer("tokenizer.ggml.eot_token_id") == (ends[0] == 2 ? 4 : ends[0]));
    }
    // Texts that no token of the file gives.
    const auto refused = [&](const std::vector<std::string> &parts, const Config &config) {
        const Both both(directory.path(), config);
        expect_error(Status::unsupported, parts, [&] {
            check_described_tokenizer(directory.path(), config, both.file(), config);
        });
    };
    refused({"eos text is '</s>'", "'<|im_end|>'"}, config_of(1024, {1}, {4}));
    write_bytes(json, R"({"eos_token": "</s>", "bos_token": "<|im_start|>"})");
    refused({"bos text is '<|im_start|>'", "'<s>'"}, config_of(1024, {1}, {2}));
}

TEST_CASE("describe_tokenizer: sentencepiece rules and special pieces that GGUF cannot say") {
    const TemporaryDirectory directory;
    const std::string model = read_bytes(test_data("recall-llama/tokenizer.model"));
    const std::string path = directory.file("tokenizer.model");
    const Config config = config_of(1024, {1}, {2});
    const auto refused = [&](const std::vector<std::string> &parts) {
        expect_error(Status::unsupported, parts, [&] {
            GgufMetadata metadata;
            describe_tokenizer(directory.path(), config, metadata);
        });
    };
    write_bytes(path, model + std::string("\x1A\x02\x28\x00", 4)); // normalizer_spec, field 5
    refused({"tokenizer.model", "escape_whitespaces"});
    write_bytes(path, model);
    const auto original = Tokenizer::open(directory.path(), 1024, config.bos, config.end_tokens);
    for (const char *text : {"the", "\u2581and"}) { // an ordinary piece, then one under its name
        const nlohmann::json added = {
            {"added_tokens_decoder",
             {{"700",
               {{"content", text == std::string("the") ? original->piece(700) : text},
                {"special", true}}}}}};
        write_bytes(directory.file("tokenizer_config.json"), added.dump());
        refused({"tokenizer.model", "token 700", original->piece(700), "special"});
    }
}

TEST_CASE("describe_tokenizer: a form of normalization that is not known is named") {
    Both both(test_data("byte-bpe/qwen2"), config_of(610, {600}, {601}));
    const std::string key = "stasis.tokenizer.normalization";
    const size_t at = both.bytes.find("NFC", both.bytes.find(key));
    REQUIRE(at != std::string::npos);
    both.bytes.replace(at, 3, "NFD");
    expect_error(Status::unsupported, {"f.gguf", key, "\"NFD\""},
                 [&] { Tokenizer::open_gguf(both.file(), 610, {}, {}); });
}

} // namespace stasis
