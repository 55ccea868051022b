// What model files say about embeddings, and the tokens and prompts around texts.
#include <cstring>

#include <nlohmann/json.hpp>

#include "runtime/quantize/quantize.h"
#include "tests/runtime/embedded.h"
#include "tests/runtime/gguf_writer.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kEndAfter[] = R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}],
     "pair": [], "special_tokens": {"<|end_of_text|>": {"id": "<|end_of_text|>", "ids": [601],
                                                         "tokens": ["<|end_of_text|>"]}}}]})";

// The frame of a byte-level BPE tokenizer with that post-processor.
TextFrame frame_of(const std::string &processor) {
    auto json = nlohmann::json::parse(read_bytes(test_data("byte-bpe/llama3/tokenizer.json")));
    json["post_processor"] = nlohmann::json::parse(processor);
    const TemporaryDirectory place;
    write_bytes(place.file("tokenizer.json"), json.dump());
    const std::vector<uint32_t> bos{600}, end{601};
    return Tokenizer::open(place.path(), 610, bos, end)->frame();
}

void refused(const EmbeddingModel &model, const char *part) {
    expect_error(Status::unsupported, {part}, [&] { embedded_text(*model.open(), "a"); });
}

} // namespace

TEST_CASE("read_embedding_rules: sentence-transformers' files beside a model") {
    const EmbeddingRules rules = open("zoo/qwen3-embedding")->embedding;
    CHECK(rules.pooling == Pooling::last);
    CHECK(rules.normalised);
    CHECK(rules.prompts.empty());
    CHECK(rules.refusal.empty());
    CHECK(open("zoo/qwen3-qknorm")->embedding.pooling == Pooling::unknown);

    const EmbeddingModel files("recall-llama");
    files.replace("1_Pooling/config.json", R"("pooling_mode_lasttoken": true)",
                  R"("pooling_mode": "mean")");
    files.replace("modules.json", R"(,
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})",
                  "");
    files.replace("config_sentence_transformers.json", "null", R"("query")");
    files.write("sentence_bert_config.json", R"({"max_seq_length": 100, "do_lower_case": false})");
    const auto model = files.open();
    CHECK(model->embedding.pooling == Pooling::mean);
    CHECK(!model->embedding.normalised);
    CHECK(model->embedding.prompts.size() == 2);
    CHECK(model->embedding.default_prompt == "query");
    CHECK(embed_tokens_max(*model) == 100);
    expect_error(Status::invalid_argument, {"101 tokens exceed the model's 100"},
                 [&] { embedded(*model, TokenLists{std::vector<uint32_t>(101, 5)}); });
    // The files' choices are those of options.
    EmbedOptions options = pooled(Pooling::mean);
    options.prompt = "query";
    CHECK(same_bits(embedded_text(*model, "a text"), embedded_text(*model, "a text", options)));
    options.prompt = "document";
    CHECK(!same_bits(embedded_text(*model, "a text"), embedded_text(*model, "a text", options)));
}

TEST_CASE("read_embedding_rules: what is not supported is named, and the model still opens") {
    const EmbeddingModel files("recall-llama");
    files.write("modules.json", "{}");
    expect_error(Status::unsupported, {"modules.json: expected a list"},
                 [&] { embedded_text(*files.open(), "a"); });
    files.write("modules.json", kModules);
    files.replace("modules.json", "models.Normalize", "models.Dense");
    refused(files, "2_Normalize/config.json: missing");
    files.replace("modules.json", "models.Dense", "models.LayerNorm");
    refused(files, "models.LayerNorm");
    CHECK(!embedded(*files.open(), TokenLists{{5}}, pooled(Pooling::last)).empty());
    files.write("modules.json", kModules);
    files.replace("modules.json", "1_Pooling", "../1_Pooling");
    refused(files, "a module in \"../1_Pooling\"");
    files.write("modules.json", kModules);
    files.replace("1_Pooling/config.json", "lasttoken", "cls_token");
    refused(files, "pooling_mode_cls_token");
    files.replace("1_Pooling/config.json", "cls_token\": true", "lasttoken\": false");
    refused(files, "no pooling");
    files.replace("1_Pooling/config.json", R"(tokens": false)", R"(tokens": true)");
    files.replace("1_Pooling/config.json", R"(prompt": true)", R"(prompt": false)");
    refused(files, "include_prompt");
    files.replace("1_Pooling/config.json", R"(prompt": false)", R"(prompt": true)");
    CHECK(files.open()->embedding.refusal.empty());
    files.write("sentence_bert_config.json", R"({"do_lower_case": true})");
    refused(files, "do_lower_case");
}

