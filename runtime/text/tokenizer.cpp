// Text to tokens and back. sentencepiece cuts plain stretches of text; special tokens, the dummy
// prefix and where a token came from are settled here, so that the library never adds, joins or
// recognises anything on its own.
#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <sentencepiece_processor.h>

#include "format/error.h"
#include "runtime/checkpoint/json_file.h"
#include "runtime/text/markers.h"
#include "runtime/text/sentencepiece_model.h"
#include "runtime/text/tokenizer_config.h"
#include "runtime/text/utf8.h"

namespace sentencepiece::logging {
void SetMinLogLevel(int level); // exported, but in no installed header
} // namespace sentencepiece::logging

namespace stasis {

struct Tokenizer::Parts {
    sentencepiece::SentencePieceProcessor processor;
    std::vector<Piece> pieces; // by token id; tokens added beside the vocabulary at the end
    std::vector<bool> special; // by token id
    std::vector<bool> added;   // by token id: text taken as it is, unknown to sentencepiece
    Markers all;               // become tokens where special text is asked for
    Markers always;            // added tokens that are not special: become tokens everywhere
    Markers guarded; // special pieces that sentencepiece would find in any text if it were let
    bool dummy_prefix = false;
    bool escapes_space = true;
    int64_t bos = -1;
    std::string bos_text, eos_text, type;
    std::vector<std::pair<std::string, std::string>> rules;
    Digest digest;

    uint32_t check(uint32_t token) const;
    std::string bytes(uint32_t token) const;
    void add_tokens(const std::vector<AddedToken> &tokens, uint32_t vocabulary);
    void mark_special(const std::vector<AddedToken> &tokens);
    void set_ends(const TokenizerConfig &config, std::span<const uint32_t> bos_ids,
                  std::span<const uint32_t> end_tokens);
    void set_rules(const SentencepieceModel &model, const std::string &bytes,
                   std::span<const uint32_t> end_tokens);
};

namespace {

constexpr size_t kModelMax = 256 << 20; // bytes of tokenizer.model

// Text between special tokens, out of one segment or several neighbours.
struct Stretch {
    std::string text;
    std::vector<std::pair<size_t, uint32_t>> parts; // where a segment's part begins, its index

    void add(std::string_view part, uint32_t segment) {
        if (!part.empty()) {
            parts.emplace_back(text.size(), segment);
            text += part;
        }
    }
    // The segment of a token that covers the bytes from `begin` to `end`: the first that is text of
    // a message, else the first. (All bytes of a character but its last cover nothing.)
    uint32_t owner(std::span<const Segment> segments, size_t begin, size_t end) const {
        const auto first =
            std::upper_bound(parts.begin(), parts.end(), begin,
                             [](size_t at, const auto &part) { return at < part.first; }) -
            1;
        for (auto part = first; part != parts.end() && (part == first || part->first < end);
             ++part) {
            if (segments[part->second].source == TokenSource::text) {
                return part->second;
            }
        }
        return first->second;
    }
};

// A piece that marks structure rather than standing for its own text: "<start_of_turn>", but not
// a newline or a run of spaces.
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

// Encodes [begin, end) of a stretch. The processor adds no dummy prefix; where one is due it is an
// ordinary space in front, which is what the prefix is.
void encode_plain(const sentencepiece::SentencePieceProcessor &processor,
                  std::span<const Segment> segments, const Stretch &stretch, size_t begin,
                  size_t end, bool prefix, std::vector<SourcedToken> &out) {
    if (begin == end) {
        return;
    }
    const size_t shift = prefix ? 1 : 0;
    const std::string input = (prefix ? " " : "") + stretch.text.substr(begin, end - begin);
    sentencepiece::ImmutableSentencePieceText result;
    const auto status = processor.Encode(input, result.mutable_proto());
    if (!status.ok()) {
        fail(Status::internal, "sentencepiece: %s", status.error_message());
    }
    for (const auto &piece : result.pieces()) {
        const auto place = [&](uint32_t at) { return begin + (at > shift ? at - shift : 0); };
        const uint32_t segment = stretch.owner(segments, place(piece.begin()), place(piece.end()));
        out.push_back({piece.id(), segments[segment].source, segment});
    }
}

// A special piece inside a stretch is text: the stretch is cut behind its first character, so
// that sentencepiece never sees it whole.
void encode_stretch(const sentencepiece::SentencePieceProcessor &processor, const Markers &guarded,
                    std::span<const Segment> segments, const Stretch &stretch, bool prefix,
                    std::vector<SourcedToken> &out) {
    size_t begin = 0;
    for (size_t at = 0; at < stretch.text.size(); ++at) {
        if (guarded.longest(stretch.text, at).size_bytes > 0) {
            size_t end = at + 1;
            while (end < stretch.text.size() && (stretch.text[end] & 0xC0) == 0x80) {
                ++end;
            }
            encode_plain(processor, segments, stretch, begin, end, prefix && begin == 0, out);
            begin = end;
        }
    }
    encode_plain(processor, segments, stretch, begin, stretch.text.size(), prefix && begin == 0,
                 out);
}

} // namespace

uint32_t Tokenizer::Parts::check(uint32_t token) const {
    if (token >= pieces.size()) {
        fail(Status::invalid_argument, "token id %u is not in the tokenizer's vocabulary of %zu",
             token, pieces.size());
    }
    return token;
}

std::string Tokenizer::Parts::bytes(uint32_t token) const {
    const Piece &piece = pieces[check(token)];
    if (piece.kind == PieceKind::byte) { // "<0x0A>"
        return std::string(1, static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16)));
    }
    std::string out = piece.text;
    static constexpr std::string_view kSpace = "\u2581"; // how vocabularies spell a space
    if (escapes_space && !added[token] && !special[token]) {
        for (size_t at = 0; (at = out.find(kSpace, at)) != std::string::npos; ++at) {
            out.replace(at, kSpace.size(), " ");
        }
    }
    return out;
}

