// Files of byte-level BPE tokenizers: what tokenizer.json and the metadata of a GGUF file may say,
// and by what name everything else is refused.
#include <nlohmann/json.hpp>

#include "runtime/model/gguf/gguf.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/tokenizer.h"
#include "tests/data_files.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

using JsonValue = nlohmann::json;
using Tokens = std::vector<uint32_t>;
using Type = GgufValueType;

JsonValue layout(const std::string &name) {
    return JsonValue::parse(read_bytes(test_data("byte-bpe/" + name + "/tokenizer.json")));
}

std::unique_ptr<Tokenizer> open_json(const JsonValue &json, uint32_t vocabulary = 610) {
    const TemporaryDirectory directory;
    write_bytes(directory.file("tokenizer.json"), json.dump());
    return Tokenizer::open(directory.path(), vocabulary, Tokens{600}, Tokens{601});
}

// The layout with the value at a place (a JSON pointer) replaced.
JsonValue edited(const std::string &place, const JsonValue &value,
                 const std::string &name = "llama3") {
    JsonValue json = layout(name);
    json[JsonValue::json_pointer(place)] = value;
    return json;
}

void refused(Status status, const std::vector<std::string> &parts, const JsonValue &json) {
    std::vector<std::string> all = parts;
    all.emplace_back("tokenizer.json");
    expect_error(status, all, [&] { open_json(json); });
}