TEST_CASE("read_embedding_rules: dense layers that make no sense are named, and the model opens") {
    const auto with = [](const char *file, const std::string &from, const std::string &to,
                         Status status, const char *part) {
        const EmbeddingModel files("zoo/embedding-gemma", false);
        files.replace(file, from, to);
        const auto model = files.open();
        CHECK(!embedded(*model, TokenLists{{5}}, pooled(Pooling::mean)).empty());
        expect_error(status, {part}, [&] { embedded(*model, TokenLists{{5}}); });
    };
    constexpr char kConfig[] = "2_Dense/config.json", kWeights[] = "3_Dense/model.safetensors";
    constexpr char kOrder[] = "modules.json";
    with(kConfig, "Identity", "Tanh", Status::unsupported,
         "2_Dense/config.json: activation_function");
    with(kConfig, "\"in_features\": 64", "\"in_features\": 65", Status::unsupported,
         "in_features is 65");
    with(kConfig, "160", "161", Status::unsupported, "another shape");
    with(kConfig, "160", "0", Status::unsupported, "out_features");
    with(kConfig, "160", "99999999999", Status::unsupported, "out_features");
    with(kConfig, "\"bias\": false", "\"bias\": true", Status::unsupported, "linear.bias");
    with(kWeights, "linear.weight", "linear.wrongs", Status::unsupported, "linear.weight");
    with(kWeights, "F32", "F99", Status::unsupported, "3_Dense/model.safetensors");
    with(kOrder, "\"2_Dense\"", "\"../2_Dense\"", Status::unsupported, "a module in");
    with(kOrder, "models.Pooling", "models.Dense", Status::unsupported, "module 1");
    with(kOrder, "models.Dense", "models.Normalize", Status::unsupported, "module 3");

    const EmbeddingModel files("zoo/embedding-gemma", false);
    std::filesystem::remove(files.path.file(kWeights));
    CHECK(files.open()->embedding.refusal.find("safetensors") != std::string::npos);
    std::filesystem::copy(test_data("zoo/embedding-gemma/") + kWeights, files.path.file(kWeights));
    REQUIRE(files.open()->embedding.refusal.empty());

    // One small layer, named again and again.
    std::string list =
        R"([{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "Pooling"})";
    for (size_t i = 0; i < 9; ++i) {
        list += R"(, {"path": "9_Dense", "type": "Dense"})";
    }
    const std::string head =
        R"({"linear.weight":{"dtype":"F32","shape":[64,64],"data_offsets":[0,16384]}})";
    std::filesystem::create_directories(files.path.file("9_Dense"));
    files.write("9_Dense/model.safetensors",
                gguf_number<uint64_t>(head.size()) + head + std::string(16384, '\0'));
    files.write("9_Dense/config.json", R"({"in_features": 64, "out_features": 64, "bias": false})");
    files.write(kOrder, list + "]");
    CHECK(files.open()->embedding.refusal.find("more than 8 dense layers") != std::string::npos);
    files.write(kOrder, read_bytes(test_data("zoo/embedding-gemma/modules.json")));

    std::string bytes = read_bytes(test_data("zoo/embedding-gemma/") + kWeights);
    const uint32_t infinity = 0x7F800000U;
    std::memcpy(bytes.data() + bytes.size() - sizeof infinity, &infinity, sizeof infinity);
    files.write(kWeights, bytes);
    CHECK(files.open()->embedding.refusal.find("not finite") != std::string::npos);
    for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, bytes.size() - 1}) {
        files.write(kWeights, bytes.substr(0, size));
        CHECK(!files.open()->embedding.refusal.empty());
    }
}

TEST_CASE("embed: texts get the tokens around them that the model's tokenizer puts there") {
    const EmbeddingModel files("recall-llama");
    const auto model = files.open();
    const Tokenizer &tokenizer = *model->tokenizer;
    const std::string text = "what is it? </s>"; // the marker is text
    std::vector<uint32_t> tokens = tokenizer.encode(text, true, false);
    CHECK(same_bits(embedded_text(*model, text), embedded(*model, TokenLists{tokens}).front()));
    EmbedOptions query;
    query.prompt = "query";
    CHECK(same_bits(
        embedded_text(*model, text, query),
        embedded(*model, TokenLists{tokenizer.encode("Find: " + text, true, false)}).front()));

    files.replace("tokenizer_config.json", R"("add_eos_token": false)", R"("add_eos_token": true)");
    const auto ending = files.open();
    tokens.push_back(tokenizer.encode("</s>", false, true).back());
    CHECK(same_bits(embedded_text(*ending, text), embedded(*model, TokenLists{tokens}).front()));
    CHECK(ending->identity.tokenizer == model->identity.tokenizer);
    files.replace("tokenizer_config.json", R"("add_bos_token": true)", R"("add_bos_token": false)");
    CHECK(files.open()->tokenizer->frame().before.empty());
}

