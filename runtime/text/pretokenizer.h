// Cuts text into words, the units that byte-pair merges never cross: regular expressions, applied
// one after the other with PCRE2. Immutable; safe from many threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/watch.h"

namespace stasis {

class Pretokenizer {
  public:
    // Each pattern is searched for in every piece that the ones before it left; what it matches
    // and what lies between its matches are pieces then ("isolated"). `from`: where the patterns
    // are from, for messages. Throws Error(unsupported) for one that is no pattern, or that may
    // match nothing at all.
    Pretokenizer(const std::vector<std::string> &patterns, const std::string &from);
    ~Pretokenizer();
    Pretokenizer(Pretokenizer &&) noexcept;
    Pretokenizer &operator=(Pretokenizer &&) noexcept;

    // The words of a text (UTF-8), in order: together they are the text. Takes time in proportion
    // to the text; throws Error(unsupported) naming a pattern that needs more than that, which
    // none of those below does.
    std::vector<std::string_view> split(std::string_view text, const Watch &watch = {}) const;

    const std::vector<std::string> &patterns() const; // as given

  private:
    struct Pattern;
    struct Search;

    std::vector<std::string> texts_;
    std::vector<Pattern> patterns_;
};

// The patterns behind a value of GGUF's tokenizer.ggml.pre: "default", "gpt-2", "llama-bpe",
// "smollm", "qwen2", "starcoder", "deepseek-coder". Throws Error(unsupported) naming these.
std::vector<std::string> pretokenizer_patterns(std::string_view name, const std::string &from);

extern const char kGpt2Pattern[]; // what Hugging Face's ByteLevel cuts with

} // namespace stasis
