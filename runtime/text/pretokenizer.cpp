// Cuts text with PCRE2 (pcre2api(3)); see pretokenizer.h. Patterns use UTF and Unicode properties,
// and are compiled to machine code if the system allows it.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

#include "format/state/error.h"

namespace stasis {

struct Pretokenizer::Pattern {
    std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};
};

namespace {

constexpr size_t kPatternMax = 16 << 10; // bytes
constexpr uint32_t kHeapMaxKib = 64 << 10;
// A search begins at up to kPlaces positions. It may read up to kReach bytes past the last of them,
// and take up to kSteps steps. A search that needs more is repeated with more.
constexpr size_t kPlaces = 4, kReach = 64, kSteps = 256, kGrowth = 4;
// The total cost of all searches of one pattern in a text: positions times the bytes they may read,
// and steps beyond kSteps. Published patterns stay below a quarter of it on any text.
constexpr uint64_t kBudgetMin = 1 << 20, kBudgetForByte = 512;

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

std::string message_of(int code) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char *>(text);
}

PCRE2_SPTR pointer(std::string_view text) {
    return reinterpret_cast<PCRE2_SPTR>(text.data());
}

// White_Space of the Unicode Standard (PropList.txt), as the contents of a class.
constexpr char kSpaces[] = R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028})"
                           R"(\x{2029}\x{202F}\x{205F}\x{3000})";

// Reports whether some group's options, as in (?im) and (?m:, include m.
bool sets_multiline(const std::string &pattern) {
    for (size_t at = 0; (at = pattern.find("(?", at)) != std::string::npos;) {
        at += 2;
        const size_t end = pattern.find_first_not_of("aimnsxJU^-", at);
        if (pattern.substr(at, end - at).find('m') != std::string::npos) {
            return true;
        }
    }
    return false;
}

// Rewrites \s and \S as classes: in the published tokenizers' libraries they mean White_Space, but
// in PCRE2 also U+180E, which Unicode removed in 6.3. Rewrites $ and \Z as well, unless lines have
// ends of their own: before a line end at the end of its input, PCRE2 considers them true without
// asking whether more input follows.
std::string spelled_out(const std::string &pattern) {
    static constexpr char kEnd[] = R"((?=\n?\z))";
    const bool ends = !sets_multiline(pattern);
    std::string out;
    bool in_class = false;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        if (c == '\\' && next != '\0') {
            ++i;
            if (next == 's') {
                out += in_class ? kSpaces : std::string("[") + kSpaces + "]";
            } else if (next == 'Z' && !in_class) {
                out += kEnd;
            } else if (next == 'S' && !in_class) {
                out += std::string("[^") + kSpaces + "]";
            } else {
                out += {c, next};
            }
            continue;
        }
        if (c == '$' && !in_class && ends) {
            out += kEnd;
            continue;
        }
        out += c;
        if (c == '[' && !in_class) {
            in_class = true;
            if (next == '^') {
                out += pattern[++i];
            }
            // ] is literal at the beginning of a class.
            if (i + 1 < pattern.size() && pattern[i + 1] == ']') {
                out += pattern[++i];
            }
        } else if (c == ']') {
            in_class = false;
        }
    }
    return out;
}

// Returns `at`, or the end of the character that `at` is inside of; at most the text's end.
size_t whole_characters(std::string_view text, size_t at) {
    while (at < text.size() && (text[at] & 0xC0) == 0x80) {
        ++at;
    }
    return std::min(at, text.size());
}

// Returns the begin of the character that contains byte `at`; at least `least`.
size_t character_at(std::string_view text, size_t least, size_t at) {
    while (at > least && (text[at] & 0xC0) == 0x80) {
        --at;
    }
    return std::max(at, least);
}

} // namespace

