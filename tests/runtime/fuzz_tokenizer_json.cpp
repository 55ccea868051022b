// Fuzzes the reading of a byte-level vocabulary: the input is a tokenizer.json. A vocabulary that
// opens must encode, and decode to the same text; a refusal must give a reason.
#include <cstdint>
#include <memory>
#include <string>

#include "format/state/error.h"
#include "runtime/text/normal_form.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/watched.h"

namespace {

using namespace stasis;

void check(const Tokenizer &tokenizer, const std::string &text) {
    const auto tokens = tokenizer.encode(text, false, true);
    for (const uint32_t token : tokens) {
        fuzz::expect(token < tokenizer.size(), "a token outside the vocabulary");
    }
    bool composes = false;
    for (const auto &[name, value] : tokenizer.rules()) {
        composes = composes || value == "nfc";
    }
    // If it composes, the stretches between special tokens are composed each on its own.
    const std::string back = tokenizer.decode(tokens, true, true);
    fuzz::expect(composes ? compose(back).text == compose(text).text : back == text,
                 "another text came back");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const fuzz::Folder folder;
    folder.write("tokenizer.json", {reinterpret_cast<const char *>(data), size});
    try {
        std::unique_ptr<Tokenizer> tokenizer;
        {
            const fuzz::Meter meter(128 * size + (1 << 20));
            tokenizer = Tokenizer::open(folder.path(), 1024, {}, {});
        }
        check(*tokenizer, "a");
        check(*tokenizer, "ab abab  aaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n");
        check(*tokenizer, "Hello <s>\n  wo\u0308rld 12 \U0001F634 \uFB01");
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
