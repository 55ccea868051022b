// Sets of characters and their spellings; see characters.h.
#include "runtime/constraint/characters.h"

#include <algorithm>
#include <cstdio>

#include "format/state/error.h"

namespace stasis::constraint {

namespace {

constexpr uint32_t kLast = 0x10FFFF, kSurrogates = 0xD800, kAfterSurrogates = 0xE000;

// Adds sequences of byte ranges that together match the UTF-8 of low to high, which have one length
// if `ends` of their bytes may differ freely.
void add_utf8(Grammar &grammar, uint32_t low, uint32_t high, std::vector<Part> &choices) {
    for (const uint32_t last : {0x7FU, 0x7FFU, 0xFFFFU}) { // of one, two and three bytes
        if (low <= last && high > last) {
            add_utf8(grammar, low, last, choices);
            return add_utf8(grammar, last + 1, high, choices);
        }
    }
    const size_t length = utf8(low).size();
    for (size_t i = 1; i < length; ++i) { // all of the last i bytes, or the same bytes before them
        const uint32_t mask = (1U << (6 * i)) - 1;
        if ((low & ~mask) == (high & ~mask)) {
            continue;
        }
        if ((low & mask) != 0) {
            add_utf8(grammar, low, low | mask, choices);
            return add_utf8(grammar, (low | mask) + 1, high, choices);
        }
        if ((high & mask) != mask) {
            add_utf8(grammar, low, (high & ~mask) - 1, choices);
            return add_utf8(grammar, high & ~mask, high, choices);
        }
    }
    const std::string first = utf8(low), last = utf8(high);
    std::vector<Part> parts;
    for (size_t i = 0; i < length; ++i) {
        parts.push_back(
            grammar.bytes(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])));
    }
    choices.push_back(grammar.sequence(std::move(parts)));
}

// Returns the one escape of each character of a set that JSON permits in no other way.
Part escapes(Grammar &grammar, const Characters &set) {
    std::vector<Part> choices, digits[2]; // after u000 and u001
    for (const Characters::Range &each : set.ranges) {
        for (uint32_t character = each.low; character <= each.high; ++character) {
            const std::string spelled = json_spelled(utf8(character));
            const auto last = static_cast<uint8_t>(spelled.back());
            (spelled.size() == 2 ? choices : digits[character >> 4U])
                .push_back(grammar.bytes(last, last));
        }
    }
    for (const char high : {'0', '1'}) {
        if (!digits[high - '0'].empty()) {
            choices.push_back(grammar.sequence({grammar.literal(std::string("u00") + high),
                                                grammar.choice(std::move(digits[high - '0']))}));
        }
    }
    return grammar.sequence({grammar.literal("\\"), grammar.choice(std::move(choices))});
}

} // namespace

void Characters::add(const Characters &other) {
    ranges.insert(ranges.end(), other.ranges.begin(), other.ranges.end());
}

Characters Characters::normal() const {
    std::vector<Range> sorted;
    for (const Range &each : ranges) {
        const uint32_t before = std::min(each.high, kSurrogates - 1);
        const uint32_t after = std::max(each.low, kAfterSurrogates);
        if (each.low <= before) {
            sorted.push_back({each.low, before});
        }
        if (after <= std::min(each.high, kLast)) {
            sorted.push_back({after, std::min(each.high, kLast)});
        }
    }
    std::sort(sorted.begin(), sorted.end(), [](const Range &left, const Range &right) {
        return left.low != right.low ? left.low < right.low : left.high < right.high;
    });
    Characters result;
    for (const Range &each : sorted) {
        if (!result.ranges.empty() && each.low <= result.ranges.back().high + 1) {
            result.ranges.back().high = std::max(result.ranges.back().high, each.high);
        } else {
            result.ranges.push_back(each);
        }
    }
    return result;
}

Characters Characters::complement() const {
    Characters result;
    uint32_t next = 0;
    for (const Range &each : normal().ranges) {
        if (each.low > next) {
            result.add(next, each.low - 1);
        }
        next = each.high + 1;
    }
    if (next <= kLast) {
        result.add(next, kLast);
    }
    return result.normal();
}

Characters Characters::intersection(const Characters &other) const {
    Characters outside = complement();
    outside.add(other.complement());
    return outside.complement();
}

Characters all_characters() {
    return Characters{}.complement();
}

Part one_of(Grammar &grammar, const Characters &set, Spelling spelling) {
    Characters plain = set.normal();
    std::vector<Part> choices;
    if (spelling == Spelling::json) {
        Characters escaped;
        escaped.add(0, 0x1F);
        escaped.add('"', '"');
        escaped.add('\\', '\\');
        const Characters some = plain.intersection(escaped);
        if (!some.ranges.empty()) {
            choices.push_back(escapes(grammar, some));
        }
        plain = plain.intersection(escaped.complement());
    }
    for (const Characters::Range &each : plain.ranges) {
        add_utf8(grammar, each.low, each.high, choices);
    }
    return choices.size() == 1 ? choices[0] : grammar.choice(std::move(choices));
}

std::string utf8(uint32_t character) {
    std::string bytes;
    const auto put = [&](uint32_t byte) { bytes += static_cast<char>(byte); };
    if (character < 0x80) {
        put(character);
    } else if (character < 0x800) {
        put(0xC0U | (character >> 6U));
        put(0x80U | (character & 0x3FU));
    } else if (character < 0x10000) {
        put(0xE0U | (character >> 12U));
        put(0x80U | ((character >> 6U) & 0x3FU));
        put(0x80U | (character & 0x3FU));
    } else {
        put(0xF0U | (character >> 18U));
        put(0x80U | ((character >> 12U) & 0x3FU));
        put(0x80U | ((character >> 6U) & 0x3FU));
        put(0x80U | (character & 0x3FU));
    }
    return bytes;
}

uint32_t next_character(std::string_view text, size_t &at) {
    const auto byte = [&](size_t index) {
        return index < text.size() ? static_cast<uint8_t>(text[index]) : uint32_t{0};
    };
    const uint32_t lead = byte(at);
    if (lead < 0x80) {
        return text[at++] & 0x7F;
    }
    const size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    uint32_t character = lead & (0x3FU >> more);
    bool good = lead >= 0xC2 && lead <= 0xF4;
    for (size_t i = 1; i <= more; ++i) {
        good = good && (byte(at + i) & 0xC0U) == 0x80U;
        character = character << 6U | (byte(at + i) & 0x3FU);
    }
    if (!good || utf8(character).size() != more + 1 || character > kLast ||
        (character >= kSurrogates && character < kAfterSurrogates)) {
        fail(Status::invalid_argument, "the constraint is not UTF-8 at byte %zu", at);
    }
    at += more + 1;
    return character;
}

std::string json_spelled(std::string_view text) {
    std::string spelled;
    for (const char each : text) {
        static constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kShort = "\"\\bfnrt";
        const size_t found = kPlain.find(each);
        if (found != std::string_view::npos) {
            spelled += '\\';
            spelled += kShort[found];
        } else if (static_cast<uint8_t>(each) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(each));
            spelled += code;
        } else {
            spelled += each;
        }
    }
    return spelled;
}

} // namespace stasis::constraint