// The vocabulary of a layout as a GGUF file's metadata.
GgufWriter gguf_of(const std::string &name, const std::string &pre) {
    const JsonValue json = layout(name);
    std::vector<std::string> tokens(610), merges;
    std::vector<int32_t> types(610, 1);
    for (const auto &[text, id] : json["model"]["vocab"].items()) {
        tokens[id.get<size_t>()] = text;
    }
    for (size_t token = 600; token < 610; ++token) {
        tokens[token] = "[PAD" + std::to_string(token) + "]";
        types[token] = 4;
    }
    for (const JsonValue &added : json["added_tokens"]) {
        tokens[added["id"].get<size_t>()] = added["content"].get<std::string>();
        types[added["id"].get<size_t>()] = added["special"].get<bool>() ? 3 : 4;
    }
    for (const JsonValue &merge : json["model"]["merges"]) {
        merges.push_back(merge.is_string()
                             ? merge.get<std::string>()
                             : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    GgufWriter writer;
    writer.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", tokens);
    writer.array("tokenizer.ggml.token_type", Type::i32, types);
    writer.texts("tokenizer.ggml.merges", merges).text("tokenizer.ggml.pre", pre);
    writer.integer("tokenizer.ggml.bos_token_id", 600);
    writer.integer("tokenizer.ggml.eos_token_id", 601);
    return writer;
}

std::unique_ptr<Tokenizer> open_byte_bpe(const GgufWriter &writer, uint32_t vocabulary = 610) {
    const std::string bytes = writer.bytes();
    return Tokenizer::open_gguf(
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f.gguf"),
        vocabulary, {}, {});
}

void refused(Status status, const std::vector<std::string> &parts, const GgufWriter &writer) {
    std::vector<std::string> all = parts;
    all.emplace_back("f.gguf");
    expect_error(status, all, [&] { open_byte_bpe(writer); });
}

// A small vocabulary of its own: a, b, c, ab.
GgufWriter small_vocabulary(const std::string &without = "") {
    GgufWriter writer;
    const auto has = [&](const char *key) { return without != key; };
    if (has("model")) {
        writer.text("tokenizer.ggml.model", "gpt2");
    }
    if (has("tokens")) {
        writer.texts("tokenizer.ggml.tokens", {"a", "b", "c", "ab"});
    }
    if (has("merges")) {
        writer.texts("tokenizer.ggml.merges", {"a b"});
    }
    if (has("types")) {
        writer.array<int32_t>("tokenizer.ggml.token_type", Type::i32, {1, 1, 1, 1});
    }
    return writer;
}

} // namespace

TEST_CASE(
    "Tokenizer: tokenizer files: tokenizer.json and GGUF of one vocabulary give the same tokens") {
    for (const std::string name : {"llama3", "smollm2", "deepseek-coder"}) {
        CAPTURE(name);
        const auto tokenizer = open_byte_bpe(gguf_of(name, name == "llama3"    ? "llama-bpe"
                                                           : name == "smollm2" ? "smollm"
                                                                               : name));
        const JsonValue cases =
            JsonValue::parse(read_bytes(test_data("byte-bpe/" + name + "/expected.json")));
        for (const JsonValue &entry : cases) {
            CHECK(tokenizer->encode(entry[0].get<std::string>(), false, true) ==
                  entry[1].get<Tokens>());
        }
    }
    const auto llama3 = open_byte_bpe(gguf_of("llama3", "llama-bpe"));
    CHECK(llama3->bos() == 600);
    CHECK(llama3->bos_text() == "<|begin_of_text|>");
    CHECK(llama3->eos_text() == "<|end_of_text|>");
    CHECK(llama3->type() == "byte-level-bpe");
    CHECK(llama3->size() == 610);
    CHECK(llama3->encode("[PAD605]", false, true).size() > 1); // padding is no text
    CHECK(llama3->encode("x", true, false)[0] == 600);
    const std::string numbers = "lines 12345, it's\n";
    for (const char *same : {"lfm2", "dbrx"}) {
        CHECK(open_byte_bpe(gguf_of("llama3", same))->encode(numbers, false, true) ==
              llama3->encode(numbers, false, true));
    }
    // The model's configuration has precedence.
    const std::string bytes = gguf_of("llama3", "llama-bpe").bytes();
    const GgufFile gguf =
        parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f");
    const auto other = Tokenizer::open_gguf(gguf, 700, Tokens{601}, Tokens{602});
    CHECK(other->bos() == 601);
    CHECK(other->eos_text() == "<|eot_id|>");
    CHECK(other->size() == 700);
    CHECK(other->piece(699).empty());
}

TEST_CASE("Tokenizer: tokenizer files: the digest covers all that determines tokens") {
    const auto digest = [](const JsonValue &json) { return open_json(json)->digest(); };
    const Digest plain = digest(layout("llama3"));
    CHECK(plain == digest(layout("llama3")));
    CHECK(plain == digest(edited("/truncation", nullptr)));
    CHECK(plain != digest(edited("/model/ignore_merges", false)));
    CHECK(plain != digest(edited("/normalizer", JsonValue{{"type", "NFC"}})));
    CHECK(plain != digest(edited("/added_tokens/0/special", false)));
    CHECK(plain != digest(edited("/added_tokens/0/content", "<|start|>")));
    CHECK(plain != digest(edited("/pre_tokenizer/pretokenizers/0/pattern/Regex", "a+")));
    CHECK(plain != digest(edited("/pre_tokenizer/pretokenizers/1/use_regex", true)));
    JsonValue swapped = layout("llama3");
    std::swap(swapped["model"]["merges"][100], swapped["model"]["merges"][3]);
    CHECK(plain != digest(swapped));
    JsonValue renamed = layout("llama3"); // two tokens trade their ids
    std::swap(renamed["model"]["vocab"]["a"], renamed["model"]["vocab"]["b"]);
    CHECK(plain != digest(renamed));
    JsonValue respelled = layout("llama3"); // a token that no merge knows
    respelled["model"]["vocab"]["\u0100\u0100"] = respelled["model"]["vocab"]["\u0100"];
    respelled["model"]["vocab"].erase("\u0100");
    CHECK(plain != digest(respelled));
    const Tokens bos = {600}, end = {602};
    CHECK(Tokenizer::open(test_data("byte-bpe/llama3"), 610, bos, end)->digest() != plain);
    // In either form of its merges.
    JsonValue texts = layout("llama3");
    for (JsonValue &merge : texts["model"]["merges"]) {
        merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    }
    CHECK(plain == digest(texts));
}

TEST_CASE("Tokenizer: tokenizer files: other kinds of tokenizer.json are refused by name") {
    const auto unsupported = Status::unsupported;
    refused(unsupported, {"model", "type Unigram"}, edited("/model/type", "Unigram"));
    refused(unsupported, {"byte_fallback"}, edited("/model/byte_fallback", true, "qwen2"));
    refused(unsupported, {"end_of_word_suffix"}, edited("/model/end_of_word_suffix", "</w>"));
    refused(unsupported, {"continuing_sub"}, edited("/model/continuing_subword_prefix", "##"));
    refused(unsupported, {"dropout"}, edited("/model/dropout", 0.1));
    refused(unsupported, {"normalizer", "NFKC"},
            edited("/normalizer", JsonValue{{"type", "NFKC"}}));
    refused(unsupported, {"normalizer.normalizers[1]", "Prepend"},
            edited("/normalizer", JsonValue::parse(R"({"type": "Sequence", "normalizers":
                                   [{"type": "NFC"}, {"type": "Prepend"}]})")));
    const std::string parts = "/pre_tokenizer/pretokenizers/";
    refused(unsupported, {"pretokenizers[0]", "Metaspace"},
            edited(parts + "0", JsonValue{{"type", "Metaspace"}}));
    refused(unsupported, {"behavior", "Removed"}, edited(parts + "0/behavior", "Removed"));
    refused(unsupported, {"invert"}, edited(parts + "0/invert", true));
    refused(unsupported, {"add_prefix_space"}, edited(parts + "1/add_prefix_space", true));
    refused(unsupported, {"without ByteLevel"},
            edited("/pre_tokenizer", JsonValue{{"type", "Digits"}}));
    refused(unsupported, {"Digits behind ByteLevel"},
            edited(parts + "2", JsonValue{{"type", "Digits"}}));
    refused(unsupported, {"parenthesis"}, edited(parts + "0/pattern/Regex", "("));
    refused(unsupported, {"added_tokens[1]", "lstrip"}, edited("/added_tokens/1/lstrip", true));
    refused(unsupported, {"single_word"}, edited("/added_tokens/1/single_word", true));
    refused(unsupported, {"the id 610", "610 tokens"}, edited("/added_tokens/1/id", 610));
    refused(unsupported, {"the id -1"}, edited("/model/vocab/a", -1));
    refused(unsupported, {"the id \"1\""}, edited("/model/vocab/a", "1"));
    refused(unsupported, {"610"}, edited("/model/vocab/a", uint64_t{1} << 40));
    // Absent, use_regex means yes, as in the files of GPT-2's time.
    JsonValue silent = layout("smollm2");
    silent["pre_tokenizer"]["pretokenizers"][1].erase("use_regex");
    CHECK(open_json(silent)->digest() == open_json(layout("smollm2"))->digest());
    // And individual_digits no.
    JsonValue runs = layout("smollm2");
    runs["pre_tokenizer"]["pretokenizers"][0].erase("individual_digits");
    CHECK(open_json(runs)->rules()[3] ==
          std::pair<std::string, std::string>("pre_tokenizer",
                                              std::string("\\p{N}+\n") + kGpt2Pattern));
    // A literal pattern, and a tokenizer.json as GPT-2's: no type, no sequence.
    CHECK_NOTHROW(open_json(edited(parts + "0/pattern", JsonValue{{"String", "(|\u00E9"}})));
    JsonValue gpt2 = layout("smollm2");
    gpt2["model"].erase("type");
    gpt2["pre_tokenizer"] = gpt2["pre_tokenizer"]["pretokenizers"][1];
    CHECK(open_json(gpt2)->encode("in", false, false).size() == 1);
}

TEST_CASE("Tokenizer: tokenizer files: what is wrong in a tokenizer.json is named") {
    const auto corrupt = Status::corrupt;
    refused(corrupt, {"\"model\""}, edited("/model", nullptr));
    refused(corrupt, {"\"vocab\""}, edited("/model/vocab", JsonValue::array()));
    refused(corrupt, {"\"merges\""}, edited("/model/merges", "a b"));
    refused(corrupt, {"two of the id 65"}, edited("/model/vocab/a", 65));
    refused(corrupt, {"empty token"}, edited("/model/vocab/", 605));
    refused(corrupt, {"not two tokens"}, edited("/model/merges/7", "abc"));
    refused(corrupt, {"not two tokens"}, edited("/model/merges/7", "a b c"));
    refused(corrupt, {"not two tokens"}, edited("/model/merges/7", JsonValue{"a", "b", "c"}));
    refused(corrupt, {"not two tokens"}, edited("/model/merges/7", 7));
    refused(corrupt, {"merge 7", "'zq'", "the first"},
            edited("/model/merges/7", JsonValue{"zq", "b"}));
    refused(corrupt, {"merge 7", "the first"}, edited("/model/merges/7", JsonValue{"", "in"}));
    refused(corrupt, {"merge 7", "the second"}, edited("/model/merges/7", JsonValue{"in", ""}));
    refused(corrupt, {"merge 7", "the second"}, edited("/model/merges/7", JsonValue{"b", "zq"}));
    refused(corrupt, {"merge 7", "what they make"}, edited("/model/merges/7", JsonValue{"q", "z"}));
    refused(corrupt, {"added_tokens[0]", "content"}, edited("/added_tokens/0/content", ""));
    refused(corrupt, {"added_tokens[0]"}, edited("/added_tokens/0", 5));
    refused(corrupt, {"two of the id 601"}, edited("/added_tokens/0/id", 601));
    refused(corrupt, {"pretokenizers[0]"}, edited("/pre_tokenizer/pretokenizers/0", 5));
    refused(corrupt, {"\"type\""}, edited("/normalizer", JsonValue::object()));
    refused(corrupt, {"boolean"}, edited("/model/ignore_merges", "yes"));
    // A special token is not made by merges, and a merge that makes one is none.
    refused(corrupt, {"what they make"}, edited("/added_tokens/0", JsonValue::parse(R"({"id": 257,
            "content": "in", "special": true})")));
    expect_error(Status::unsupported, {"model.vocab", "the id 599", "599 tokens"},
                 [] { open_json(edited("/added_tokens", JsonValue::array()), 599); });
}

TEST_CASE("Tokenizer: tokenizer files: what is wrong in a GGUF vocabulary is named") {
    const auto corrupt = Status::corrupt;
    CHECK(open_byte_bpe(small_vocabulary())->encode("cab", false, false) == Tokens{2, 3});
    CHECK(open_byte_bpe(small_vocabulary("types"))->encode("abc", false, false) == Tokens{3, 2});
    expect_error(Status::unsupported, {"byte 0x64", "at byte 1"},
                 [] { open_byte_bpe(small_vocabulary())->encode("ad", false, false); });
    refused(Status::unsupported, {"tokenizer.ggml.model", "''"}, small_vocabulary("model"));
    refused(Status::unsupported, {"tokenizer.ggml.model", "'bert'"},
            small_vocabulary("model").text("tokenizer.ggml.model", "bert"));
    refused(Status::unsupported, {"tokenizer.ggml.pre", "'viking'"},
            small_vocabulary().text("tokenizer.ggml.pre", "viking"));
    refused(Status::unsupported, {"gpt2, llama, gemma and gemma4"}, small_vocabulary("model"));
    refused(corrupt, {"tokens", "no tokens"}, small_vocabulary("tokens"));
    refused(corrupt, {"tokens", "no tokens"},
            small_vocabulary("tokens").texts("tokenizer.ggml.tokens", {}));
    refused(corrupt, {"tokens", "array of STRING"},
            small_vocabulary("tokens").integer("tokenizer.ggml.tokens", 4));
    refused(corrupt, {"token 1 is not UTF-8"},
            small_vocabulary("tokens").texts("tokenizer.ggml.tokens", {"a", "\xFF", "c", "ab"}));
    const auto types = [](const std::vector<int32_t> &values) {
        return small_vocabulary("types").array("tokenizer.ggml.token_type", Type::i32, values);
    };
    refused(corrupt, {"3 types for 4 tokens"}, types({1, 1, 1}));
    refused(corrupt, {"token 2 is of type 0"}, types({1, 1, 0, 1}));
    refused(corrupt, {"token 2 is of type 7"}, types({1, 1, 7, 1}));
    refused(corrupt, {"merge 0", "what they make"}, types({1, 1, 1, 3}));
    const auto merges = [](const std::string &text) {
        return small_vocabulary("merges").texts("tokenizer.ggml.merges", {text});
    };
    for (const char *text : {"ab", " ab", "ab ", "a  b", "a b c", "", " "}) {
        refused(corrupt, {"merge 0", "two spellings"}, merges(text));
    }
    refused(corrupt, {"merges", "none"}, small_vocabulary("merges"));
    refused(corrupt, {"merge 0", "the second"}, merges("a d"));
    refused(corrupt, {"bos_token_id", "token 4 of 4"},
            small_vocabulary().integer("tokenizer.ggml.bos_token_id", 4));
    refused(corrupt, {"eos_token_id", "an integer"},
            small_vocabulary().text("tokenizer.ggml.eos_token_id", "x"));
    expect_error(Status::unsupported, {"4 pieces", "3"},
                 [] { open_byte_bpe(small_vocabulary(), 3); });
    // With type "byte" or another, the spelling gives the bytes.
    CHECK(open_byte_bpe(types({1, 1, 6, 1}))->piece_bytes(2) == "c");
    // User-defined text is a token everywhere, unless it is in bars.
    const auto defined =
        open_byte_bpe(GgufWriter(small_vocabulary("tokens"))
                          .texts("tokenizer.ggml.tokens", {"a", "b", "<|c|>", "ab"}));
    CHECK(defined->encode("ab", false, false) == Tokens{3});
    const auto marked = [&](const std::string &text) {
        GgufWriter writer = small_vocabulary("tokens");
        writer = GgufWriter().text("tokenizer.ggml.model", "gpt2");
        writer.texts("tokenizer.ggml.tokens", {"<", "|", "c", ">", text});
        writer.texts("tokenizer.ggml.merges", {});
        writer.array<int32_t>("tokenizer.ggml.token_type", Type::i32, {1, 1, 1, 1, 4});
        return open_byte_bpe(writer);
    };
    CHECK(marked("<|c|>")->encode("<|c|>", false, false) == Tokens{0, 1, 2, 1, 3});
    CHECK(marked("<|c|>")->encode("<|c|>", false, true) == Tokens{4});
    CHECK(marked("<c>")->encode("<c>", false, false) == Tokens{4});
    CHECK_FALSE(marked("<c>")->is_special(4));
}

} // namespace stasis
