// Fuzzes vocabularies in the metadata of GGUF files: the input is a description of one (kind,
// rules, then each token with its type and score, then merges), written as a file whose lengths
// fit. A vocabulary that opens must encode, and decode to the same text; a refusal must give a
// reason.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "format/state/error.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/description.h"
#include "tests/fuzz/watched.h"
#include "tests/runtime/gguf_writer.h"

namespace {

using namespace stasis;
using Type = GgufValueType;

std::string described(std::string_view input) {
    static constexpr const char *kPres[] = {"default", "gpt-2",     "llama-bpe",      "smollm",
                                            "qwen2",   "starcoder", "deepseek-coder", "other"};
    Description reader{input};
    GgufWriter writer;
    const uint8_t rules = reader.byte();
    const bool bytes = (rules & 1) != 0;
    writer.text("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
    writer.text("tokenizer.ggml.pre", kPres[rules >> 1 & 7]);
    writer.boolean("tokenizer.ggml.add_space_prefix", (rules & 16) != 0);
    writer.boolean("tokenizer.ggml.remove_extra_whitespaces", (rules & 32) != 0);
    writer.integer("tokenizer.ggml.unknown_token_id", reader.byte());
    writer.integer("tokenizer.ggml.bos_token_id", reader.byte() % 4);
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
    if ((rules & 64) != 0) { // as a whole vocabulary has them
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof text, "<0x%02X>", byte);
            tokens.emplace_back(text);
            types.push_back(6);
            scores.push_back(0);
        }
    }
    for (uint8_t size = reader.byte(); size != 255 && !reader.input.empty(); size = reader.byte()) {
        types.push_back(size >> 5);
        scores.push_back(static_cast<float>(static_cast<int8_t>(reader.byte())));
        tokens.push_back(reader.bytes(size & 31));
    }
    while (!reader.input.empty()) {
        merges.push_back(reader.bytes(reader.byte() & 15));
    }
    writer.texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", merges);
    writer.array("tokenizer.ggml.token_type", Type::i32, types);
    writer.array("tokenizer.ggml.scores", Type::f32, scores);
    return writer.bytes();
}

void check(const Tokenizer &tokenizer, const std::string &text) {
    const auto tokens = tokenizer.encode(text, false, true);
    std::string pieces;
    for (const uint32_t token : tokens) {
        fuzz::expect(token < tokenizer.size(), "a token outside the vocabulary");
        pieces += tokenizer.piece_bytes(token);
    }
    const std::string back = tokenizer.decode(tokens, true, true);
    fuzz::expect(tokenizer.type() != "byte-level-bpe" || (back == text && pieces == text),
                 "another text came back");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string file = described({reinterpret_cast<const char *>(data), size});
    try {
        std::unique_ptr<Tokenizer> tokenizer;
        {
            const fuzz::Meter meter(256 * file.size() + (1 << 20)); // as for tokenizer.model
            const GgufFile gguf =
                parse_gguf(reinterpret_cast<const uint8_t *>(file.data()), file.size(), "fuzz");
            tokenizer = Tokenizer::open_gguf(gguf, 4096, {}, {});
        }
        check(*tokenizer, "a");
        check(*tokenizer, "abab <s>  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n");
        check(*tokenizer, "Hello <s>\n  w\u00f6rld 12 \U0001F634 \uFB01");
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
