// Opens a tokenizer (tokenizer.h): chooses the files, determines special tokens and the ids that
// begin and end a text, and computes the digest.
#include <algorithm>
#include <cmath>

#include "format/state/error.h"
#include "runtime/model/json_file.h"
#include "runtime/text/normal_form.h"
#include "runtime/text/tokenizer_gguf.h"
#include "runtime/text/tokenizer_json.h"
#include "runtime/text/tokenizer_parts.h"

namespace stasis {

namespace {

constexpr size_t kModelMax = 256 << 20; // bytes of tokenizer.model

// Reports whether a piece marks structure instead of standing for its own text: "<start_of_turn>",
// but not a newline or consecutive spaces.
bool looks_like_marker(const std::string &text) {
    return text.size() > 2 && text.front() == '<' && text.back() == '>' &&
           text.find_first_of(" \t\r\n") == std::string::npos &&
           text.find("\u2581") == std::string::npos;
}

std::string list(std::span<const uint32_t> tokens) {
    std::string out;
    for (const uint32_t token : tokens) {
        out += (out.empty() ? "" : ",") + std::to_string(token);
    }
    return out;
}

void check_size(size_t pieces, uint32_t vocabulary, const std::string &from) {
    if (pieces > vocabulary) {
        fail(Status::unsupported, "%s: %zu pieces, but the model's vocabulary has %u", from.c_str(),
             pieces, vocabulary);
    }
}

} // namespace

void Tokenizer::Parts::use_sentencepiece(const std::string &bytes,
                                         const std::vector<AddedToken> &tokens, uint32_t vocabulary,
                                         const std::string &from) {
    const SentencepieceModel model = read_sentencepiece_model(bytes);
    check_size(model.pieces.size(), vocabulary, from);
    pieces = model.pieces;
    scores = model.scores;
    // Models pad their vocabulary: an id outside the tokenizer is a token without text.
    pieces.resize(vocabulary, Piece{"", PieceKind::unused});
    dummy_prefix = model.add_dummy_prefix;
    type = "sentencepiece-" + model.type;
    add_tokens(tokens, from);
    mark_special(tokens);
    encoder.emplace<SentencepieceEncoder>(model, guarded(), from);
    const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
    encoder_rules = {{"dummy_prefix", yes(dummy_prefix)},
                     {"byte_fallback", yes(model.byte_fallback)},
                     {"normalizer", model.normalizer}};
    // Else consecutive characters may be one unknown.
    if (model.byte_fallback && !model.normalizes) {
        token_bytes_max = spelling_bytes_max();
    }
    model_bytes = bytes;
}

void Tokenizer::Parts::use_byte_bpe(ByteBpeModel model, const std::vector<AddedToken> &tokens,
                                    uint32_t vocabulary, const std::string &from) {
    check_size(model.pieces.size(), vocabulary, from);
    pieces = model.pieces;
    pieces.resize(vocabulary, Piece{"", PieceKind::unused});
    type = model.characters ? "byte-fallback-bpe" : "byte-level-bpe";
    add_tokens(tokens, from);
    for (const AddedToken &token : tokens) { // in the vocabulary too, but not found by merging
        added[token.token] = true;
    }
    mark_special(tokens);
    model.pieces = pieces;
    encoder_rules = encoder.emplace<ByteBpe>(model, special, from).rules();
    token_bytes_max = spelling_bytes_max() * (model.compose ? kComposedFromMax : 1);
}

uint64_t Tokenizer::Parts::spelling_bytes_max() const {
    uint64_t longest = 1;
    for (const Piece &piece : pieces) {
        longest = std::max<uint64_t>(longest, piece.text.size());
    }
    return longest;
}

void Tokenizer::Parts::add_tokens(const std::vector<AddedToken> &tokens, const std::string &from) {
    added.resize(pieces.size());
    for (const AddedToken &token : tokens) {
        if (token.text.empty() || token.token >= pieces.size()) {
            fail(Status::unsupported,
                 "%s: added token %u ('%.40s') does not fit the model's vocabulary of %zu",
                 from.c_str(), token.token, token.text.c_str(), pieces.size());
        }
        Piece &piece = pieces[token.token];
        if (piece.text != token.text) {
            piece = {token.text, PieceKind::user_defined};
            added[token.token] = true;
            if (token.token < scores.size()) { // of the piece whose place it takes
                scores[token.token] = NAN;
            }
        }
    }
}

// Marks special tokens: control pieces, the unknown piece, and user-defined pieces that the
// configuration lists as special, or that it does not list and that look like markers.
void Tokenizer::Parts::mark_special(const std::vector<AddedToken> &tokens) {
    special.resize(pieces.size());
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        const Piece &piece = pieces[token];
        const auto listed = std::lower_bound(
            tokens.begin(), tokens.end(), token,
            [](const AddedToken &added_token, uint32_t id) { return added_token.token < id; });
        const bool known = listed != tokens.end() && listed->token == token;
        special[token] =
            piece.kind == PieceKind::control || piece.kind == PieceKind::unknown ||
            (known ? listed->special
                   : piece.kind == PieceKind::user_defined && looks_like_marker(piece.text));
        if (piece.text.empty()) {
            continue;
        }
        if (special[token] || added[token]) {
            all.add(piece.text, token);
        }
        if (added[token] && !special[token]) {
            always.add(piece.text, token);
        }
    }
}

// Returns the special pieces that sentencepiece would find in any text.
Markers Tokenizer::Parts::guarded() const {
    Markers out;
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        if (special[token] && pieces[token].kind == PieceKind::user_defined && !added[token]) {
            out.add(pieces[token].text, token);
        }
    }
    return out;
}