TEST_CASE("read_embedding_rules: a GGUF file's type of pooling") {
    const auto rules = [](uint32_t type) {
        GgufWriter writer;
        writer.text("general.architecture", "llama").integer("llama.pooling_type", type);
        const std::string bytes = writer.bytes();
        return read_embedding_rules(
            parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "f.gguf"),
            64);
    };
    CHECK(rules(0).pooling == Pooling::unknown);
    CHECK(rules(0).refusal.empty());
    CHECK(rules(1).pooling == Pooling::mean);
    CHECK(rules(3).pooling == Pooling::last);
    CHECK(rules(2).refusal.find("llama.pooling_type 2") != std::string::npos);
}

TEST_CASE("read_embedding_rules: dense layers of a GGUF file that make no sense are named") {
    const auto refusal = [](GgufType type, const std::vector<uint64_t> &shape, size_t size_bytes) {
        GgufWriter writer;
        writer.text("general.architecture", "gemma-embedding");
        writer.integer("gemma-embedding.pooling_type", 1);
        writer.tensor("dense_2.weight", type, shape, std::string(size_bytes, '\0'));
        const std::string bytes = writer.bytes();
        return read_embedding_rules(parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()),
                                               bytes.size(), "f.gguf"),
                                    64)
            .refusal;
    };
    const char *const other = "does not take the 64 numbers";
    CHECK(refusal(GgufType::f32, {63, 2}, 504).find(other) != std::string::npos);
    CHECK(refusal(GgufType::f32, {64}, 256).find(other) != std::string::npos);
    CHECK(refusal(GgufType::f32, {64, 2, 2}, 1024).find(other) != std::string::npos);
    CHECK(refusal(GgufType::q8_0, {64, 2}, 136).find("Q8_0") != std::string::npos);
}

TEST_CASE("read_text_frame: the post-processor of tokenizer.json") {
    CHECK(frame_of("null").after.empty());
    CHECK(frame_of(kEndAfter).before.empty());
    CHECK(frame_of(kEndAfter).after == std::vector<uint32_t>{601});
    CHECK(frame_of(kEndAfter).refusal.empty());
    const auto changed = [](const std::string &from, const std::string &to) {
        std::string text = kEndAfter;
        return frame_of(text.replace(text.find(from), from.size(), to)).refusal;
    };
    CHECK(changed("601", "610").find("token id 610") != std::string::npos);
    CHECK(changed("ByteLevel", "RobertaProcessing").find("RobertaProcessing") != std::string::npos);
    CHECK(changed("\"id\": \"<|end_of_text|>\", \"type_id\"", "\"id\": \"<x>\", \"type_id\"")
              .find("<x>") != std::string::npos);
    CHECK(changed("Sequence\": {\"id\": \"A\"", "Other\": {\"id\": \"A\"").find("Other") !=
          std::string::npos);
}

TEST_CASE("quantize_model: a GGUF file embeds as the directory that it was made of") {
    const EmbeddingModel files("recall-llama");
    files.replace("tokenizer_config.json", R"("add_eos_token": false)", R"("add_eos_token": true)");
    const std::string file = files.path.file("a.gguf");
    QuantizeOptions options;
    options.type = "BF16";
    quantize_model(files.path.path(), file, options);
    const auto gguf = open_model(file, {});
    CHECK(gguf->embedding.pooling == Pooling::last);
    const std::string text = "where is the key?";
    CHECK(same_bits(embedded_text(*gguf, text), embedded_text(*files.open(), text)));

    files.replace("modules.json", R"(,
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"})",
                  "");
    options.replace = true;
    expect_error(Status::unsupported, {"without Normalize"},
                 [&] { quantize_model(files.path.path(), file, options); });
    const std::string plain = files.path.file("b.gguf");
    quantize_model(test_data("zoo/qwen3-embedding"), plain, options);
    const auto model = open_model(plain, {});
    const TokenLists texts{tokens_for(*model, 70)};
    CHECK(same_vectors(embedded(*model, texts), embedded(*open("zoo/qwen3-embedding"), texts)));
}
