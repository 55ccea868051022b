// Writes a tokenizer as GGUF metadata; see describe_tokenizer.h. Keys: ggml's docs/gguf.md,
// "Tokenizer", and gguf-py's constants.py.
#include "runtime/text/describe_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "format/state/error.h"
#include "runtime/model/embedding_rules.h"
#include "runtime/model/json_file.h"
#include "runtime/text/sentencepiece_model.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/tokenizer_gguf.h"
#include "runtime/text/tokenizer_json.h"

namespace stasis {

namespace {

constexpr size_t kModelMax = 256 << 20;
constexpr size_t kConfigMax = 64 << 20;

// Spells a user-defined token of a SentencePiece vocabulary as published files do.
std::string with_bare_spaces(std::string text) {
    static constexpr std::string_view kSpace = "\u2581";
    for (size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos; ++at) {
        text.replace(at, kSpace.size(), " ");
    }
    return text;
}

// Writes texts and kinds of all tokens, as the opened tokenizer has them. A token that it considers
// special becomes a control token, so that no text becomes one by accident.
void describe_tokens(const Tokenizer &tokenizer, const std::vector<Piece> &pieces,
                     GgufMetadata &metadata) {
    const bool sentencepiece = tokenizer.type().starts_with("sentencepiece");
    std::vector<std::string> texts;
    std::vector<int32_t> kinds, text_tokens;
    for (uint32_t token = 0; token < tokenizer.size(); ++token) {
        std::string text = tokenizer.piece(token);
        const bool listed = token < pieces.size() && pieces[token].text == text;
        PieceKind kind = listed ? pieces[token].kind : PieceKind::user_defined;
        if (text.empty()) {
            kind = PieceKind::unused;
        } else if (tokenizer.is_special(token) && kind != PieceKind::unknown) {
            kind = PieceKind::control;
        }
        if (kind == PieceKind::user_defined && marks_structure(text)) {
            text_tokens.push_back(static_cast<int32_t>(token));
        } else if (kind == PieceKind::user_defined && sentencepiece) {
            text = with_bare_spaces(text);
        }
        texts.push_back(text.empty() ? "[PAD" + std::to_string(token) + "]" : text);
        kinds.push_back(static_cast<int32_t>(kind));
    }
    metadata.texts("tokenizer.ggml.tokens", texts);
    metadata.integers("tokenizer.ggml.token_type", kinds);
    if (!text_tokens.empty()) {
        metadata.integers(kTextTokens, text_tokens);
    }
}

// Refuses properties for which readers of GGUF files would tokenize plain text differently.
void refuse_sentencepiece(const std::string &path, const Tokenizer &tokenizer,
                          const SentencepieceModel &model) {
    if (model.type != "bpe" || model.normalizer != "identity") {
        fail(Status::unsupported,
             "%s: a %s vocabulary with the normalization \"%.40s\"; GGUF files hold bpe with "
             "\"identity\"",
             path.c_str(), model.type.c_str(), model.normalizer.c_str());
    }
    if (!model.escape_whitespaces) {
        fail(Status::unsupported, "%s: escape_whitespaces is false; no key of GGUF files says that",
             path.c_str());
    }
    for (uint32_t token = 0; token < model.pieces.size(); ++token) {
        const PieceKind kind = model.pieces[token].kind;
        if (tokenizer.is_special(token) && (kind == PieceKind::normal || kind == PieceKind::byte)) {
            fail(Status::unsupported,
                 "%s: token %u ('%.40s') is special by tokenizer_config.json, but an ordinary "
                 "piece of the vocabulary; in a GGUF file it can only be one of them",
                 path.c_str(), token, model.pieces[token].text.c_str());
        }
    }
}

void describe_sentencepiece(const std::string &path, const Tokenizer &tokenizer,
                            GgufMetadata &metadata) {
    constexpr float kPaddingScore = -10000; // as in published converters
    const SentencepieceModel model = read_sentencepiece_model(read_text(path, kModelMax));
    refuse_sentencepiece(path, tokenizer, model);
    metadata.text("tokenizer.ggml.model", "llama");
    metadata.text("tokenizer.ggml.pre", "default");
    describe_tokens(tokenizer, model.pieces, metadata);
    std::vector<float> scores = model.scores;
    scores.resize(tokenizer.size(), kPaddingScore);
    metadata.numbers("tokenizer.ggml.scores", scores);
    for (uint32_t token = 0; token < model.pieces.size(); ++token) {
        if (model.pieces[token].kind == PieceKind::unknown) {
            metadata.integer("tokenizer.ggml.unknown_token_id", token);
            break;
        }
    }
    metadata.boolean("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
}

// Returns a pattern with characters in place of their numbers, "\x{4E00}", because files have
// either.
std::string with_characters(const std::string &pattern) {
    std::string out;
    for (size_t at = 0; at < pattern.size();) {
        const size_t end =
            pattern.compare(at, 3, "\\x{") == 0 ? pattern.find('}', at) : pattern.npos;
        if (end == pattern.npos) {
            out += pattern[at++];
            continue;
        }
        // In the named patterns these characters all take three bytes.
        const unsigned long c = std::stoul(pattern.substr(at + 3, end - at - 3), nullptr, 16);
        out += static_cast<char>(0xE0 | c >> 12);
        out += static_cast<char>(0x80 | (c >> 6 & 63));
        out += static_cast<char>(0x80 | (c & 63));
        at = end + 1;
    }
    return out;
}

bool cut_alike(std::vector<std::string> named, const std::vector<std::string> &patterns) {
    std::transform(named.begin(), named.end(), named.begin(), with_characters);
    return named == patterns;
}

// Returns the name in GGUF files under which a tokenizer cuts text as this model does.
std::string pretokenizer_name(const ByteBpeModel &model, const std::string &path) {
    for (const char *name : {"llama-bpe", "qwen2", "qwen35", "gpt-4o", "smollm", "gpt-2",
                             "deepseek-coder", "default"}) {
        if (cut_alike(pretokenizer_patterns(name, path), model.patterns) &&
            model.ignore_merges == (std::string(name) == "llama-bpe")) {
            return name;
        }
    }
    fail(Status::unsupported,
         "%s: no name in GGUF files stands for its pre_tokenizer%s (first pattern: %.80s)",
         path.c_str(), model.ignore_merges ? " with ignore_merges" : "",
         model.patterns.empty() ? "none" : model.patterns[0].c_str());
}

void describe_byte_bpe(const std::string &directory, const Tokenizer &tokenizer,
                       GgufMetadata &metadata) {
    const TokenizerJson read = read_tokenizer_json(directory, "tokenizer.json", tokenizer.size());
    std::vector<Piece> pieces = read.model.pieces;
    pieces.resize(tokenizer.size(), Piece{"", PieceKind::unused});
    for (const AddedToken &token : read.added) { // the vocabulary may list them too
        pieces[token.token] = {token.text, PieceKind::user_defined};
    }
    metadata.text("tokenizer.ggml.model", read.model.characters ? "gemma4" : "gpt2");
    if (!read.model.characters) {
        metadata.text("tokenizer.ggml.pre",
                      pretokenizer_name(read.model, directory + "/tokenizer.json"));
    }
    if (read.model.compose) {
        metadata.text(kNormalization, "NFC");
    }
    describe_tokens(tokenizer, pieces, metadata);
    std::vector<std::string> merges;
    for (const auto &[left, right] : read.model.merges) {
        merges.push_back(left + " " + right);
    }
    metadata.texts("tokenizer.ggml.merges", merges);
}

// Writes the end tokens. In templates, readers use the text of the first as the end of a sequence.
void describe_ends(const Config &config, int64_t bos, const Tokenizer *tokenizer,
                   GgufMetadata &metadata) {
    static constexpr const char *kEnds[] = {"tokenizer.ggml.eos_token_id",
                                            "tokenizer.ggml.eot_token_id",
                                            "tokenizer.ggml.eom_token_id"};
    if (bos >= 0) {
        metadata.integer("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos));
    }
    std::vector<uint32_t> ends = config.end_tokens;
    if (ends.size() > std::size(kEnds)) {
        fail(Status::unsupported, "the model has %zu end tokens; a GGUF file names three",
             ends.size());
    }
    if (tokenizer != nullptr) {
        std::stable_partition(ends.begin(), ends.end(), [&](uint32_t token) {
            return tokenizer->piece(token) == tokenizer->eos_text();
        });
    }
    for (size_t i = 0; i < ends.size(); ++i) {
        metadata.integer(kEnds[i], ends[i]);
    }
    // A reader that finds no end of turn searches for one.
    if (ends.size() == 1) {
        metadata.integer(kEnds[1], ends[0]);
    }
    if (tokenizer != nullptr && !ends.empty() && tokenizer->frame().after == std::vector{ends[0]}) {
        metadata.boolean("tokenizer.ggml.add_eos_token", true);
    }
}

[[noreturn]] void refuse(const std::string &directory, const std::string &what) {
    fail(Status::unsupported, "%s: the tokenizer cannot be written as GGUF: %s", directory.c_str(),
         what.c_str());
}

// Writes whether the tokenizer's own configuration adds the bos token before a text.
void describe_add_bos(const std::string &directory, GgufMetadata &metadata) {
    const std::string path = directory + "/tokenizer_config.json";
    if (!file_exists(path)) {
        return;
    }
    const Json json = parse_json(read_text(path, kConfigMax), path);
    const Json *found = json.find("add_bos_token");
    if (found != nullptr && found->boolean() != nullptr) {
        metadata.boolean("tokenizer.ggml.add_bos_token", *found->boolean());
    }
}

} // namespace

void describe_tokenizer(const std::string &directory, const Config &config,
                        GgufMetadata &metadata) {
    const auto tokenizer =
        Tokenizer::open(directory, config.vocabulary, config.bos, config.end_tokens);
    if (tokenizer == nullptr) {
        metadata.text("tokenizer.ggml.model", "no_vocab");
        describe_ends(config, config.bos.empty() ? -1 : int64_t{config.bos[0]}, nullptr, metadata);
        return;
    }
    const std::string sentencepiece = directory + "/tokenizer.model";
    if (file_exists(sentencepiece)) {
        describe_sentencepiece(sentencepiece, *tokenizer, metadata);
    } else {
        describe_byte_bpe(directory, *tokenizer, metadata);
    }
    describe_ends(config, tokenizer->bos(), tokenizer.get(), metadata);
    describe_add_bos(directory, metadata);
    const std::string chat = read_tokenizer_config(directory).chat_template;
    if (!chat.empty()) {
        metadata.text("tokenizer.chat_template", chat);
    }
}

void check_described_tokenizer(const std::string &directory, const Config &config,
                               const GgufFile &file, const Config &given) {
    const auto meant = Tokenizer::open(directory, config.vocabulary, config.bos, config.end_tokens);
    if (meant == nullptr) {
        return;
    }
    std::unique_ptr<Tokenizer> read;
    try {
        read = Tokenizer::open_gguf(file, given.vocabulary, given.bos, given.end_tokens);
    } catch (const Error &error) {
        refuse(directory, std::string("as GGUF it cannot be opened: ") + error.what());
    }
    const auto expect = [&](const std::string &found, const std::string &wanted, const char *what) {
        if (found != wanted) {
            refuse(directory, std::string("its ") + what + " is '" + wanted.substr(0, 60) +
                                  "'; by a GGUF file it would be '" + found.substr(0, 60) + "'");
        }
    };
    expect(read->type(), meant->type(), "type");
    expect(std::to_string(read->bos()), std::to_string(meant->bos()), "bos token");
    expect(read->bos_text(), meant->bos_text(), "bos text");
    expect(read->eos_text(), meant->eos_text(), "eos text");
    const TextFrame &frame = meant->frame();
    if (file_exists(directory + "/" + kModulesFile) &&
        (frame.before != read->frame().before || frame.after != read->frame().after)) {
        refuse(directory, "it puts other tokens around a text");
    }
    for (uint32_t token = 0; token < meant->size(); ++token) {
        const std::string which = "token " + std::to_string(token);
        expect(read->is_special(token) ? "special" : "text",
               meant->is_special(token) ? "special" : "text", which.c_str());
        if (!meant->piece(token).empty()) { // else a name for a token that no text becomes
            expect(read->piece_bytes(token), meant->piece_bytes(token), which.c_str());
        }
    }
}

} // namespace stasis
