// Converts text to tokens and back. An encoder cuts plain stretches of text; this file handles
// special tokens, the dummy prefix and the source of each token.
#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <cmath>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/text/tokenizer_parts.h"

namespace stasis {

namespace {

// Text between special tokens, from one segment or several neighbours.
struct Stretch {
    std::string text;
    // Begin of a segment's part, and the segment's index.
    std::vector<std::pair<size_t, uint32_t>> parts;

    void add(std::string_view part, uint32_t segment) {
        if (!part.empty()) {
            parts.emplace_back(text.size(), segment);
            text += part;
        }
    }
    // Returns the segment of a token that covers bytes [begin, end): the first that is text of a
    // message, else the first. (All bytes of a character but its last cover nothing.)
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
    if (added[token] || special[token]) {
        return piece.text;
    }
    const ByteBpe *bpe = std::get_if<ByteBpe>(&encoder);
    return bpe != nullptr ? bpe->bytes(piece.text)
                          : std::get<SentencepieceEncoder>(encoder).bytes(piece.text);
}

void Tokenizer::Parts::encode(const std::string &text, bool prefix, const Watch &watch,
                              std::vector<TextToken> &out) const {
    watch.look(0, 0);
    if (const ByteBpe *bpe = std::get_if<ByteBpe>(&encoder)) {
        bpe->encode(text, watch, out);
    } else {
        std::get<SentencepieceEncoder>(encoder).encode(text, prefix, out);
    }
}

Tokenizer::Tokenizer() : parts_(std::make_unique<Parts>()) {}
Tokenizer::~Tokenizer() = default;

uint64_t Tokenizer::tokens_min(uint64_t size_bytes) const {
    const uint64_t each = parts_->token_bytes_max;
    return each == 0 ? 0 : size_bytes / each + (size_bytes % each != 0 ? 1 : 0);
}

std::vector<SourcedToken> Tokenizer::encode(std::span<const Segment> segments,
                                            const Watch &watch) const {
    std::vector<SourcedToken> out;
    Stretch stretch;
    bool prefix = false; // the next stretch begins a text
    std::vector<TextToken> plain;

    // Encodes the stretch so far, and assigns each token to a segment.
    const auto flush = [&] {
        if (!stretch.text.empty()) {
            plain.clear();
            parts_->encode(stretch.text, prefix, watch, plain);
            for (const TextToken &token : plain) {
                const uint32_t segment = stretch.owner(segments, token.begin, token.end);
                out.push_back({token.token, segments[segment].source, segment});
            }
            stretch = {};
            prefix = false;
        }
    };

    // Neighbouring segments share a stretch until a special token or a new text separates them.
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
        // Markers in the segment become tokens; the text between them joins the stretch.
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

std::string Tokenizer::guarded(std::string_view text, std::string_view mark) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const Markers::Match match = parts_->all.longest(text, at);
        if (match.size_bytes == 0 || !parts_->special[match.token]) {
            out += text[at++];
            continue;
        }
        size_t first = 1; // bytes of the first character
        while (first < match.size_bytes &&
               (static_cast<uint8_t>(text[at + first]) & 0xC0) == 0x80) {
            ++first;
        }
        out.append(text, at, first).append(mark).append(text, at + first, match.size_bytes - first);
        at += match.size_bytes;
    }
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
const std::string &Tokenizer::piece(uint32_t token) const {
    return parts_->pieces[parts_->check(token)].text;
}
bool Tokenizer::is_special(uint32_t token) const {
    return parts_->special[parts_->check(token)];
}
PieceKind Tokenizer::kind(uint32_t token) const {
    const Piece &piece = parts_->pieces[parts_->check(token)];
    if (piece.text.empty()) {
        return PieceKind::unused;
    }
    if (parts_->special[token]) {
        return piece.kind == PieceKind::unknown ? PieceKind::unknown : PieceKind::control;
    }
    return piece.kind == PieceKind::user_defined || piece.kind == PieceKind::control
               ? PieceKind::normal
               : piece.kind;
}
std::optional<float> Tokenizer::score(uint32_t token) const {
    parts_->check(token);
    const bool scored = token < parts_->scores.size() && std::isfinite(parts_->scores[token]);
    return scored ? std::optional(parts_->scores[token]) : std::nullopt;
}
uint32_t Tokenizer::size() const {
    return static_cast<uint32_t>(parts_->pieces.size());
}
int64_t Tokenizer::bos() const {
    return parts_->bos;
}
const TextFrame &Tokenizer::frame() const {
    return parts_->frame;
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
