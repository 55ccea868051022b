// BPE of characters with a fallback to bytes, as Gemma 4 has it: tokens by hand, tokenizer.json and
// the metadata of a GGUF file, and by what name everything else is refused.
#include <nlohmann/json.hpp>

#include "runtime/model/gguf/gguf.h"
#include "runtime/text/tokenizer.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

using CharacterJson = nlohmann::json;
using CharacterTokens = std::vector<uint32_t>;

constexpr uint32_t kCharacterVocabulary = 300;
constexpr uint32_t kBos = 0, kEnd = 1, kByte = 2; // the first of the 256 bytes
constexpr uint32_t kA = 258, kB = 259, kSpaced = 260, kLine = 261, kTurn = 270;

const std::vector<std::string> &spellings() {
    static const std::vector<std::string> list = [] {
        std::vector<std::string> texts = {"<bos>", "<eos>"};
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof text, "<0x%02X>", byte);
            texts.emplace_back(text);
        }
        for (const char *text : {"a", "b", "\u2581", "\n", "ab", "\u2581a", "\u2581\u2581", "\n\n",
                                 "\u2581ab", "aa", "\u00E9a", "\u00E9", "<|turn>"}) {
            texts.emplace_back(text);
        }
        return texts;
    }();
    return list;
}

const std::vector<std::pair<std::string, std::string>> &learnt() {
    static const std::vector<std::pair<std::string, std::string>> list = {
        {"a", "b"}, {"\u2581", "a"},  {"\u2581", "\u2581"}, {"\n", "\n"},
        {"a", "a"}, {"\u2581", "ab"}, {"\u00E9", "a"}};
    return list;
}

CharacterJson character_json() {
    CharacterJson json = {
        {"normalizer",
         {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}},
        {"pre_tokenizer",
         {{"type", "Split"},
          {"pattern", {{"String", " "}}},
          {"behavior", "MergedWithPrevious"},
          {"invert", false}}},
        {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"ignore_merges", false}}}};
    for (uint32_t token = 0; token < spellings().size(); ++token) {
        json["model"]["vocab"][spellings()[token]] = token;
    }
    json["model"]["merges"] = CharacterJson::array();
    for (const auto &[left, right] : learnt()) {
        json["model"]["merges"].push_back({left, right});
    }
    for (const uint32_t token : {kBos, kEnd, kTurn}) {
        json["added_tokens"].push_back({{"id", token},
                                        {"content", spellings()[token]},
                                        {"single_word", false},
                                        {"lstrip", false},
                                        {"rstrip", false},
                                        {"normalized", false},
                                        {"special", true}});
    }
    return json;
}

std::unique_ptr<Tokenizer> open_characters(const CharacterJson &json) {
    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.json"), json.dump());
    return Tokenizer::open(directory.path(), kCharacterVocabulary, CharacterTokens{kBos},
                           CharacterTokens{kEnd});
}

GgufWriter character_gguf() {
    GgufWriter writer;
    std::vector<std::string> merges;
    std::vector<int32_t> types(spellings().size(), 1);
    for (const auto &[left, right] : learnt()) {
        merges.push_back(left + " " + right);
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
        types[kByte + byte] = 6;
    }
    types[kBos] = types[kEnd] = types[kTurn] = 3;
    writer.text("tokenizer.ggml.model", "gemma4").texts("tokenizer.ggml.tokens", spellings());
    writer.array<int32_t>("tokenizer.ggml.token_type", GgufValueType::i32, types);
    return writer.texts("tokenizer.ggml.merges", merges);
}

std::unique_ptr<Tokenizer> open_characters(const GgufWriter &writer) {
    const std::string bytes = writer.bytes();
    const GgufFile file =
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "m.gguf");
    return Tokenizer::open_gguf(file, kCharacterVocabulary, CharacterTokens{kBos},
                                CharacterTokens{kEnd});
}

} // namespace

