// Small models for failing calls: of the zoo's weights, with vocabularies cut to their size, so
// that opening one takes few allocations.
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

uint64_t read_varint(const std::string &bytes, size_t &at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(bytes.at(at++));
        value |= uint64_t{byte & 0x7FU} << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

// A SentencePiece model of 192 of another's pieces: without those of bytes, and without the
// trainer's word that there are any (field 35 of its specification, sentencepiece_model.proto).
std::string cut_sentencepiece(const std::string &bytes) {
    static const std::string kBytes("\x98\x02\x01", 3), kNoBytes("\x98\x02\x00", 3);
    std::string cut;
    size_t pieces = 0;
    for (size_t at = 0; at < bytes.size();) {
        const size_t begin = at;
        const uint64_t field = read_varint(bytes, at) >> 3;
        const uint64_t length = read_varint(bytes, at);
        std::string whole = bytes.substr(begin, at + length - begin);
        at += length;
        if (field == 1 && (whole.find("<0x") != whole.npos || pieces++ >= 192)) {
            continue;
        }
        const size_t flag = field == 2 ? whole.find(kBytes) : whole.npos;
        cut += flag != whole.npos ? whole.replace(flag, 3, kNoBytes) : whole;
    }
    return cut;
}

// "a" to "z", and what some of them merge to.
std::string byte_bpe_tokenizer() {
    std::string vocabulary, merges;
    int id = 0;
    for (char c = 'a'; c <= 'z'; ++c) {
        vocabulary += std::string(id == 0 ? "" : ",") + "\"" + c + "\":" + std::to_string(id);
        ++id;
    }
    for (char c = 'a'; c < 'i'; ++c) {
        const char two[] = {c, static_cast<char>(c + 1), 0};
        vocabulary += std::string(",\"") + two + "\":" + std::to_string(id++);
        merges += std::string(c == 'a' ? "" : ",") + "\"" + two[0] + " " + two[1] + "\"";
    }
    return R"({"added_tokens":[{"id":40,"content":"<|x|>","special":true}],)"
           R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel",)"
           R"("add_prefix_space":false},"model":{"type":"BPE","vocab":{)" +
           vocabulary + "},\"merges\":[" + merges + "]}}";
}

// A safetensors file of an MTP head for the hybrid: bf16 numbers between -1/4 and 1/4.
std::string mtp_head(std::vector<std::string> &names) {
    struct Tensor {
        const char *name;
        size_t rows, columns; // 0 columns: a vector
    };
    static constexpr Tensor kTensors[] = {{"fc", 64, 128},
                                          {"norm", 64, 0},
                                          {"pre_fc_norm_embedding", 64, 0},
                                          {"pre_fc_norm_hidden", 64, 0},
                                          {"layers.0.input_layernorm", 64, 0},
                                          {"layers.0.post_attention_layernorm", 64, 0},
                                          {"layers.0.self_attn.q_proj", 256, 64},
                                          {"layers.0.self_attn.k_proj", 64, 64},
                                          {"layers.0.self_attn.v_proj", 64, 64},
                                          {"layers.0.self_attn.o_proj", 64, 128},
                                          {"layers.0.self_attn.q_norm", 32, 0},
                                          {"layers.0.self_attn.k_norm", 32, 0},
                                          {"layers.0.mlp.gate_proj", 128, 64},
                                          {"layers.0.mlp.up_proj", 128, 64},
                                          {"layers.0.mlp.down_proj", 64, 128}};
    std::string header, data;
    for (const Tensor &tensor : kTensors) {
        names.push_back(std::string("mtp.") + tensor.name + ".weight");
        const size_t begin = data.size();
        for (size_t i = 0; i < tensor.rows * std::max<size_t>(tensor.columns, 1); ++i) {
            data += static_cast<char>(i * 37);
            data += static_cast<char>(i % 3 == 0 ? 0x3E : 0xBD);
        }
        header += (header.empty() ? "{\"" : ",\"") + names.back() +
                  R"(":{"dtype":"BF16","shape":[)" + std::to_string(tensor.rows) +
                  (tensor.columns == 0 ? "" : "," + std::to_string(tensor.columns)) +
                  R"(],"data_offsets":[)" + std::to_string(begin) + "," +
                  std::to_string(data.size()) + "]}";
    }
    header += "}";
    std::string size(8, '\0');
    for (size_t i = 0; i < 8; ++i) {
        size[i] = static_cast<char>(header.size() >> (8 * i));
    }
    return size + header + data;
}

// The hybrid's folder with the head as a second shard.
void write_with_head(const std::string &folder) {
    std::vector<std::string> head;
    write_file(folder + "/head.safetensors", mtp_head(head));
    // A model.safetensors would be read alone.
    std::filesystem::rename(folder + "/model.safetensors", folder + "/body.safetensors");
    const std::string whole = read_file(folder + "/body.safetensors"); // its header names tensors
    std::string map;
    for (const std::string &name : head) {
        map += "\"" + name + "\":\"head.safetensors\",";
    }
    const std::string before = "\":{\"dtype\"";
    for (size_t at = whole.find(before); at != whole.npos; at = whole.find(before, at + 1)) {
        const size_t begin = whole.rfind('"', at - 1) + 1;
        map += "\"" + whole.substr(begin, at - begin) + "\":\"body.safetensors\",";
    }
    map.pop_back();
    write_file(folder + "/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
}

struct Made {
    Folder folder;
    std::string chat = folder.file("chat"), byte_bpe = folder.file("byte-bpe");
    std::string gguf = folder.file("chat.gguf"), mtp = folder.file("mtp");

    Made() {
        copy("zoo/gemma3-text", chat, {"config.json", "model.safetensors"});
        copy("recall-gemma3", chat, {"tokenizer_config.json", "generation_config.json"});
        write_file(chat + "/tokenizer.model",
                   cut_sentencepiece(read_file(test_data("recall-gemma3/tokenizer.model"))));
        copy("zoo/llama-gqa-untied", byte_bpe, {"config.json", "model.safetensors"});
        write_file(byte_bpe + "/tokenizer.json", byte_bpe_tokenizer());
        copy("zoo/qwen3_5-dense", mtp, {"config.json", "model.safetensors"});
        write_with_head(mtp);
        stasis_error error;
        const stasis_status status =
            stasis_model_quantize(chat.c_str(), gguf.c_str(), nullptr, nullptr, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    }
    static void copy(const std::string &from, const std::string &to,
                     const std::vector<std::string> &names) {
        std::filesystem::create_directories(to);
        for (const std::string &name : names) {
            std::filesystem::copy_file(test_data(from + "/" + name), to + "/" + name);
        }
    }
};

} // namespace

std::string path_of(const std::string &model) {
    static const Made made;
    return model == "chat"       ? made.chat
           : model == "byte-bpe" ? made.byte_bpe
           : model == "gguf"     ? made.gguf
           : model == kMtp       ? made.mtp
                                 : test_data("zoo/" + model);
}

} // namespace failures
