// Converts text to tokens and back: SentencePiece vocabularies through their own library,
// byte-level BPE by byte_bpe.h. Adds only tokens that were requested. Immutable after loading;
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/state/digest.h"
#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/model/model_folder.h"
#include "runtime/text/piece.h"
#include "runtime/text/text_frame.h"

namespace stasis {

struct GgufFile;

// The part of a rendered turn to which a segment belongs.
enum class TurnPart : uint8_t {
    closing, // closes the open reply before this turn
    body,    // the turn itself: bos, markers, text
    reply,   // the generation prompt after it
};

// A piece of text with its own source. Neighbours are tokenized together if no special token
// separates them, and a token belongs to `text` if any of its bytes does.
struct Segment {
    std::string text;
    TokenSource source = TokenSource::text;
    bool special = false; // markers in this text become their special tokens
    TurnPart part = TurnPart::body;
    // A whole text begins at this segment. Its first plain stretch, at the start or after bos, gets
    // the leading space that some vocabularies (Llama 2's) put before a text.
    bool start = false;
};

struct SourcedToken {
    uint32_t token = 0;
    TokenSource source = TokenSource::text; // the source of its segment
    uint32_t segment = 0;                   // index of the segment it belongs to
};

class Tokenizer {
  public:
    // Reads DIRECTORY/tokenizer.model, or else tokenizer.json, and tokenizer_config.json (special
    // tokens, bos and eos text; optional). Returns null if neither of the first two exists. Throws
    // Error: io, corrupt, unsupported (more pieces than `vocabulary`; naming a part of
    // tokenizer.json that is not byte-level BPE). `bos` and `end_tokens` are the config's ids.
    static std::unique_ptr<Tokenizer> open(const ModelFolder &folder, uint32_t vocabulary,
                                           std::span<const uint32_t> bos,
                                           std::span<const uint32_t> end_tokens);
    // Reads the same from the metadata of a GGUF file, whose own ids replace empty `bos` and
    // `end_tokens`. Keeps no reference to the file.
    static std::unique_ptr<Tokenizer> open_gguf(const GgufFile &gguf, uint32_t vocabulary,
                                                std::span<const uint32_t> bos,
                                                std::span<const uint32_t> end_tokens);
    ~Tokenizer();

    // Encodes text. `special` false: marker texts ("<start_of_turn>", "</s>") are plain text and
    // never become special tokens. Throws Error(invalid_argument) naming the byte offset of invalid
    // UTF-8, and Error(unsupported) naming a byte without a token in a byte-level vocabulary. Time
    // grows in proportion to the text. Throws Error(cancelled), except for vocabularies of
    // sentencepiece, whose library cannot be cancelled.
    std::vector<uint32_t> encode(std::string_view text, bool bos, bool special) const;
    std::vector<SourcedToken> encode(std::span<const Segment> segments,
                                     const Watch &watch = {}) const;
    // Returns the text with `mark` inside every marker of a special token, behind its first
    // character, so that segments that allow special tokens do not read it as one.
    std::string guarded(std::string_view text, std::string_view mark) const;
    // Returns the least number of tokens that any text of `size_bytes` bytes gives.
    uint64_t tokens_min(uint64_t size_bytes) const;

    // Returns the bytes of consecutive tokens, as they are in the middle of a text unless
    // `at_start` (where the leading space that sentencepiece added is removed). Special tokens give
    // their marker's text if `special`, else nothing. Byte pieces give their byte. Throws
    // Error(invalid_argument) for an id out of range.
    std::string decode(std::span<const uint32_t> tokens, bool at_start, bool special) const;
    // Returns the bytes that one token adds in the middle of a text, markers included.
    std::string piece_bytes(uint32_t token) const;
    // Returns the piece as the vocabulary spells it ("\u2581Hello", "<0x0A>"). It lives as long as
    // the tokenizer.
    const std::string &piece(uint32_t token) const;
    bool is_special(uint32_t token) const;
    // Returns what a token is: `control` if it is special and not unknown, `unused` if no text is
    // it, `normal` if it stands for its own text, whichever file lists it.
    PieceKind kind(uint32_t token) const;
    // Returns the vocabulary's score; none: it gives no finite one.
    std::optional<float> score(uint32_t token) const;

    uint32_t size() const; // tokens of the vocabulary that it was opened for
    int64_t bos() const;   // -1: none
    const TextFrame &frame() const;
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
