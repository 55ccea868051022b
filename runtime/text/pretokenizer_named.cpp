// The published patterns by their names in GGUF files; see pretokenizer.h.
#include <algorithm>

#include "format/state/error.h"
#include "runtime/text/pretokenizer.h"

namespace stasis {

// openai/gpt-2, src/encoder.py, class Encoder.
const char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// meta-llama/llama3, llama/tokenizer.py, pat_str.
constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// transformers, tokenization_qwen2.py, PRETOKENIZE_REGEX: Llama 3's, but a digit at a time.
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizer.json of Qwen 3.5: Qwen2's, but marks belong to the letters before them.
constexpr char kQwen35[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                           R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tiktoken, tiktoken_ext/openai_public.py, o200k_base, which gpt-oss's tokenizer.json repeats: a
// word begins where small letters end and a capital begins.
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizers, pre_tokenizers/digits.rs, with individual_digits.
constexpr char kDigit[] = R"(\p{N})";

} // namespace

std::vector<std::string> pretokenizer_patterns(std::string_view name, const std::string &from) {
    if (name == "gpt-2") {
        return {kGpt2Pattern};
    }
    // llama.cpp, src/llama-vocab.cpp: dbrx, of Granite 4 and Phi-4, has Llama 3's.
    if (name == "llama-bpe" || name == "lfm2" || name == "dbrx") {
        return {kLlama3};
    }
    if (name == "qwen2") {
        return {kQwen2};
    }
    if (name == "qwen35") {
        return {kQwen35};
    }
    if (name == "gpt-4o") {
        return {kO200k};
    }
    if (name == "starcoder" || name == "smollm") { // Digits and ByteLevel in their tokenizer.json
        return {kDigit, kGpt2Pattern};
    }
    if (name == "deepseek-coder") { // as in its tokenizer.json
        return {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", kDigit};
    }
    // llama.cpp, src/llama-vocab.cpp: the pattern of files without a name.
    if (name == "default") {
        return {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"};
    }
    fail(Status::unsupported,
         "%s: tokenizer.ggml.pre is '%.*s'; supported are default, gpt-2, llama-bpe, lfm2, dbrx, "
         "smollm, qwen2, qwen35, gpt-4o, starcoder and deepseek-coder",
         from.c_str(), static_cast<int>(std::min<size_t>(name.size(), 60)), name.data());
}

} // namespace stasis
