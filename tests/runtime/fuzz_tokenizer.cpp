// Fuzzes the reading of a vocabulary: the input is a tokenizer.model. A vocabulary that opens must
// encode and decode; a refusal must give a reason.
#include <cstdint>
#include <memory>
#include <string>

#include "format/state/error.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace stasis;
    static const fuzz::Folder folder;
    folder.write("tokenizer.model", {reinterpret_cast<const char *>(data), size});
    try {
        std::unique_ptr<Tokenizer> tokenizer;
        {
            const fuzz::Meter meter(256 * size + (1 << 20)); // sentencepiece's own tables, mostly
            tokenizer = Tokenizer::open(folder.path(), 4096, {}, {});
        }
        const auto tokens =
            tokenizer->encode("Hello <s>\n  w\u00f6rld \U0001F634 \uFB01", false, true);
        for (const uint32_t token : tokens) {
            fuzz::expect(token < tokenizer->size(), "a token outside the vocabulary");
        }
        tokenizer->decode(tokens, true, true);
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
