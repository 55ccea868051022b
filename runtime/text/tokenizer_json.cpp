// Reads tokenizer.json; see tokenizer_json.h. Names and meanings: the serialised forms in
// huggingface/tokenizers (tokenizers/src/pre_tokenizers, models/bpe, normalizers). Truncation and
// padding are not read. The post-processor gives the frame of a text, because tokenizing adds only
// tokens that were requested.
#include "runtime/text/tokenizer_json.h"

#include <algorithm>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/model/json_file.h"
#include "runtime/text/sentencepiece_model.h"

namespace stasis {

namespace {

constexpr size_t kFileMax = 256 << 20;

// A part of the file, and its name for messages.
struct Part {
    const Json &json;
    const std::string &file;
    std::string name;

    [[noreturn]] void corrupt(const std::string &what) const {
        fail(Status::corrupt, "%s: %s%s%s", file.c_str(), name.c_str(), name.empty() ? "" : " ",
             what.c_str());
    }
    [[noreturn]] void unsupported(const std::string &what) const {
        fail(Status::unsupported, "%s: %s %.100s is not supported", file.c_str(), name.c_str(),
             what.c_str());
    }
    // Returns a member; null and absence are the same.
    const Json *find(const char *key) const { return json.find_value(key); }
    [[noreturn]] void lacks(const char *key, const char *type) const {
        corrupt(std::string("lacks \"") + key + "\" as " + type);
    }
    Part object(const char *key) const {
        const Json *found = find(key);
        if (found == nullptr || found->object() == nullptr) {
            lacks(key, "object");
        }
        return {*found, file, name_of(key)};
    }
    Part array(const char *key) const {
        const Json *found = find(key);
        if (found == nullptr || found->array() == nullptr) {
            lacks(key, "array");
        }
        return {*found, file, name_of(key)};
    }
    const std::string &text(const char *key) const {
        const Json *found = find(key);
        if (found == nullptr || found->text() == nullptr) {
            lacks(key, "string");
        }
        return *found->text();
    }
    bool flag(const char *key, bool otherwise) const {
        const Json *found = find(key);
        if (found != nullptr && found->boolean() == nullptr) {
            corrupt(std::string("has a \"") + key + "\" that is no boolean");
        }
        return found != nullptr ? *found->boolean() : otherwise;
    }
    void refuse_flag(const char *key, bool otherwise) const {
        if (flag(key, otherwise)) {
            unsupported(std::string("with \"") + key + "\"");
        }
    }
    uint32_t id(const Json &value, uint32_t vocabulary) const {
        const uint64_t *id = value.count();
        if (id == nullptr || *id >= vocabulary) {
            fail(Status::unsupported, "%s: %s gives a token the id %s; the model has %u tokens",
                 file.c_str(), name.c_str(), shown(value).c_str(), vocabulary);
        }
        return static_cast<uint32_t>(*id);
    }

