// Choosing texts by token; see texts.h.
#include "format/texts.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "format/error.h"

namespace stasis::format {

TokenTexts texts_of_log(const TokenTexts &texts, const std::vector<TokenEntry> &log,
                        uint32_t vocabulary) {
    std::unordered_set<uint32_t> used;
    for (const TokenEntry &entry : log) {
        used.insert(entry.token);
    }
    std::vector<std::pair<uint32_t, size_t>> sorted; // token, place in the list
    sorted.reserve(texts.size());
    for (const auto &[token, text] : texts) {
        sorted.emplace_back(token, sorted.size());
    }
    std::sort(sorted.begin(), sorted.end());
    TokenTexts chosen;
    for (size_t i = 0; i < sorted.size(); ++i) {
        const auto [token, place] = sorted[i];
        if (token >= vocabulary || (i > 0 && token == sorted[i - 1].first)) {
            fail(Status::corrupt, "token texts: token %u is there twice or out of range", token);
        }
        if (used.count(token) != 0) {
            chosen.push_back(texts[place]);
        }
    }
    return chosen;
}

TokenTexts continued_texts(const TokenTexts &old, const TokenTexts &wanted,
                           const std::vector<TokenEntry> &log) {
    static const std::string none;
    std::unordered_map<uint32_t, const std::string *> left; // of each token of the log
    for (const TokenEntry &entry : log) {
        left.emplace(entry.token, &none);
    }
    for (const auto &[token, text] : wanted) {
        left[token] = &text;
    }
    TokenTexts texts = old;
    for (const auto &[token, text] : old) {
        const auto found = left.find(token);
        if (found != left.end() && *found->second != text) {
            return continued_texts({}, wanted, log);
        }
        if (found != left.end()) {
            left.erase(found);
        }
    }
    for (const TokenEntry &entry : log) {
        const auto found = left.find(entry.token);
        if (found != left.end()) {
            if (found->second != &none) {
                texts.emplace_back(entry.token, *found->second);
            }
            left.erase(found);
        }
    }
    return texts;
}

const std::string &token_text(const TokenTexts &texts, uint32_t token) {
    static const std::string none;
    const auto found =
        std::lower_bound(texts.begin(), texts.end(), token,
                         [](const auto &entry, uint32_t wanted) { return entry.first < wanted; });
    return found != texts.end() && found->first == token ? found->second : none;
}

} // namespace stasis::format
