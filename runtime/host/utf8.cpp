// Implements table 3-7 of the Unicode Standard; see utf8.h.
#include "runtime/host/utf8.h"

namespace stasis {

namespace {

unsigned char byte_at(std::string_view text, size_t at) {
    return static_cast<unsigned char>(text[at]);
}

// Returns the length in bytes of the character that `lead` begins; 0 if no character begins with
// it.
size_t size_by_lead(unsigned char lead) {
    return lead < 0x80                   ? 1
           : lead >= 0xC2 && lead < 0xE0 ? 2
           : lead >= 0xE0 && lead < 0xF0 ? 3
           : lead >= 0xF0 && lead < 0xF5 ? 4
                                         : 0;
}

// Reports whether `byte` may stand at `index` of a character that begins with `lead`.
bool continues(unsigned char lead, size_t index, unsigned char byte) {
    unsigned char low = 0x80, high = 0xBF;
    if (index == 1) {
        low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    }
    return byte >= low && byte <= high;
}

// Returns how many bytes from `at` on form a well-formed character or the beginning of one.
size_t run(std::string_view text, size_t at) {
    const unsigned char lead = byte_at(text, at);
    const size_t size = size_by_lead(lead);
    size_t count = size > 0 ? 1 : 0;
    while (count < size && at + count < text.size() &&
           continues(lead, count, byte_at(text, at + count))) {
        ++count;
    }
    return count;
}

} // namespace

size_t invalid_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t count = run(text, at);
        if (count == 0 || count < size_by_lead(byte_at(text, at))) {
            return at;
        }
        at += count;
    }
    return text.size();
}

size_t complete_utf8(std::string_view text) {
    for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
        const size_t at = text.size() - back;
        const size_t size = size_by_lead(byte_at(text, at));
        if (size > back && run(text, at) == back) {
            return at;
        }
    }
    return text.size();
}

std::string well_formed_utf8(std::string_view text) {
    std::string result;
    for (;;) {
        const size_t valid = invalid_utf8(text);
        result += text.substr(0, valid);
        if (valid == text.size()) {
            return result;
        }
        result += "\uFFFD";
        text.remove_prefix(valid + 1);
    }
}

} // namespace stasis
