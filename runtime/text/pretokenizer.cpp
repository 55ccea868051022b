// See pretokenizer.h. PCRE2 (pcre2api(3)) with UTF and Unicode properties, compiled to machine code
// where the system allows it.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/text/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

#include "format/error.h"

namespace stasis {

struct Pretokenizer::Pattern {
    std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};
};

namespace {

constexpr size_t kPatternMax = 16 << 10; // bytes
// Steps of a search. A search may look at all that is left of a text several times over, as `\s+`
// with no end in sight does, but not at each pair of its places.
constexpr uint64_t kStepsMin = 1 << 16, kStepsForByte = 64;
constexpr uint32_t kHeapMaxKib = 64 << 10;

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

// White_Space of the Unicode Standard (PropList.txt), as the inside of a class.
constexpr char kSpaces[] = R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028})"
                           R"(\x{2029}\x{202F}\x{205F}\x{3000})";

// The pattern with \s and \S spelled out: the published tokenizers' libraries mean White_Space by
// them, PCRE2 also U+180E, which has not been one since Unicode 6.3.
std::string with_spaces(const std::string &pattern) {
    std::string out;
    bool in_class = false;
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
        if (c == '\\' && next != '\0') {
            ++i;
            if (next == 's') {
                out += in_class ? kSpaces : std::string("[") + kSpaces + "]";
            } else if (next == 'S' && !in_class) {
                out += std::string("[^") + kSpaces + "]";
            } else {
                out += {c, next};
            }
            continue;
        }
        out += c;
        if (c == '[' && !in_class) {
            in_class = true;
            if (next == '^') {
                out += pattern[++i];
            }
            if (i + 1 < pattern.size() && pattern[i + 1] == ']') { // literal where it comes first
                out += pattern[++i];
            }
        } else if (c == ']') {
            in_class = false;
        }
    }
    return out;
}

} // namespace

Pretokenizer::Pretokenizer(Pretokenizer &&) noexcept = default;
Pretokenizer &Pretokenizer::operator=(Pretokenizer &&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Pretokenizer::Pretokenizer(const std::vector<std::string> &patterns, const std::string &from)
    : texts_(patterns) {
    for (const std::string &text : patterns) {
        const std::string pattern = with_spaces(text);
        int error = 0;
        size_t offset = 0;
        if (pattern.size() <= kPatternMax) {
            patterns_.emplace_back().code.reset(pcre2_compile(
                pointer(pattern), pattern.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                &error, &offset, nullptr));
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
        // May fail where no memory can be made executable; matching then interprets.
        pcre2_jit_compile(patterns_.back().code.get(), PCRE2_JIT_COMPLETE);
    }
}

// What a search writes to, and its limits: for one pattern, of one thread.
struct Pretokenizer::Search {
    MatchContext context{pcre2_match_context_create(nullptr), pcre2_match_context_free};
    MatchData match{nullptr, pcre2_match_data_free};

    explicit Search(const pcre2_code *code) {
        match.reset(pcre2_match_data_create_from_pattern(code, nullptr));
        if (context == nullptr || match == nullptr) {
            throw std::bad_alloc();
        }
        pcre2_set_heap_limit(context.get(), kHeapMaxKib);
    }
};

void Pretokenizer::split_piece(const Pattern &pattern, const Search &search, std::string_view piece,
                               std::vector<std::string_view> &out) {
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(search.match.get());
    for (size_t at = 0; at < piece.size();) {
        const uint64_t steps = kStepsMin + kStepsForByte * (piece.size() - at);
        pcre2_set_match_limit(search.context.get(),
                              static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
        const auto attempt = [&](uint32_t options) {
            return pcre2_match(pattern.code.get(), pointer(piece), piece.size(), at, options,
                               search.match.get(), search.context.get());
        };
        int result = attempt(PCRE2_NO_UTF_CHECK); // the caller has checked it
        if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
            result = attempt(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
        }
        if (result == PCRE2_ERROR_NOMATCH) {
            out.push_back(piece.substr(at));
            return;
        }
        if (result == PCRE2_ERROR_NOMEMORY) {
            throw std::bad_alloc();
        }
        if (result < 0 || found[0] < at || found[1] <= found[0]) { // \K can turn a match round
            fail(Status::unsupported, "a pattern of the tokenizer fails on this text: %s",
                 result < 0 ? message_of(result).c_str() : "its match has no size");
        }
        if (found[0] > at) {
            out.push_back(piece.substr(at, found[0] - at));
        }
        out.push_back(piece.substr(found[0], found[1] - found[0]));
        at = found[1];
    }
}

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
    std::vector<std::string_view> pieces = {text};
    for (const Pattern &pattern : patterns_) {
        const Search search(pattern.code.get());
        std::vector<std::string_view> next;
        for (const std::string_view piece : pieces) {
            split_piece(pattern, search, piece, next);
        }
        pieces = std::move(next);
    }
    return pieces;
}

const std::vector<std::string> &Pretokenizer::patterns() const {
    return texts_;
}

} // namespace stasis
