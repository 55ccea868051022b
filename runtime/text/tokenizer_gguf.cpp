// See tokenizer_gguf.h.
#include "runtime/text/tokenizer_gguf.h"

#include <cinttypes>

#include "format/error.h"
#include "runtime/text/utf8.h"

namespace stasis {

namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens", kTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";

[[noreturn]] void corrupt(const GgufFile &gguf, const char *key, const std::string &what) {
    fail(Status::corrupt, "%s: metadata %s: %s", gguf.names[0].c_str(), key, what.c_str());
}

// What converters write where a model's embedding has more rows than its tokenizer has tokens. No
// text must become such a token.
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

// User-defined tokens are text that becomes a token everywhere; but those in bars ("<|im_end|>")
// mark structure, and some files call all that was added to a vocabulary user-defined.
std::vector<AddedToken> user_defined(const std::vector<Piece> &pieces) {
    std::vector<AddedToken> out;
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        const std::string &text = pieces[token].text;
        if (pieces[token].kind == PieceKind::user_defined && !text.empty()) {
            const bool bars = (text.starts_with("<|") && text.ends_with("|>")) ||
                              (text.starts_with("<\uFF5C") && text.ends_with("\uFF5C>"));
            out.push_back({token, text, bars});
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
        const size_t space = text.find(' '); // which no token is spelled with
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

} // namespace

GgufVocabulary read_gguf_vocabulary(const GgufFile &gguf) {
    const std::string kind = gguf.text("tokenizer.ggml.model").value_or("");
    if (kind != "gpt2") {
        fail(Status::unsupported, "%s: tokenizer.ggml.model is '%.60s'; supported is gpt2",
             gguf.names[0].c_str(), kind.c_str());
    }
    GgufVocabulary out;
    out.model.pieces = read_pieces(gguf);
    out.model.merges = read_merges(gguf);
    const std::string pre = gguf.text("tokenizer.ggml.pre").value_or("default");
    out.model.patterns = pretokenizer_patterns(pre, gguf.names[0]);
    out.model.ignore_merges = pre == "llama-bpe"; // Llama 3's tokenizer.json; no key says it
    out.added = user_defined(out.model.pieces);
    const size_t tokens = out.model.pieces.size();
    add_id(gguf, "tokenizer.ggml.bos_token_id", tokens, out.bos);
    add_id(gguf, "tokenizer.ggml.eos_token_id", tokens, out.end_tokens);
    add_id(gguf, "tokenizer.ggml.eot_token_id", tokens, out.end_tokens);
    return out;
}

} // namespace stasis