void Tokenizer::Parts::add_tokens(const std::vector<AddedToken> &tokens, uint32_t vocabulary) {
    added.resize(pieces.size());
    for (const AddedToken &token : tokens) {
        if (token.text.empty() || token.token >= vocabulary) {
            fail(Status::unsupported,
                 "tokenizer_config.json: added token %u ('%.40s') does not fit the model's "
                 "vocabulary of %u",
                 token.token, token.text.c_str(), vocabulary);
        }
        Piece &piece = pieces[token.token];
        if (piece.text != token.text) {
            piece = {token.text, PieceKind::user_defined};
            added[token.token] = true;
        }
    }
}

// Special are control pieces, the unknown piece, and user-defined pieces that the configuration
// lists as special or that it does not list and that look like markers.
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
        if (special[token] && piece.kind == PieceKind::user_defined && !added[token]) {
            guarded.add(piece.text, token);
        }
    }
}

void Tokenizer::Parts::set_ends(const TokenizerConfig &config, std::span<const uint32_t> bos_ids,
                                std::span<const uint32_t> end_tokens) {
    if (!bos_ids.empty()) {
        if (bos_ids[0] >= pieces.size() || pieces[bos_ids[0]].text.empty()) {
            fail(Status::corrupt, "the model's bos token %u is not in its tokenizer", bos_ids[0]);
        }
        bos = bos_ids[0];
    } else if (!config.bos_text.empty()) {
        const Markers::Match found = all.longest(config.bos_text, 0);
        bos = found.size_bytes == config.bos_text.size() ? int64_t{found.token} : -1;
    }
    bos_text = config.bos_text.empty() && bos >= 0 ? pieces[static_cast<size_t>(bos)].text
                                                   : config.bos_text;
    const bool end_known = !end_tokens.empty() && end_tokens[0] < pieces.size();
    eos_text = config.eos_text.empty() && end_known ? pieces[end_tokens[0]].text : config.eos_text;
}

void Tokenizer::Parts::set_rules(const SentencepieceModel &model, const std::string &bytes,
                                 std::span<const uint32_t> end_tokens) {
    const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
    rules = {{"bos", bos >= 0 ? std::to_string(bos) : "none"},
             {"end_tokens", list(end_tokens)},
             {"dummy_prefix", yes(dummy_prefix)},
             {"byte_fallback", yes(model.byte_fallback)},
             {"normalizer", model.normalizer},
             {"special_tokens", std::to_string(std::count(special.begin(), special.end(), true))},
             {"added_tokens", std::to_string(std::count(added.begin(), added.end(), true))}};
    Sha256 hash;
    hash.text(bytes);
    for (const auto &[name, value] : rules) {
        hash.text(name).text(value);
    }
    for (uint32_t token = 0; token < pieces.size(); ++token) {
        if (special[token] || added[token]) {
            hash.u32(token).u32(special[token] ? 1 : 0).text(pieces[token].text);
        }
    }
    digest = hash.finish();
}

