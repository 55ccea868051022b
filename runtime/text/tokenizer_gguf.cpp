// Reads a vocabulary from GGUF metadata; see tokenizer_gguf.h.
#include "runtime/text/tokenizer_gguf.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/text/sentencepiece_build.h"
#include "runtime/text/sentencepiece_model.h"

namespace stasis {

namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens", kTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges", kScores[] = "tokenizer.ggml.scores";

[[noreturn]] void corrupt(const GgufFile &gguf, const char *key, const std::string &what) {
    fail(Status::corrupt, "%s: metadata %s: %s", gguf.names[0].c_str(), key, what.c_str());
}

// Reports whether a text is the one that converters write for rows of the embeddings without a
// token. No text may become such a token.
bool is_padding(const std::string &text, size_t token) {
    return text == "[PAD" + std::to_string(token) + "]";
}

std::vector<Piece> read_pieces(const GgufFile &gguf) {
    const auto texts = gguf.texts(kTokens);
    if (!texts || texts->empty()) {
        corrupt(gguf, kTokens, "there are no tokens");
    }
    const auto types = gguf.integers(kTypes);
    if (types && types->size() != texts->size()) {
        corrupt(gguf, kTypes,
                std::to_string(types->size()) + " types for " + std::to_string(texts->size()) +
                    " tokens");
    }
    std::vector<Piece> pieces;
    pieces.reserve(texts->size());
    for (size_t token = 0; token < texts->size(); ++token) {
        Piece piece{std::string((*texts)[token]), PieceKind::normal};
        const int64_t type = types ? (*types)[token] : 1;
        if (type < 1 || type > 6) {
            corrupt(gguf, kTypes,
                    "token " + std::to_string(token) + " is of type " + std::to_string(type));
        }
        if (invalid_utf8(piece.text) != piece.text.size()) {
            corrupt(gguf, kTokens, "token " + std::to_string(token) + " is not UTF-8");
        }
        piece.kind =
            is_padding(piece.text, token) ? PieceKind::unused : static_cast<PieceKind>(type);
        pieces.push_back(std::move(piece));
    }
    return pieces;
}

// Escapes the spaces of user-defined tokens. Published files spell them with plain spaces, but
// sentencepiece searches text whose spaces have become U+2581. Markers are searched in the text as
// it is.
void escape_spaces(std::vector<Piece> &pieces) {
    for (Piece &piece : pieces) {
        if (piece.kind != PieceKind::user_defined || marks_structure(piece.text)) {
            continue;
        }
        for (size_t at = 0; (at = piece.text.find(' ', at)) != std::string::npos;) {
            piece.text.replace(at, 1, "\u2581");
        }
    }
}

// Gemma 4's markers too: <|turn>, <turn|>.
bool marks_turn(const std::string &text) {
    return marks_structure(text) || (text.starts_with("<|") && text.ends_with(">")) ||
           (text.starts_with("<") && text.ends_with("|>"));
}

// Returns the user-defined tokens: their text becomes the token everywhere, unless they mark
// structure.
std::vector<AddedToken> user_defined(const GgufFile &gguf, const std::vector<Piece> &pieces,
                                     bool (*marks)(const std::string &text)) {
    const std::vector<int64_t> text = gguf.integers(kTextTokens).value_or(std::vector<int64_t>());
    const std::set<int64_t> plain(text.begin(), text.end());
    for (const int64_t id : plain) {
        if (id < 0 || static_cast<uint64_t>(id) >= pieces.size()) {
            corrupt(gguf, kTextTokens,
                    "token " + std::to_string(id) + " of " + std::to_string(pieces.size()));
        }
    }
    std::vector<AddedToken> out;
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        const std::string &spelled = pieces[token].text;
        if (pieces[token].kind == PieceKind::user_defined && !spelled.empty()) {
            out.push_back({token, spelled, marks(spelled) && plain.count(token) == 0});
        }
    }
    return out;
}

