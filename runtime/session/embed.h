// Embeddings: a vector for each text, from the final hidden states of its tokens (C13). A text's
// vector does not depend on the texts beside it. Keeps nothing in the model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "format/state/watch.h"
#include "runtime/session/model.h"

namespace stasis {

// What one vector is made of: tokens as they are, or a text, to which prompt and tokens are added
// that the model's files ask for.
struct EmbedInput {
    std::span<const uint32_t> tokens;
    std::string_view text;
    bool is_text = false;
};

struct EmbedOptions {
    Pooling pooling = Pooling::unknown; // unknown: as the model's files say
    const char *prompt = nullptr;       // the name of one of the model's; null: its default
    size_t chunk = 0;                   // positions of a pass at most; 0: the default
    Watch watch;                        // progress in positions
};

// Returns the pooling of a call. Throws Error(unsupported) if the model's files ask for something
// else, or say nothing and `asked` is unknown.
Pooling pooling_of(const Model &model, Pooling asked);

// Returns the most tokens of a text.
uint64_t embed_tokens_max(const Model &model);

// Stores the vectors [inputs][dimension] of the inputs, in their order. Computes several short
// texts together; pages of the KV cache are held for kEmbedPositions positions, or the longest
// text. All inputs are tokenized and checked first. Throws Error, naming the input's index:
// invalid_argument (not UTF-8, no tokens, a token outside the vocabulary, more tokens than
// embed_tokens_max, a prompt that the model has not), unsupported (no tokenizer), pool_exhausted,
// nonfinite; cancelled, stopped.
void embed(Model &model, std::span<const EmbedInput> inputs, const EmbedOptions &options,
           float *vectors);

inline constexpr uint64_t kEmbedPositions = 4096; // a whole number of pages for each text

} // namespace stasis