TEST_CASE("Tokenizer: BPE of characters merges across spaces and falls back to bytes") {
    const struct {
        const char *text;
        CharacterTokens tokens;
    } cases[] = {
        {"", {}},
        {"ab", {262}},
        {" ab", {266}}, // a b first: the merge learnt before space a
        {"a ab", {kA, 266}},
        {"aab", {kA, 262}},   // not aa: a b was learnt earlier
        {"aaa", {267, kA}},   // the leftmost of equals
        {"   a", {264, 263}}, // space a before two spaces
        {"\n\n\n", {265, kLine}},
        {"\u2581b", {kSpaced, kB}}, // spelled like a space
        {"\u00E9a", {268}},         // a token of one character that is not ASCII
        {"\u00E8a", {kByte + 0xC3, kByte + 0xA8, kA}},
        {"\U0001F634", {kByte + 0xF0, kByte + 0x9F, kByte + 0x98, kByte + 0xB4}},
        {"c", {kByte + 'c'}},
        {"<0x61>", {kByte + '<', kByte + '0', kByte + 'x', kByte + '6', kByte + '1', kByte + '>'}},
    };
    for (const auto &tokenizer :
         {open_characters(character_json()), open_characters(character_gguf())}) {
        CHECK(tokenizer->type() == "byte-fallback-bpe");
        CHECK(tokenizer->bos() == kBos);
        for (const auto &each : cases) {
            CAPTURE(each.text);
            CHECK(tokenizer->encode(each.text, false, false) == each.tokens);
            std::string back = each.text;
            if (back == "\u2581b") {
                back = " b";
            }
            CHECK(tokenizer->decode(each.tokens, true, true) == back);
        }
        // Markers are tokens where they are asked for, and text elsewhere.
        CHECK(tokenizer->encode("<|turn>ab", true, true) == CharacterTokens{kBos, kTurn, 262});
        CHECK(tokenizer->encode("<|turn>", false, false).size() == 7);
        CHECK(tokenizer->is_special(kTurn));
    }
    CHECK(open_characters(character_gguf())->frame().before == CharacterTokens{kBos});
}

TEST_CASE("Tokenizer: each token of BPE of characters belongs to the text that it stands for") {
    const auto tokenizer = open_characters(character_json());
    const Segment segments[] = {{" a", TokenSource::templated, false, TurnPart::body, true},
                                {"\u00E8b", TokenSource::text, false, TurnPart::body, false},
                                {"  ", TokenSource::templated, false, TurnPart::body, false}};
    std::vector<uint32_t> owners, tokens;
    for (const SourcedToken &token : tokenizer->encode(segments)) {
        owners.push_back(token.segment);
        tokens.push_back(token.token);
    }
    CHECK(tokens == CharacterTokens{263, kByte + 0xC3, kByte + 0xA8, kB, 264});
    CHECK(owners == std::vector<uint32_t>{0, 1, 1, 1, 2});
}

TEST_CASE("Tokenizer: BPE of characters that is described otherwise is refused by name") {
    const auto refused = [](const char *place, const CharacterJson &value,
                            const std::vector<std::string> &parts) {
        CharacterJson json = character_json();
        json[CharacterJson::json_pointer(place)] = value;
        expect_error(Status::unsupported, parts, [&] { open_characters(json); });
    };
    refused("/normalizer/content", "_", {"normalizer", "byte_fallback"});
    refused("/normalizer/type", "NFC", {"normalizer", "byte_fallback"});
    refused("/pre_tokenizer/type", "ByteLevel", {"pre_tokenizer", "ByteLevel"});
    refused("/pre_tokenizer/pattern/String", "b", {"pre_tokenizer", "Split"});
    refused("/model/ignore_merges", true, {"ignore_merges"});
    CharacterJson without = character_json();
    without["model"]["vocab"].erase("<0xC3>");
    const auto tokenizer = open_characters(without);
    expect_error(Status::unsupported, {"0xC3", "at byte 1"},
                 [&] { tokenizer->encode("a\u00E8", false, false); });
    GgufWriter kinds = character_gguf();
    kinds.text("stasis.tokenizer.normalization", "NFC");
    expect_error(Status::unsupported, {"m.gguf"}, [&] { open_characters(kinds); });
}

} // namespace stasis