std::vector<std::pair<std::string, std::string>> read_merges(const GgufFile &gguf) {
    const auto texts = gguf.texts(kMerges);
    if (!texts) {
        corrupt(gguf, kMerges, "there are none");
    }
    std::vector<std::pair<std::string, std::string>> merges;
    merges.reserve(texts->size());
    for (const std::string_view text : *texts) {
        const size_t space = text.find(' '); // no token is spelled with a space
        if (space == 0 || space >= text.size() - 1 ||
            text.find(' ', space + 1) != std::string_view::npos) {
            corrupt(gguf, kMerges,
                    "merge " + std::to_string(merges.size()) +
                        " is not two spellings with a space between");
        }
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return merges;
}

void add_id(const GgufFile &gguf, const char *key, size_t tokens, std::vector<uint32_t> &out) {
    const auto id = gguf.integer(key);
    if (id && *id >= tokens) {
        corrupt(gguf, key, "token " + std::to_string(*id) + " of " + std::to_string(tokens));
    }
    if (id && (out.empty() || out[0] != *id)) {
        out.push_back(static_cast<uint32_t>(*id));
    }
}

// Checks the parts for the library, which requires one unknown piece and would misbehave on others.
void check_sentencepiece(const GgufFile &gguf, SentencepieceParts &parts) {
    const uint64_t unknown = gguf.integer("tokenizer.ggml.unknown_token_id").value_or(0);
    if (parts.scores.size() != parts.pieces.size()) {
        corrupt(gguf, kScores,
                std::to_string(parts.scores.size()) + " scores for " +
                    std::to_string(parts.pieces.size()) + " tokens");
    }
    for (size_t token = 0; token < parts.pieces.size(); ++token) {
        Piece &piece = parts.pieces[token];
        const std::string which = "token " + std::to_string(token);
        if (piece.text.empty() || piece.text.find('\0') != std::string::npos) {
            corrupt(gguf, kTokens, which + " is empty or has a NUL byte");
        }
        if (!std::isfinite(parts.scores[token])) {
            corrupt(gguf, kScores, which + " has none that is a finite number");
        }
        if (piece.kind == PieceKind::byte) {
            parts.byte_fallback = true;
            if (!spells_byte(piece.text)) {
                corrupt(gguf, kTokens, which + " is a byte, but not spelled like <0x0A>");
            }
        }
        if (token == unknown) {
            piece.kind = PieceKind::unknown;
        } else if (piece.kind == PieceKind::unknown) {
            piece.kind = PieceKind::control;
        }
    }
}

// Returns whether text is converted to NFC, the only form that the key supports, with byte-level
// BPE.
bool read_composes(const GgufFile &gguf, bool byte_bpe) {
    const std::optional<std::string> form = gguf.text(kNormalization);
    if (form && (*form != "NFC" || !byte_bpe)) {
        fail(Status::unsupported, "%s: %s is \"%.40s\"; supported is NFC, with byte-level BPE",
             gguf.names[0].c_str(), kNormalization, form->c_str());
    }
    return form.has_value();
}

std::string read_sentencepiece(const GgufFile &gguf, std::vector<Piece> pieces) {
    SentencepieceParts parts;
    parts.pieces = std::move(pieces);
    parts.scores = gguf.numbers(kScores).value_or(std::vector<float>());
    check_sentencepiece(gguf, parts);
    parts.add_dummy_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
    parts.remove_extra_whitespaces =
        gguf.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
    constexpr char kCharsmap[] = "tokenizer.ggml.precompiled_charsmap";
    if (gguf.metadata.count(kCharsmap) != 0) {
        fail(Status::unsupported, "%s: the vocabulary has normalization rules (%s)",
             gguf.names[0].c_str(), kCharsmap);
    }
    return build_sentencepiece_model(parts);
}

// Gemma 4's, whose bytes have tokens of their own.
ByteBpeModel read_characters(const GgufFile &gguf, const std::vector<Piece> &pieces) {
    ByteBpeModel model;
    model.characters = true;
    model.pieces = pieces;
    for (size_t token = 0; token < pieces.size(); ++token) {
        if (pieces[token].kind == PieceKind::byte && !spells_byte(pieces[token].text)) {
            corrupt(gguf, kTokens,
                    "token " + std::to_string(token) + " is a byte, but not spelled like <0x0A>");
        }
    }
    model.merges = read_merges(gguf);
    read_composes(gguf, false);
    return model;
}

ByteBpeModel read_byte_bpe(const GgufFile &gguf, const std::vector<Piece> &pieces) {
    ByteBpeModel model;
    model.pieces = pieces;
    for (Piece &piece : model.pieces) {
        if (piece.kind == PieceKind::byte) { // the spelling of every token gives its bytes
            piece.kind = PieceKind::normal;
        }
    }
    model.merges = read_merges(gguf);
    const std::string pre = gguf.text("tokenizer.ggml.pre").value_or("default");
    model.patterns = pretokenizer_patterns(pre, gguf.names[0]);
    model.compose = read_composes(gguf, true);
    // As in their tokenizer.json (Llama 3, LFM2); there is no key.
    model.ignore_merges = pre == "llama-bpe" || pre == "lfm2";
    return model;
}

} // namespace

