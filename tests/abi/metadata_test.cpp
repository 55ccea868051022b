// What models' files say of them, by key.
#include <cmath>
#include <limits>

#include "tests/abi/fixture.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/quantized_model.h"

using namespace abi_test;

namespace {

struct Said {
    uint32_t kind;
    std::string value;
    bool operator==(const Said &other) const = default;
};

Said said_by(const stasis_model *model, const std::string &key) {
    auto metadata = sized<stasis_metadata>();
    stasis_error error;
    const stasis_status status = stasis_model_get_metadata(model, key.c_str(), &metadata, &error);
    if (status != STASIS_OK) {
        CHECK(status == STASIS_NOT_FOUND);
        return {0, ""};
    }
    CHECK(key == metadata.key);
    return {metadata.kind, {metadata.value, metadata.length}};
}

Said text(const std::string &value) {
    return {STASIS_METADATA_TEXT, value};
}
Said json(const std::string &value) {
    return {STASIS_METADATA_JSON, value};
}
Said left_out(const std::string &value) {
    return {STASIS_METADATA_LEFT_OUT, value};
}

// Returns all keys, after checking that each index and its key say the same.
std::vector<std::string> keys_of(const stasis_model *model) {
    std::vector<std::string> keys;
    auto metadata = sized<stasis_metadata>();
    stasis_error error;
    while (stasis_model_get_metadata_at(model, keys.size(), &metadata, &error) == STASIS_OK) {
        const std::string value(metadata.value, metadata.length);
        CHECK(said_by(model, metadata.key) == Said{metadata.kind, value});
        CHECK((keys.empty() || keys.back() < metadata.key));
        keys.emplace_back(metadata.key);
    }
    CHECK(error.status == STASIS_NOT_FOUND);
    CHECK(contains(error, "there are " + std::to_string(keys.size())));
    CHECK(stasis_model_get_metadata_at(model, SIZE_MAX, &metadata, &error) == STASIS_NOT_FOUND);
    return keys;
}

bool has(const std::vector<std::string> &keys, const std::string &key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Adds pairs to a file whose tensors are aligned to 32 bytes.
std::string with_pairs(const std::string &file, stasis::GgufWriter more) {
    const size_t bytes = more.pairs.size() + 8 + 3 + 4 + 8;
    more.text("pad", std::string((32 - bytes % 32) % 32, 'x'));
    uint64_t count = 0;
    std::memcpy(&count, file.data() + 16, sizeof count);
    return file.substr(0, 16) + stasis::gguf_number(count + more.pair_count) + more.pairs +
           file.substr(24);
}

} // namespace

TEST_CASE("stasis_model_get_metadata: values of a GGUF file, of every type") {
    using stasis::GgufValueType;
    stasis::GgufWriter more;
    more.text("general.name", "A small one").text("a.bad", "x\xFFy\xC3").text("a.empty", "");
    more.number("a.f32", 1e-5F).number("a.nan", std::numeric_limits<float>::quiet_NaN());
    more.pair("a.f64", GgufValueType::f64, stasis::gguf_number(0.1));
    more.pair("a.i8", GgufValueType::i8, stasis::gguf_number(int8_t{-5}));
    more.pair("a.u64", GgufValueType::u64, stasis::gguf_number(UINT64_MAX));
    more.pair("a.i64", GgufValueType::i64, stasis::gguf_number(INT64_MIN));
    more.boolean("a.yes", true).boolean("a.no", false);
    more.texts("a.texts", {"one", "tw\"o", "\xFF"}).texts("a.none", {});
    more.array<float>("a.numbers", GgufValueType::f32, {0.5F, -3.0F, 0.1F});
    const std::string inner = stasis::gguf_array(
        GgufValueType::i16, 2, stasis::gguf_number(int16_t{1}) + stasis::gguf_number(int16_t{-2}));
    more.pair("a.nested", GgufValueType::array,
              stasis::gguf_array(GgufValueType::array, 2, inner + inner));
    more.array<uint32_t>("a.most", GgufValueType::u32, std::vector<uint32_t>(256, 7));
    more.texts("a.many", std::vector<std::string>(257, "x"));
    more.text("a.long", std::string((1U << 20) + 1, 'x'));
    more.text("a.limit", std::string(1U << 20, 'x'));

    const Folder folder;
    const std::string path = folder.file("model.gguf");
    write_file(path, with_pairs(read_file(stasis::test::quantized_model("quantized/llama")), more));
    const Model opened = open_path(path);
    std::filesystem::remove(path); // everything was read
    const stasis_model *model = opened.get();
    CHECK(said_by(model, "general.architecture") == text("llama"));
    CHECK(said_by(model, "general.name") == text("A small one"));
    CHECK(said_by(model, "llama.block_count") == json("2"));
    CHECK(said_by(model, "a.bad") == text("x\xEF\xBF\xBDy\xEF\xBF\xBD"));
    CHECK(said_by(model, "a.empty") == text(""));
    CHECK(said_by(model, "a.f32") == json("1e-05"));
    CHECK(said_by(model, "a.nan") == json("null"));
    CHECK(said_by(model, "a.f64") == json("0.1"));
    CHECK(said_by(model, "a.i8") == json("-5"));
    CHECK(said_by(model, "a.u64") == json("18446744073709551615"));
    CHECK(said_by(model, "a.i64") == json("-9223372036854775808"));
    CHECK(said_by(model, "a.yes") == json("true"));
    CHECK(said_by(model, "a.no") == json("false"));
    CHECK(said_by(model, "a.texts") == json("[\"one\",\"tw\\\"o\",\"\xEF\xBF\xBD\"]"));
    CHECK(said_by(model, "a.none") == json("[]"));
    CHECK(said_by(model, "a.numbers") == json("[0.5,-3.0,0.1]"));
    CHECK(said_by(model, "a.nested") == json("[[1,-2],[1,-2]]"));
    CHECK(said_by(model, "a.most").kind == STASIS_METADATA_JSON);
    CHECK(said_by(model, "a.most").value.size() == 2 * 256 + 1);
    CHECK(said_by(model, "a.many") == left_out("an array of 257 STRING"));
    CHECK(said_by(model, "a.long") == left_out("a value of 1048577 bytes"));
    CHECK(said_by(model, "a.limit") == text(std::string(1U << 20, 'x')));
    CHECK(said_by(model, "a").kind == 0);
    CHECK(keys_of(model).size() > 25);
}

TEST_CASE("stasis_model_get_metadata: all of it together is limited") {
    stasis::GgufWriter more;
    for (size_t i = 0; i < 6; ++i) {
        more.text("big." + std::to_string(i), std::string(1000000, 'x'));
    }
    const std::string longest(1024, 'k'), longer = longest + "k";
    more.text(longest, "listed");
    more.text(longer, "not listed");
    const Folder folder;
    const std::string path = folder.file("model.gguf");
    write_file(path, with_pairs(read_file(stasis::test::quantized_model("quantized/llama")), more));
    const Model model = open_path(path);
    CHECK(said_by(model.get(), "big.0").kind == STASIS_METADATA_TEXT);
    CHECK(said_by(model.get(), "big.3").kind == STASIS_METADATA_TEXT);
    CHECK(said_by(model.get(), "big.4") == left_out("beyond the limit: a value of 1000000 bytes"));
    CHECK(said_by(model.get(), "llama.block_count") == json("2")); // it still fits
    CHECK(said_by(model.get(), longest) == text("listed"));
    CHECK(said_by(model.get(), longer).kind == 0);
}

TEST_CASE("stasis_model_get_metadata: fields of a directory's files") {
    const stasis_model *model = shared_model("recall-gemma3");
    CHECK(said_by(model, "config.num_hidden_layers") == json("12"));
    CHECK(said_by(model, "config.model_type") == text("gemma3_text"));
    const std::vector<std::string> keys = keys_of(model);
    CHECK(has(keys, "config.layer_types"));
    CHECK(said_by(model, "config.layer_types").value.starts_with("[\"sliding_attention\","));
    CHECK(has(keys, "config.rope_parameters.sliding_attention.rope_theta"));
    CHECK(has(keys, "generation_config.eos_token_id"));
    CHECK(has(keys, "tokenizer_config.chat_template"));
    CHECK(said_by(model, "tokenizer_config.chat_template").kind == STASIS_METADATA_TEXT);
    CHECK_FALSE(has(keys, "config"));
    CHECK_FALSE(has(keys, "chat_template"));
    // Nothing but config.json.
    for (const std::string &key : keys_of(llama())) {
        CHECK(key.starts_with("config."));
    }
}

TEST_CASE("stasis_model_get_metadata: a directory's other files, large, false or odd") {
    const Folder folder;
    const std::string path = folder.file("model");
    std::filesystem::copy(test_data("zoo/llama-gqa-untied"), path);
    std::string config = read_file(path + "/config.json");
    std::string members = "{", elements = "[0";
    for (size_t i = 0; i < 65; ++i) {
        members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
    }
    for (size_t i = 0; i < 256; ++i) {
        elements += ",0";
    }
    config.replace(config.find('{'), 1,
                   "{\"id2label\":" + members + "},\"list\":" + elements +
                       "],\"note\":{\"a.b\":1,\"a\":{\"b\":2,\"none\":null,\"no\":{}}},");
    write_file(path + "/config.json", config);
    write_file(path + "/tokenizer_config.json", "{\"chat_template\": ");
    write_file(path + "/chat_template.jinja", "{{ messages[0].content }}\xFF");
    const Model opened = open_path(path);
    const stasis_model *model = opened.get();
    CHECK(said_by(model, "config.id2label") == left_out("an object of 65 members"));
    CHECK(said_by(model, "config.list") == left_out("an array of 257 elements"));
    CHECK(said_by(model, "config.note.a.none") == json("null"));
    CHECK(said_by(model, "config.note.a.no") == json("{}"));
    CHECK(said_by(model, "config.note.a.b") == json("2")); // "a" comes before "a.b"
    CHECK(said_by(model, "tokenizer_config").kind == STASIS_METADATA_LEFT_OUT);
    CHECK(said_by(model, "tokenizer_config").value.find("tokenizer_config.json") !=
          std::string::npos);
    CHECK(said_by(model, "chat_template") == text("{{ messages[0].content }}\xEF\xBF\xBD"));
    keys_of(model);
}

TEST_CASE("stasis_model_get_metadata: names that many members share take no memory for each") {
    const Folder folder;
    const std::string path = folder.file("model");
    std::filesystem::copy(test_data("zoo/llama-gqa-untied"), path);
    const std::string config = read_file(path + "/config.json");
    std::string members = "0";
    for (int level = 0; level < 3; ++level) { // 64 x 64 x 64 of them
        std::string object;
        for (int i = 0; i < 64; ++i) {
            object += (i == 0 ? "{\"" : ",\"") + std::to_string(i) + "\":" + members;
        }
        members = object + "}";
    }
    for (const size_t name : {size_t{900}, size_t{1000000}}) {
        std::string odd = config;
        odd.replace(odd.find('{'), 1, "{\"" + std::string(name, 'n') + "\":" + members + ",");
        write_file(path + "/config.json", odd);
        const Model opened = open_path(path);
        size_t bytes = 0;
        for (const std::string &key : keys_of(opened.get())) {
            CHECK(key.size() <= 1024);
            bytes += key.size();
        }
        CHECK(bytes <= size_t{4} << 20);
        CHECK((name > 1024) == (said_by(opened.get(), "config.vocab_size").kind != 0));
        CHECK((name > 1024) == (bytes < 10000));
    }
}

TEST_CASE("stasis_model_get_metadata: what is refused, and structs of other sizes") {
    auto metadata = sized<stasis_metadata>();
    stasis_error error;
    CHECK(stasis_model_get_metadata(llama(), "config.none", &metadata, &error) == STASIS_NOT_FOUND);
    CHECK(contains(error, "config.none"));
    CHECK(stasis_model_get_metadata(llama(), "", &metadata, &error) == STASIS_NOT_FOUND);
    metadata.struct_size = 3;
    CHECK(stasis_model_get_metadata(llama(), "config.model_type", &metadata, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_get_metadata_at(llama(), 0, &metadata, &error) == STASIS_INVALID_ARGUMENT);
    metadata = sized<stasis_metadata>();
    metadata.struct_size = 8;
    CHECK(stasis_model_get_metadata(llama(), "config.model_type", &metadata, &error) == STASIS_OK);
    CHECK(metadata.kind == STASIS_METADATA_TEXT);
    CHECK(metadata.key == nullptr);
}
