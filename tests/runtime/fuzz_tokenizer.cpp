// Fuzzes the reading of a vocabulary: the input is a tokenizer.model. What opens must encode and
// decode.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "format/error.h"
#include "runtime/text/tokenizer.h"

namespace {

const std::string &directory() {
    static const std::string path = [] {
        const auto p = std::filesystem::temp_directory_path() /
                       ("stasis_fuzz_tokenizer_" + std::to_string(getpid()));
        std::filesystem::create_directories(p);
        return p.string();
    }();
    return path;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace stasis;
    std::ofstream(directory() + "/tokenizer.model", std::ios::binary)
        .write(reinterpret_cast<const char *>(data), static_cast<std::streamsize>(size));
    try {
        const auto tokenizer = Tokenizer::open(directory(), 4096, {}, {});
        const auto tokens =
            tokenizer->encode("Hello <s>\n  w\u00f6rld \U0001F634 \uFB01", false, true);
        tokenizer->decode(tokens, true, true);
    } catch (const Error &) {
    }
    return 0;
}