bool marks_structure(const std::string &text) {
    static constexpr const char *kMarks[] = {"<s>",   "</s>",  "<unk>",           "<pad>",
                                             "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"};
    return (text.starts_with("<|") && text.ends_with("|>")) ||
           (text.starts_with("<\uFF5C") && text.ends_with("\uFF5C>")) ||
           std::find(std::begin(kMarks), std::end(kMarks), text) != std::end(kMarks);
}

GgufVocabulary read_gguf_vocabulary(const GgufFile &gguf) {
    const std::string kind = gguf.text("tokenizer.ggml.model").value_or("");
    const bool byte_bpe = kind == "gpt2", characters = kind == "gemma4";
    if (!byte_bpe && !characters && kind != "llama" && kind != "gemma") {
        fail(Status::unsupported,
             "%s: tokenizer.ggml.model is '%.60s'; supported are gpt2, llama, gemma and gemma4",
             gguf.names[0].c_str(), kind.c_str());
    }

    GgufVocabulary out;
    std::vector<Piece> pieces = read_pieces(gguf);
    if (!byte_bpe && !characters) {
        escape_spaces(pieces);
    }
    out.added = user_defined(gguf, pieces, characters ? marks_turn : marks_structure);
    if (byte_bpe || characters) {
        out.byte_bpe = byte_bpe ? read_byte_bpe(gguf, pieces) : read_characters(gguf, pieces);
        out.scores = gguf.numbers(kScores).value_or(std::vector<float>());
    } else {
        read_composes(gguf, false);
        out.sentencepiece = read_sentencepiece(gguf, pieces);
    }

    // A file may name several tokens that end a reply: of the text, of a turn, of a message.
    add_id(gguf, "tokenizer.ggml.bos_token_id", pieces.size(), out.bos);
    add_id(gguf, "tokenizer.ggml.eos_token_id", pieces.size(), out.end_tokens);
    add_id(gguf, "tokenizer.ggml.eot_token_id", pieces.size(), out.end_tokens);
    add_id(gguf, "tokenizer.ggml.eom_token_id", pieces.size(), out.end_tokens);
    if (const auto add_bos = gguf.boolean("tokenizer.ggml.add_bos_token")) {
        out.add_bos = *add_bos ? "yes" : "no";
    }
    out.bos_usual = !byte_bpe || out.byte_bpe->ignore_merges; // as llama.cpp has it
    if (gguf.boolean("tokenizer.ggml.add_eos_token").value_or(false)) {
        add_id(gguf, "tokenizer.ggml.eos_token_id", pieces.size(), out.after);
    }
    return out;
}

} // namespace stasis
