// Choosing texts by token; see texts.h.
#include "format/texts.h"

#include <algorithm>
#include <utility>

#include "format/error.h"

namespace stasis::format {

namespace {

constexpr uint32_t kAbsent = UINT32_MAX; // no such token in the table
constexpr uint32_t kNoText = UINT32_MAX - 1;
constexpr uint32_t kHeld = UINT32_MAX - 2; // its text is in the list already

// A number for each of some tokens: open addressing in one block of memory, whatever the tokens'
// numbers are. Every save and load walks over the whole log, so it has to be quick.
class TokenTable {
  public:
    explicit TokenTable(size_t most) {
        size_t places = 2;
        while (places < 2 * most) {
            places *= 2;
        }
        places_.resize(places, {0, kAbsent});
    }
    // The token's number, to be read and set; one that is not there yet becomes kNoText.
    uint32_t &operator[](uint32_t token) {
        auto &place = places_[find(token)];
        if (place.second == kAbsent) {
            place = {token, kNoText};
        }
        return place.second;
    }
    uint32_t at(uint32_t token) const { return places_[find(token)].second; }

  private:
    size_t find(uint32_t token) const {
        const size_t mask = places_.size() - 1;
        size_t at = (token * 0x9E3779B97F4A7C15ULL >> 32) & mask; // multiplicative hashing
        while (places_[at].second != kAbsent && places_[at].first != token) {
            at = (at + 1) & mask;
        }
        return at;
    }

    std::vector<std::pair<uint32_t, uint32_t>> places_; // token, number
};

} // namespace

TokenTexts texts_of_log(const TokenTexts &texts, const std::vector<TokenEntry> &log,
                        uint32_t vocabulary) {
    TokenTable table(log.size() + texts.size());
    for (const auto &[token, text] : texts) {
        if (token >= vocabulary || std::exchange(table[token], kHeld) == kHeld) {
            fail(Status::corrupt, "token texts: token %u is there twice or out of range", token);
        }
    }
    for (const TokenEntry &entry : log) {
        table[entry.token] = kNoText; // of those that are held, the rest is not in the log
    }
    std::vector<std::pair<uint32_t, uint32_t>> places; // token, place: cheaper to sort than texts
    for (uint32_t i = 0; i < texts.size(); ++i) {
        if (table.at(texts[i].first) == kNoText) {
            places.emplace_back(texts[i].first, i);
        }
    }
    std::sort(places.begin(), places.end());
    TokenTexts chosen;
    chosen.reserve(places.size());
    for (const auto &[token, place] : places) {
        chosen.push_back(texts[place]);
    }
    return chosen;
}

TokenTexts continued_texts(std::span<const TokenTexts::value_type> old, const TokenTexts &wanted,
                           const std::vector<TokenEntry> &log) {
    TokenTable table(log.size() + wanted.size()); // places in `wanted`
    for (const TokenEntry &entry : log) {
        table[entry.token] = kNoText;
    }
    for (uint32_t i = 0; i < wanted.size(); ++i) {
        table[wanted[i].first] = i;
    }
    TokenTexts texts(old.begin(), old.end());
    for (const auto &[token, text] : old) {
        const uint32_t place = table.at(token);
        if (place == kAbsent) {
            continue; // of a token that is no longer in the log
        }
        if (place == kNoText ? !text.empty() : wanted[place].second != text) {
            return continued_texts({}, wanted, log);
        }
        table[token] = kHeld;
    }
    for (const TokenEntry &entry : log) {
        const uint32_t place = table.at(entry.token);
        if (place < wanted.size()) {
            texts.push_back(wanted[place]);
            table[entry.token] = kHeld;
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