Tokenizer::Tokenizer() : parts_(std::make_unique<Parts>()) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::open(const std::string &directory, uint32_t vocabulary,
                                           std::span<const uint32_t> bos,
                                           std::span<const uint32_t> end_tokens) {
    const std::string path = directory + "/tokenizer.model";
    if (!std::filesystem::exists(path)) {
        return nullptr;
    }
    const std::string bytes = read_text(path, kModelMax);
    const SentencepieceModel model = read_sentencepiece_model(bytes);
    if (model.pieces.size() > vocabulary) {
        fail(Status::unsupported, "%s: %zu pieces, but the model's vocabulary has %u", path.c_str(),
             model.pieces.size(), vocabulary);
    }
    std::unique_ptr<Tokenizer> out(new Tokenizer());
    Parts &parts = *out->parts_;
    static std::once_flag silenced; // a library prints nothing; 3: fatal only
    std::call_once(silenced, [] { sentencepiece::logging::SetMinLogLevel(3); });
    const auto status = parts.processor.LoadFromSerializedProto(model.plain);
    if (!status.ok()) {
        fail(Status::corrupt, "%s: %s", path.c_str(), status.error_message());
    }
    const TokenizerConfig config = read_tokenizer_config(directory);
    parts.pieces = model.pieces;
    // Models pad their vocabulary: what the tokenizer does not know is a token without text.
    parts.pieces.resize(vocabulary, Piece{"", PieceKind::unused});
    parts.dummy_prefix = model.add_dummy_prefix;
    parts.escapes_space = model.escape_whitespaces;
    parts.type = "sentencepiece-" + model.type;
    parts.add_tokens(config.added, vocabulary);
    parts.mark_special(config.added);
    parts.set_ends(config, bos, end_tokens);
    parts.set_rules(model, bytes, end_tokens);
    return out;
}

std::vector<SourcedToken> Tokenizer::encode(std::span<const Segment> segments) const {
    std::vector<SourcedToken> out;
    Stretch stretch;
    bool prefix = false; // the next stretch begins a text
    const auto flush = [&] {
        if (!stretch.text.empty()) {
            encode_stretch(parts_->processor, parts_->guarded, segments, stretch, prefix, out);
            stretch = {};
            prefix = false;
        }
    };
    for (uint32_t i = 0; i < segments.size(); ++i) {
        const Segment &segment = segments[i];
        const std::string_view text = segment.text;
        const size_t bad = invalid_utf8(text);
        if (bad != text.size()) {
            fail(Status::invalid_argument, "the text is not UTF-8 (at byte %zu)", bad);
        }
        if (segment.start) {
            flush();
            prefix = parts_->dummy_prefix;
        }
        const Markers &markers = segment.special ? parts_->all : parts_->always;
        size_t begin = 0;
        for (size_t at = 0; at < text.size();) {
            const Markers::Match match = markers.longest(text, at);
            if (match.size_bytes == 0) {
                ++at;
                continue;
            }
            stretch.add(text.substr(begin, at - begin), i);
            flush();
            out.push_back({match.token, segment.source, i});
            prefix = prefix && int64_t{match.token} == parts_->bos;
            begin = at += match.size_bytes;
        }
        stretch.add(text.substr(begin), i);
    }
    flush();
    return out;
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text, bool bos, bool special) const {
    std::vector<uint32_t> out;
    if (bos) {
        if (parts_->bos < 0) {
            fail(Status::unsupported, "the model has no bos token");
        }
        out.push_back(static_cast<uint32_t>(parts_->bos));
    }
    const Segment segment{std::string(text), TokenSource::text, special, TurnPart::body, true};
    for (const SourcedToken &token : encode({&segment, 1})) {
        out.push_back(token.token);
    }
    return out;
}

std::string Tokenizer::decode(std::span<const uint32_t> tokens, bool at_start, bool special) const {
    std::string out;
    bool prefix = at_start && parts_->dummy_prefix;
    for (const uint32_t token : tokens) {
        std::string bytes = parts_->bytes(token);
        if (parts_->special[token]) {
            out += special ? bytes : "";
            prefix = prefix && int64_t{token} == parts_->bos;
            continue;
        }
        if (prefix && bytes.starts_with(' ')) {
            bytes.erase(0, 1);
        }
        prefix = false;
        out += bytes;
    }
    return out;
}

std::string Tokenizer::piece_bytes(uint32_t token) const {
    return parts_->bytes(token);
}
std::string Tokenizer::piece(uint32_t token) const {
    return parts_->pieces[parts_->check(token)].text;
}
bool Tokenizer::is_special(uint32_t token) const {
    return parts_->special[parts_->check(token)];
}
uint32_t Tokenizer::size() const {
    return static_cast<uint32_t>(parts_->pieces.size());
}
int64_t Tokenizer::bos() const {
    return parts_->bos;
}
const std::string &Tokenizer::bos_text() const {
    return parts_->bos_text;
}
const std::string &Tokenizer::eos_text() const {
    return parts_->eos_text;
}
const std::string &Tokenizer::type() const {
    return parts_->type;
}
Digest Tokenizer::digest() const {
    return parts_->digest;
}
std::vector<std::pair<std::string, std::string>> Tokenizer::rules() const {
    return parts_->rules;
}

} // namespace stasis
