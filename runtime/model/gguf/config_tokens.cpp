// Reads the tokens that begin a text and end a reply from a GGUF file (config_keys.h).
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "format/state/error.h"
#include "runtime/model/gguf/config_keys.h"

namespace stasis {

namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens", kTypes[] = "tokenizer.ggml.token_type";

// Returns the ids under those of the keys that exist, each once.
std::vector<uint32_t> ids_of(const GgufFile &file, std::initializer_list<const char *> keys,
                             uint32_t vocabulary) {
    std::vector<uint32_t> ids;
    for (const char *key : keys) {
        const std::optional<uint64_t> id = file.integer(key);
        if (id && *id >= vocabulary) {
            fail(Status::corrupt, "%s: metadata %s is %llu; the vocabulary has %u tokens",
                 file.names[0].c_str(), key, static_cast<Number>(*id), vocabulary);
        }
        if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) {
            ids.push_back(static_cast<uint32_t>(*id));
        }
    }
    return ids;
}

// Returns the token that ends a turn in published chat models, found by its text. Files whose end
// of text is another token often do not name it (Google's files of Gemma 3, for example), and
// readers rely on its text.
std::optional<uint32_t> find_turn_end(const GgufFile &file) {
    constexpr std::string_view kSpellings[] = {"<|eot_id|>", "<|im_end|>", "<|end|>",
                                               "<end_of_turn>"};
    constexpr int64_t kControl = 3, kUserDefined = 4;
    const auto texts = file.texts(kTokens);
    const auto types = file.integers(kTypes);
    for (size_t id = 0; texts && types && id < std::min(texts->size(), types->size()); ++id) {
        const bool special = (*types)[id] == kControl || (*types)[id] == kUserDefined;
        if (special && std::find(std::begin(kSpellings), std::end(kSpellings), (*texts)[id]) !=
                           std::end(kSpellings)) {
            return static_cast<uint32_t>(id);
        }
    }
    return std::nullopt;
}

} // namespace

void read_token_ids(const GgufFile &file, Config &config) {
    constexpr char kTurnEnd[] = "tokenizer.ggml.eot_token_id";
    config.bos = ids_of(file, {"tokenizer.ggml.bos_token_id"}, config.vocabulary);
    config.end_tokens =
        ids_of(file, {"tokenizer.ggml.eos_token_id", kTurnEnd, "tokenizer.ggml.eom_token_id"},
               config.vocabulary);
    // The file names its end of turn, so the texts need no search.
    if (file.metadata.count(kTurnEnd) != 0) {
        return;
    }
    const std::optional<uint32_t> id = find_turn_end(file);
    std::vector<uint32_t> &ends = config.end_tokens;
    if (id && *id < config.vocabulary && std::find(ends.begin(), ends.end(), *id) == ends.end()) {
        ends.push_back(*id);
    }
}

} // namespace stasis