Pretokenizer::Pretokenizer(Pretokenizer &&) noexcept = default;
Pretokenizer &Pretokenizer::operator=(Pretokenizer &&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Pretokenizer::Pretokenizer(const std::vector<std::string> &patterns, const std::string &from)
    : texts_(patterns) {
    for (const std::string &text : patterns) {
        const std::string pattern = spelled_out(text);
        int error = 0;
        size_t offset = 0;
        if (pattern.size() <= kPatternMax) {
            patterns_.emplace_back().code.reset(pcre2_compile(
                pointer(pattern), pattern.size(),
                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error,
                &offset, nullptr));
        }
        if (error == PCRE2_ERROR_HEAP_FAILED) {
            throw std::bad_alloc();
        }
        if (pattern.size() > kPatternMax || patterns_.back().code == nullptr) {
            fail(Status::unsupported, "%s: the pattern '%.60s' cannot be used: %s", from.c_str(),
                 text.c_str(), error == 0 ? "it is too long" : message_of(error).c_str());
        }
        const pcre2_code *code = patterns_.back().code.get();
        uint32_t may_be_empty = 0;
        pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
        if (may_be_empty != 0) {
            fail(Status::unsupported, "%s: the pattern '%.60s' may match nothing at all",
                 from.c_str(), text.c_str());
        }
        // This fails if no memory can be made executable; matching then interprets the pattern.
        pcre2_jit_compile(patterns_.back().code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    }
}

// The searches for one pattern in one text: their memory, and their remaining cost.
struct Pretokenizer::Search {
    const Pattern &pattern;
    const std::string &spelling;
    const Watch &watch;
    uint64_t budget;
    MatchContext context{pcre2_match_context_create(nullptr), pcre2_match_context_free};
    MatchData match{pcre2_match_data_create_from_pattern(pattern.code.get(), nullptr),
                    pcre2_match_data_free};

    Search(const Pattern &pattern_, const std::string &spelling_, const Watch &watch_,
           size_t size_bytes)
        : pattern(pattern_), spelling(spelling_), watch(watch_),
          budget(kBudgetMin + kBudgetForByte * size_bytes) {
        if (context == nullptr || match == nullptr) {
            throw std::bad_alloc();
        }
        pcre2_set_heap_limit(context.get(), kHeapMaxKib);
    }

    // Spends cost, and looks for a request to cancel.
    void charge(uint64_t cost) {
        if (cost > budget) {
            fail(Status::unsupported,
                 "the tokenizer's pattern '%.60s' takes too many steps on this text",
                 spelling.c_str());
        }
        budget -= cost;
        watch.look(0, 0);
    }

    // Calls the library once, on the first `end` bytes of the piece.
    int attempt(std::string_view piece, size_t at, size_t end) {
        const auto run = [&](uint32_t options) { // the caller has checked the UTF-8
            return pcre2_match(pattern.code.get(), pointer(piece), end, at,
                               options | PCRE2_NO_UTF_CHECK |
                                   (end < piece.size() ? PCRE2_PARTIAL_HARD : 0),
                               match.get(), context.get());
        };
        const int result = run(0);
        return result == PCRE2_ERROR_JIT_STACKLIMIT ? run(PCRE2_NO_JIT) : result;
    }

    // Returns the begin and end of the first match in the piece from `at` on, or the piece's end
    // twice if there is none. The library gets a part of the piece at a time and reports if it
    // needs more. So the cost of a search is bounded, which the library's own limits do not ensure:
    // they do not count the text that a repetition passes over, and restart at each position where
    // a match may begin.
    std::pair<size_t, size_t> next(std::string_view piece, size_t at) {
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match.get());
        size_t places = kPlaces, reach = kReach;
        for (uint64_t steps = kSteps; at < piece.size();) {
            // The last byte of a character, because the library's machine code stops after it.
            const size_t last = whole_characters(piece, at + places) - 1;
            const size_t end = whole_characters(piece, last + reach);
            charge(places * reach + (steps > kSteps ? places * steps : 0));
            pcre2_set_offset_limit(context.get(), last);
            pcre2_set_match_limit(context.get(),
                                  static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
            const int result = attempt(piece, at, end);
            if (result == PCRE2_ERROR_NOMATCH) { // no match at any of the positions
                at = last + 1;
                places = kPlaces, reach = kReach, steps = kSteps;
            } else if (result == PCRE2_ERROR_PARTIAL) {
                // The first position that needs more input, or a byte of the character before it
                // that it read.
                at = character_at(piece, at, found[0]);
                places = 1, reach *= kGrowth;
            } else if (result == PCRE2_ERROR_MATCHLIMIT) {
                steps *= kGrowth;
            } else if (result == PCRE2_ERROR_NOMEMORY) {
                throw std::bad_alloc();
                // \K can move the begin of a match past its end.
            } else if (result < 0 || found[0] < at || found[1] <= found[0]) {
                fail(Status::unsupported, "the tokenizer's pattern '%.60s' fails on this text: %s",
                     spelling.c_str(),
                     result < 0 ? message_of(result).c_str() : "its match has no size");
            } else {
                return {found[0], found[1]};
            }
        }
        return {piece.size(), piece.size()};
    }

    void split(std::string_view piece, std::vector<std::string_view> &out) {
        // Matches and the text between them are pieces alike.
        for (size_t at = 0; at < piece.size();) {
            const auto [begin, end] = next(piece, at);
            if (begin > at) {
                out.push_back(piece.substr(at, begin - at));
            }
            if (end > begin) {
                out.push_back(piece.substr(begin, end - begin));
            }
            at = end;
        }
    }
};

std::vector<std::string_view> Pretokenizer::split(std::string_view text, const Watch &watch) const {
    std::vector<std::string_view> pieces = {text};
    for (size_t i = 0; i < patterns_.size(); ++i) {
        Search search(patterns_[i], texts_[i], watch, text.size());
        std::vector<std::string_view> next;
        for (const std::string_view piece : pieces) {
            search.split(piece, next);
        }
        pieces = std::move(next);
    }
    return pieces;
}

const std::vector<std::string> &Pretokenizer::patterns() const {
    return texts_;
}

} // namespace stasis
