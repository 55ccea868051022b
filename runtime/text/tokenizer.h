// Text to tokens and back: SentencePiece vocabularies through its own library, byte-level BPE by
// byte_bpe.h. Adds nothing that was not asked for. Immutable after loading; safe from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/state/digest.h"
#include "format/state/state.h"
#include "format/state/watch.h"

namespace stasis {

struct GgufFile;

// Which part of a rendered turn a stretch of text is.
enum class TurnPart : uint8_t {
    closing, // closes the open reply before this turn
    body,    // the turn itself: bos, markers, text
    reply,   // the prompt for a reply after it
};

// A stretch of text with its own provenance; neighbours are tokenized together where no special
// token separates them, and a token belongs to `text` if any of its bytes does.
struct Segment {
    std::string text;
    TokenSource source = TokenSource::text;
    bool special = false; // markers in this text become their special tokens
    TurnPart part = TurnPart::body;
    // A whole text begins here: its first plain stretch, at the start or behind bos, gets the
    // leading space that some vocabularies (Llama 2's) put before a text.
    bool start = false;
};

struct SourcedToken {
    uint32_t token = 0;
    TokenSource source = TokenSource::text; // of its segment
    uint32_t segment = 0;                   // index of the segment it belongs to
};

class Tokenizer {
  public:
    // Reads DIRECTORY/tokenizer.model, or else tokenizer.json, and tokenizer_config.json (special
    // tokens, bos and eos text; optional). Returns null if there is neither of the first two.
    // Throws Error: io, corrupt, unsupported (more pieces than `vocabulary`; a tokenizer.json that
    // is not byte-level BPE, named). `bos` and `end_tokens` are the config's ids.
    static std::unique_ptr<Tokenizer> open(const std::string &directory, uint32_t vocabulary,
                                           std::span<const uint32_t> bos,
                                           std::span<const uint32_t> end_tokens);
    // The same from the metadata of a GGUF file, whose own ids stand in for empty `bos` and
    // `end_tokens`. Keeps nothing of the file.
    static std::unique_ptr<Tokenizer> open_gguf(const GgufFile &gguf, uint32_t vocabulary,
                                                std::span<const uint32_t> bos,
                                                std::span<const uint32_t> end_tokens);
    ~Tokenizer();

    // `special` false: marker texts ("<start_of_turn>", "</s>") are plain text and never become
    // special tokens. Invalid UTF-8 is Error(invalid_argument) naming the byte offset. A byte
    // that a byte-level vocabulary has no token for is Error(unsupported) naming it.
    // Time grows with the text and no faster; throws Error(cancelled), but for vocabularies of
    // sentencepiece, whose library looks at nothing.
    std::vector<uint32_t> encode(std::string_view text, bool bos, bool special) const;
    std::vector<SourcedToken> encode(std::span<const Segment> segments,
                                     const Watch &watch = {}) const;
    // Any text of so many bytes gives at least so many tokens.
    uint64_t tokens_min(uint64_t size_bytes) const;

    // The bytes of a run of tokens, as they stand in the middle of a text unless `at_start` (where
    // sentencepiece removes the leading space it added). Special tokens give their marker's text if
    // `special`, else nothing. Byte pieces give their byte. Throws invalid_argument for an id out
    // of range.
    std::string decode(std::span<const uint32_t> tokens, bool at_start, bool special) const;
    // The bytes that one token adds in the middle of a text, markers included.
    std::string piece_bytes(uint32_t token) const;
    // The piece as the vocabulary spells it ("\u2581Hello", "<0x0A>").
    std::string piece(uint32_t token) const;
    bool is_special(uint32_t token) const;

    uint32_t size() const; // tokens: the vocabulary that it was opened for
    int64_t bos() const;   // -1: none
    const std::string &bos_text() const;
    const std::string &eos_text() const;
    const std::string &type() const; // ModelIdentity::tokenizer_type
    Digest digest() const;
    std::vector<std::pair<std::string, std::string>> rules() const; // ModelIdentity

  private:
    struct Parts;
    Tokenizer();
    std::unique_ptr<Parts> parts_;
};

} // namespace stasis