void Tokenizer::Parts::set_ends(const TokenizerConfig &config, std::span<const uint32_t> bos_ids,
                                std::span<const uint32_t> end_tokens) {
    // bos: the id of the configuration, or the token with its text.
    if (!bos_ids.empty()) {
        if (bos_ids[0] >= pieces.size() || pieces[bos_ids[0]].text.empty()) {
            fail(Status::corrupt, "the model's bos token %u is not in its tokenizer", bos_ids[0]);
        }
        bos = bos_ids[0];
    } else if (!config.bos_text.empty()) {
        bos = find(config.bos_text);
    }
    bos_text = config.bos_text.empty() && bos >= 0 ? pieces[static_cast<size_t>(bos)].text
                                                   : config.bos_text;
    const bool end_known = !end_tokens.empty() && end_tokens[0] < pieces.size();
    eos_text = config.eos_text.empty() && end_known ? pieces[end_tokens[0]].text : config.eos_text;
    set_rules(end_tokens);
}

int64_t Tokenizer::Parts::find(const std::string &text) const {
    const Markers::Match found = all.longest(text, 0);
    return found.size_bytes == text.size() && !text.empty() ? int64_t{found.token} : -1;
}

void Tokenizer::Parts::set_frame(bool add_bos, std::vector<uint32_t> after) {
    if (add_bos && bos >= 0) {
        frame.before = {static_cast<uint32_t>(bos)};
    }
    frame.after = std::move(after);
}

// Sets the rules and the digest. The digest covers sentencepiece's file, or else every token's
// spelling, the rules of merging and the merges; then the rules, and the tokens that are special or
// added.
void Tokenizer::Parts::set_rules(std::span<const uint32_t> end_tokens) {
    rules = {{"bos", bos >= 0 ? std::to_string(bos) : "none"}, {"end_tokens", list(end_tokens)}};
    rules.insert(rules.end(), encoder_rules.begin(), encoder_rules.end());
    const auto count = [](const std::vector<bool> &flags) {
        return std::to_string(std::count(flags.begin(), flags.end(), true));
    };
    rules.emplace_back("special_tokens", count(special));
    rules.emplace_back("added_tokens", count(added));

    Sha256 hash;
    if (model_bytes) {
        hash.text(*model_bytes);
    } else {
        hash.text(type).u64(pieces.size());
        for (const Piece &piece : pieces) {
            hash.text(piece.text);
        }
        std::get<ByteBpe>(encoder).hash(hash);
    }
    for (const auto &[name, value] : rules) {
        hash.text(name).text(value);
    }
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        if (special[token] || added[token]) {
            hash.u32(token).u32(special[token] ? 1 : 0).text(pieces[token].text);
        }
    }
    digest = hash.finish();
    model_bytes.reset();
}

std::unique_ptr<Tokenizer> Tokenizer::open(const ModelFolder &folder, uint32_t vocabulary,
                                           std::span<const uint32_t> bos,
                                           std::span<const uint32_t> end_tokens) {
    constexpr const char *kModel = "tokenizer.model", *kJson = "tokenizer.json";
    const bool sentencepiece = folder.has(kModel);
    if (!sentencepiece && !folder.has(kJson)) {
        return nullptr;
    }
    std::unique_ptr<Tokenizer> out(new Tokenizer());
    const std::string bytes = sentencepiece ? folder.text(kModel, kModelMax) : "";
    const TokenizerConfig config = read_tokenizer_config(folder);
    if (sentencepiece) {
        out->parts_->use_sentencepiece(bytes, config.added, vocabulary, folder.shown(kModel));
    } else {
        TokenizerJson read = read_tokenizer_json(folder, kJson, vocabulary);
        merge_added(read.added, config.added);
        out->parts_->use_byte_bpe(std::move(read.model), read.added, vocabulary,
                                  folder.shown(kJson));
        out->parts_->frame = std::move(read.frame);
    }
    Parts &parts = *out->parts_;
    parts.set_ends(config, bos, end_tokens);
    if (sentencepiece) {
        const int64_t eos = config.add_eos ? parts.find(parts.eos_text) : -1;
        parts.set_frame(config.add_bos, eos >= 0 ? std::vector{static_cast<uint32_t>(eos)}
                                                 : std::vector<uint32_t>());
    }
    return out;
}

std::unique_ptr<Tokenizer> Tokenizer::open_gguf(const GgufFile &gguf, uint32_t vocabulary,
                                                std::span<const uint32_t> bos,
                                                std::span<const uint32_t> end_tokens) {
    const std::string from = gguf.names.at(0);
    GgufVocabulary read = read_gguf_vocabulary(gguf);
    std::unique_ptr<Tokenizer> out(new Tokenizer());
    Parts &parts = *out->parts_;
    if (read.byte_bpe) {
        parts.use_byte_bpe(std::move(*read.byte_bpe), read.added, vocabulary, from);
        parts.scores = std::move(read.scores);
    } else {
        parts.use_sentencepiece(read.sentencepiece, read.added, vocabulary, from);
    }
    if (!read.add_bos.empty()) {
        parts.encoder_rules.emplace_back("add_bos", read.add_bos);
    }
    parts.set_ends({}, bos.empty() ? read.bos : bos,
                   end_tokens.empty() ? read.end_tokens : end_tokens);
    parts.set_frame(read.add_bos.empty() ? read.bos_usual : read.add_bos == "yes",
                    std::move(read.after));
    return out;
}

} // namespace stasis
