// Padding the bundled tokenizers; see tokenizer.h. tokenizer.model is a ModelProto in protobuf's
// wire format (protobuf.dev, "Encoding"; field numbers: sentencepiece_model.proto,
// github.com/google/sentencepiece). Repeated fields may be anywhere in a message, and two messages
// for one field are merged, so pieces can be appended without parsing the bundled bytes.
#include "tools/cli/synth/tokenizer.h"

#include "tools/cli/synth/bundled.h"

namespace command::synth {

namespace {

constexpr uint64_t kBundledPieces = 1024; // in both tokenizers

void append_varint(std::string &out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        out += static_cast<char>(value | 0x80);
    }
    out += static_cast<char>(value);
}

void append_number(std::string &out, uint64_t field, uint64_t value) {
    append_varint(out, field << 3);
    append_varint(out, value);
}

void append_bytes(std::string &out, uint64_t field, const std::string &bytes) {
    append_varint(out, field << 3 | 2);
    append_varint(out, bytes.size());
    out += bytes;
}

} // namespace

std::string padded_tokenizer(bool gemma, uint64_t vocabulary) {
    constexpr uint64_t kPieces = 1, kTrainer = 2; // of ModelProto
    constexpr uint64_t kPiece = 1, kType = 3;     // of SentencePiece
    constexpr uint64_t kUnused = 5;               // a type: text never becomes such a piece
    constexpr uint64_t kVocabularySize = 4;       // of TrainerSpec
    std::string out(gemma ? bundled_gemma_tokenizer() : bundled_llama_tokenizer());
    for (uint64_t id = kBundledPieces; id < vocabulary; ++id) {
        std::string piece;
        append_bytes(piece, kPiece, "<unused" + std::to_string(id) + ">");
        append_number(piece, kType, kUnused);
        append_bytes(out, kPieces, piece);
    }
    std::string trainer;
    append_number(trainer, kVocabularySize, vocabulary);
    append_bytes(out, kTrainer, trainer);
    return out;
}

std::string tokenizer_config(bool gemma) {
    return std::string(gemma ? bundled_gemma_config() : bundled_llama_config());
}

} // namespace command::synth
