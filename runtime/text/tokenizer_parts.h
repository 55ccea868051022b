// The parts of a Tokenizer: the common members of its two kinds, and one of the two encoders. Made
// by tokenizer_open.cpp, used by tokenizer.cpp; included by these only.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/text/byte_bpe.h"
#include "runtime/text/markers.h"
#include "runtime/text/sentencepiece_encoder.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_config.h"

namespace stasis {

struct Tokenizer::Parts {
    using Rules = std::vector<std::pair<std::string, std::string>>;

    std::variant<std::monostate, SentencepieceEncoder, ByteBpe> encoder;
    std::vector<Piece> pieces; // by token id; tokens added beside the vocabulary at the end
    std::vector<float> scores; // by token id; may end early, NaN: none
    std::vector<bool> special; // by token id
    std::vector<bool> added;   // by token id: text taken literally, unknown to the encoder
    Markers all;               // become tokens if special text is requested
    Markers always;            // added tokens that are not special: become tokens everywhere
    bool dummy_prefix = false;
    uint64_t token_bytes_max = 0; // the longest text that a token may stand for; 0: not bounded
    int64_t bos = -1;
    std::string bos_text, eos_text, type;
    Rules rules;
    Digest digest;
    TextFrame frame;
    Rules encoder_rules;                    // some of `rules`
    std::optional<std::string> model_bytes; // of sentencepiece, until the digest is computed

    uint32_t check(uint32_t token) const;
    std::string bytes(uint32_t token) const;
    void encode(const std::string &text, bool prefix, const Watch &watch,
                std::vector<TextToken> &out) const;

    // The steps of opening, in this order: the encoder and all pieces, then the ends, then rules
    // and digest. `from` is the file, for messages.
    void use_sentencepiece(const std::string &bytes, const std::vector<AddedToken> &tokens,
                           uint32_t vocabulary, const std::string &from);
    void use_byte_bpe(ByteBpeModel model, const std::vector<AddedToken> &tokens,
                      uint32_t vocabulary, const std::string &from);
    void set_ends(const TokenizerConfig &config, std::span<const uint32_t> bos_ids,
                  std::span<const uint32_t> end_tokens);
    // Sets the frame, whose tokens before a text are bos or none.
    void set_frame(bool add_bos, std::vector<uint32_t> after);

    // Steps of these functions.
    void add_tokens(const std::vector<AddedToken> &tokens, const std::string &from);
    void mark_special(const std::vector<AddedToken> &tokens);
    Markers guarded() const;
    int64_t find(const std::string &text) const; // the special or added token; -1: none
    uint64_t spelling_bytes_max() const;         // of a piece
    void set_rules(std::span<const uint32_t> end_tokens);
};

} // namespace stasis
