// Fuzzes the special tokens in a model's directory: the input is a tokenizer_config.json, next to a
// vocabulary of a few pieces. A tokenizer that opens must encode and decode.
#include <cstdint>
#include <memory>
#include <string>

#include "format/state/error.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"

namespace {

// Fields of sentencepiece_model.proto: a piece is its text (1), score (2) and kind (3).
std::string piece(const std::string &text, char kind) {
    std::string message = std::string("\x0A") + static_cast<char>(text.size()) + text;
    message += std::string("\x15\0\0\0\0\x18", 6) + kind;
    return std::string("\x0A") + static_cast<char>(message.size()) + message;
}

std::string small_vocabulary() {
    std::string model = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3);
    for (const char *text : {"\xE2\x96\x81", "a", "b", "ab", "<", ">", "s", "<mark>"}) {
        model += piece(text, 1);
    }
    return model + std::string("\x12\x02\x18\x02", 4); // trainer_spec: model_type 2, bpe
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace stasis;
    static const fuzz::Folder folder;
    folder.write("tokenizer.model", small_vocabulary());
    folder.write("tokenizer_config.json", {reinterpret_cast<const char *>(data), size});
    try {
        std::unique_ptr<Tokenizer> tokenizer;
        {
            const fuzz::Meter meter(fuzz::kJsonTimes * size + (1 << 20));
            tokenizer = Tokenizer::open(folder.path(), 64, {}, {});
        }
        const auto tokens = tokenizer->encode("a <s>b<mark> ab", false, true);
        for (const uint32_t token : tokens) {
            fuzz::expect(token < tokenizer->size(), "a token outside the vocabulary");
        }
        tokenizer->decode(tokens, true, true);
        tokenizer->rules();
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
