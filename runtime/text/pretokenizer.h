// Cuts text into words, the units that byte-pair merges never cross, with regular expressions
// applied one after the other (PCRE2). Immutable and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/watch.h"

namespace stasis {

class Pretokenizer {
  public:
    // Each pattern is applied to every piece that the earlier ones left; its matches and the text
    // between them are the new pieces ("isolated"). `from` names the source of the patterns, for
    // messages. Throws Error(unsupported) for text that is no pattern, and for a pattern that may
    // match the empty string.
    Pretokenizer(const std::vector<std::string> &patterns, const std::string &from);
    ~Pretokenizer();
    Pretokenizer(Pretokenizer &&) noexcept;
    Pretokenizer &operator=(Pretokenizer &&) noexcept;

    // Returns the words of a text (UTF-8), in order; joined they are the text. Time grows in
    // proportion to the text. Throws Error(unsupported) naming a pattern that needs more time,
    // which none of the patterns below does.
    std::vector<std::string_view> split(std::string_view text, const Watch &watch = {}) const;

    const std::vector<std::string> &patterns() const; // as given

  private:
    struct Pattern;
    struct Search;

    std::vector<std::string> texts_;
    std::vector<Pattern> patterns_;
};

// Returns the patterns of a value of GGUF's tokenizer.ggml.pre: "default", "gpt-2", "llama-bpe",
// "smollm", "qwen2", "qwen35", "gpt-4o", "starcoder", "deepseek-coder". Throws Error(unsupported)
// listing these.
std::vector<std::string> pretokenizer_patterns(std::string_view name, const std::string &from);

extern const char kGpt2Pattern[]; // the pattern of Hugging Face's ByteLevel

} // namespace stasis
