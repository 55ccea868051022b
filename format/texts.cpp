// Choosing texts by token; see texts.h.
#include "format/texts.h"

#include <algorithm>
#include <utility>

#include "format/state/error.h"

namespace stasis::format {

namespace {

using Use = std::pair<uint32_t, uint64_t>; // a token, and its first position in a log

// Returns the tokens of a log, ascending. Sorted rather than hashed, so that no forged choice of
// tokens takes more time than another.
std::vector<Use> first_uses(const std::vector<TokenEntry> &log) {
    std::vector<Use> uses;
    uses.reserve(log.size());
    for (uint64_t i = 0; i < log.size(); ++i) {
        uses.emplace_back(log[i].token, i);
    }
    std::sort(uses.begin(), uses.end());
    const auto same = [](const Use &a, const Use &b) { return a.first == b.first; };
    uses.erase(std::unique(uses.begin(), uses.end(), same), uses.end());
    return uses;
}

// Returns a token's entry in a list that ascends by token; null if it has none.
template <typename List> auto find_token(const List &list, uint32_t token) {
    const auto found =
        std::lower_bound(list.begin(), list.end(), token,
                         [](const auto &entry, uint32_t wanted) { return entry.first < wanted; });
    return found != list.end() && found->first == token ? &*found : nullptr;
}

} // namespace

TokenTexts texts_of_log(const TokenTexts &texts, const std::vector<TokenEntry> &log,
                        uint32_t vocabulary) {
    // Sort the file's list, to find tokens that are listed twice.
    std::vector<const TokenTexts::value_type *> ascending;
    ascending.reserve(texts.size());
    for (const auto &text : texts) {
        ascending.push_back(&text);
    }
    std::sort(ascending.begin(), ascending.end(),
              [](const auto *a, const auto *b) { return a->first < b->first; });

    const std::vector<Use> uses = first_uses(log);
    TokenTexts chosen;
    for (size_t i = 0; i < ascending.size(); ++i) {
        const uint32_t token = ascending[i]->first;
        if (token >= vocabulary || (i > 0 && token == ascending[i - 1]->first)) {
            fail(Status::corrupt, "token texts: token %u is there twice or out of range", token);
        }
        if (find_token(uses, token) != nullptr) {
            chosen.push_back(*ascending[i]);
        }
    }
    return chosen;
}

TokenTexts continued_texts(std::span<const TokenTexts::value_type> old, const TokenTexts &wanted,
                           const std::vector<TokenEntry> &log) {
    const std::vector<Use> uses = first_uses(log);
    // Compare the file's texts with the wanted ones; a different text makes the list begin anew.
    std::vector<bool> held(wanted.size()); // [index in `wanted`] whether the list has it
    TokenTexts texts(old.begin(), old.end());
    for (const auto &[token, text] : old) {
        const auto *want = find_token(wanted, token);
        const bool other = want != nullptr ? want->second != text
                                           : !text.empty() && find_token(uses, token) != nullptr;
        if (other) {
            return continued_texts({}, wanted, log);
        }
        if (want != nullptr) {
            held[static_cast<size_t>(want - wanted.data())] = true;
        }
    }

    // Append what is missing in the order of the log, so that equal logs give equal lists.
    std::vector<std::pair<uint64_t, size_t>> missing; // first position, place in `wanted`
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (const Use *use = find_token(uses, wanted[i].first); use != nullptr && !held[i]) {
            missing.emplace_back(use->second, i);
        }
    }
    std::sort(missing.begin(), missing.end());
    for (const auto &[position, i] : missing) {
        texts.push_back(wanted[i]);
    }
    return texts;
}

const std::string &token_text(const TokenTexts &texts, uint32_t token) {
    static const std::string none;
    const auto *found = find_token(texts, token);
    return found != nullptr ? found->second : none;
}

} // namespace stasis::format