  private:
    std::string name_of(const char *key) const { return name.empty() ? key : name + "." + key; }
};

// Returns the part itself, or the parts of a "Sequence" under `key`.
std::vector<Part> parts_of(const Part &part, const char *key) {
    if (part.json.object() == nullptr) {
        part.corrupt("is no object");
    }
    if (part.text("type") != "Sequence") {
        return {part};
    }
    std::vector<Part> out;
    const Part list = part.array(key);
    for (const Json &entry : *list.json.array()) {
        out.push_back({entry, part.file, list.name + "[" + std::to_string(out.size()) + "]"});
        if (entry.object() == nullptr) {
            out.back().corrupt("is no object");
        }
    }
    return out;
}

bool read_normalizer(const Part &root) {
    bool compose = false;
    if (const Json *found = root.find("normalizer")) {
        for (const Part &part : parts_of({*found, root.file, "normalizer"}, "normalizers")) {
            if (part.text("type") != "NFC") {
                part.unsupported(part.text("type"));
            }
            compose = true;
        }
    }
    return compose;
}

// Returns a pattern that matches the text itself.
std::string literal(const std::string &text) {
    std::string out;
    for (const char c : text) {
        const bool plain = (c & 0x80) != 0 || std::isalnum(static_cast<unsigned char>(c)) != 0;
        out += plain ? std::string(1, c) : std::string{'\\', c};
    }
    return out;
}

std::string split_pattern(const Part &split) {
    const Part pattern = split.object("pattern");
    if (split.text("behavior") != "Isolated") {
        split.unsupported("Split with behavior \"" + split.text("behavior") + "\"");
    }
    split.refuse_flag("invert", false);
    return pattern.find("Regex") != nullptr ? pattern.text("Regex")
                                            : literal(pattern.text("String"));
}

// Reads the patterns. The last must be ByteLevel, which spells bytes and may cut once more.
std::vector<std::string> read_patterns(const Part &root) {
    std::vector<std::string> patterns;
    const Part whole = root.object("pre_tokenizer");
    bool byte_level = false;
    for (const Part &part : parts_of(whole, "pretokenizers")) {
        const std::string &type = part.text("type");
        if (byte_level) {
            part.unsupported(type + " behind ByteLevel");
        }
        if (type == "ByteLevel") {
            part.refuse_flag("add_prefix_space", true);
            if (part.flag("use_regex", true)) {
                patterns.emplace_back(kGpt2Pattern);
            }
            byte_level = true;
        } else if (type == "Split") {
            patterns.push_back(split_pattern(part));
        } else if (type == "Digits") {
            patterns.emplace_back(part.flag("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
        } else {
            part.unsupported(type);
        }
    }
    if (!byte_level) {
        whole.unsupported("without ByteLevel");
    }
    return patterns;
}

std::vector<Piece> read_vocabulary(const Part &model, uint32_t vocabulary) {
    const Part vocab = model.object("vocab");
    uint32_t size = 0;
    for (const auto &[text, id] : *vocab.json.object()) {
        size = std::max(size, vocab.id(id, vocabulary) + 1);
    }
    std::vector<Piece> pieces(size, Piece{"", PieceKind::unused});
    for (const auto &[text, id] : *vocab.json.object()) {
        Piece &piece = pieces[*id.count()];
        if (text.empty() || !piece.text.empty()) {
            vocab.corrupt("has an empty token, or two of the id " + shown(id));
        }
        piece = {text, PieceKind::normal};
    }
    return pieces;
}

// Reads "left right", or since tokenizers 0.20 ["left", "right"].
std::pair<std::string, std::string> read_merge(const Json &entry, const Part &merges) {
    const Json::Array *two = entry.array();
    if (two != nullptr && two->size() == 2 && (*two)[0].text() != nullptr &&
        (*two)[1].text() != nullptr) {
        return {*(*two)[0].text(), *(*two)[1].text()};
    }
    const std::string text = entry.text() != nullptr ? *entry.text() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        merges.corrupt("has an entry that is not two tokens");
    }
    return {text.substr(0, space), text.substr(space + 1)};
}

// Checks that spaces are spelled U+2581 and that the text is cut nowhere: it may be cut at spaces,
// of which the normalizer leaves none.
void check_characters(const Part &root) {
    static constexpr char kSpace[] = " ", kSpelled[] = "\u2581";
    if (root.find("normalizer") == nullptr) {
        root.object("model").unsupported("with \"byte_fallback\" and no normalizer");
    }
    const Part normalizer = root.object("normalizer");
    const std::vector<Part> parts = parts_of(normalizer, "normalizers");
    // A pattern that is a regular expression is another one.
    const auto is_space = [](const Part &part) {
        const Json *text = part.object("pattern").find("String");
        return text != nullptr && text->text() != nullptr && *text->text() == kSpace;
    };
    if (parts.size() != 1 || parts[0].text("type") != "Replace" || !is_space(parts[0]) ||
        parts[0].text("content") != kSpelled) {
        normalizer.unsupported("that does anything but spell spaces U+2581, with byte_fallback,");
    }
    if (root.find("pre_tokenizer") == nullptr) {
        return;
    }
    const Part whole = root.object("pre_tokenizer");
    for (const Part &part : parts_of(whole, "pretokenizers")) {
        if (part.text("type") != "Split" || !is_space(part)) {
            part.unsupported(part.text("type") + ", with byte_fallback,");
        }
    }
}

void mark_bytes(std::vector<Piece> &pieces) {
    for (Piece &piece : pieces) {
        if (spells_byte(piece.text)) {
            piece.kind = PieceKind::byte;
        }
    }
}

ByteBpeModel read_model(const Part &root, uint32_t vocabulary) {
    const Part model = root.object("model");
    // Old files (GPT-2's) have no type.
    const std::string type = model.find("type") == nullptr ? "BPE" : model.text("type");
    if (type != "BPE") {
        model.unsupported("of type " + type);
    }
    for (const char *key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
        const Json *found = model.find(key);
        if (found != nullptr && *found != Json{std::string()} && *found != Json{0.0}) {
            model.unsupported(std::string("with \"") + key + "\"");
        }
    }
    // The parts that determine how text is cut and merged.
    ByteBpeModel out;
    out.ignore_merges = model.flag("ignore_merges", false);
    out.characters = model.flag("byte_fallback", false);
    out.pieces = read_vocabulary(model, vocabulary);
    if (out.characters) {
        model.refuse_flag("ignore_merges", false);
        check_characters(root);
        mark_bytes(out.pieces);
    } else {
        out.compose = read_normalizer(root);
        out.patterns = read_patterns(root);
    }
    const Part merges = model.array("merges");
    out.merges.reserve(merges.json.array()->size());
    for (const Json &entry : *merges.json.array()) {
        out.merges.push_back(read_merge(entry, merges));
    }
    return out;
}

std::vector<AddedToken> read_added(const Part &root, uint32_t vocabulary) {
    std::vector<AddedToken> added;
    if (root.find("added_tokens") == nullptr) {
        return added;
    }
    const Part list = root.array("added_tokens");
    for (const Json &entry : *list.json.array()) {
        const Part token{entry, root.file, "added_tokens[" + std::to_string(added.size()) + "]"};
        const Json *id = entry.find("id");
        if (id == nullptr || token.text("content").empty()) {
            token.corrupt("has no id or no content");
        }
        for (const char *key : {"single_word", "lstrip", "rstrip"}) {
            token.refuse_flag(key, false);
        }
        added.push_back(
            {token.id(*id, vocabulary), token.text("content"), token.flag("special", false)});
    }
    // Sorted tokens make an id given twice visible.
    std::sort(added.begin(), added.end(),
              [](const AddedToken &a, const AddedToken &b) { return a.token < b.token; });
    const auto twice = std::adjacent_find(
        added.begin(), added.end(),
        [](const AddedToken &a, const AddedToken &b) { return a.token == b.token; });
    if (twice != added.end()) {
        list.corrupt("has two of the id " + std::to_string(twice->token));
    }
    return added;
}

} // namespace

TokenizerJson read_tokenizer_json(const ModelFolder &folder, const std::string &name,
                                  uint32_t vocabulary) {
    const std::string path = folder.shown(name);
    const Json json = parse_json(folder.text(name, kFileMax), path);
    const Part root{json, path, ""};
    return {read_model(root, vocabulary), read_added(root, vocabulary),
            read_text_frame(json, path, vocabulary)};
}

void merge_added(std::vector<AddedToken> &added, const std::vector<AddedToken> &more) {
    const auto by_token = [](const AddedToken &a, const AddedToken &b) {
        return a.token < b.token;
    };
    const size_t own = added.size();
    for (const AddedToken &token : more) {
        const auto end = added.begin() + static_cast<std::ptrdiff_t>(own);
        if (!std::binary_search(added.begin(), end, token, by_token)) {
            added.push_back(token);
        }
    }
    std::sort(added.begin(), added.end(), by_token);
}

} // namespace stasis
