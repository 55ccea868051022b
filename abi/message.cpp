// Escaping and shortening of messages; see message.h.
#include "abi/message.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "runtime/host/utf8.h"

namespace stasis::abi {

namespace {

// A character of valid UTF-8, or one byte that belongs to none.
struct Unit {
    std::string_view bytes;
    bool valid;
    size_t written() const { return valid ? bytes.size() : 4; }
};

// Returns the unit that begins at `at`. Tries each length, because a cut character is several
// invalid units.
Unit unit_at(std::string_view text, size_t at) {
    for (size_t length = 1; length <= 4 && at + length <= text.size(); ++length) {
        const std::string_view bytes = text.substr(at, length);
        if (invalid_utf8(bytes) == bytes.size()) {
            return {bytes, true};
        }
    }
    return {text.substr(at, 1), false};
}

// Writes a unit, escaped if it is not valid, and returns the end of what was written.
char *put(const Unit &unit, char *to) {
    if (unit.valid) {
        std::memcpy(to, unit.bytes.data(), unit.bytes.size());
        return to + unit.bytes.size();
    }
    constexpr char kDigits[] = "0123456789abcdef";
    const auto byte = static_cast<uint8_t>(unit.bytes[0]);
    const char escaped[4] = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    std::memcpy(to, escaped, sizeof escaped);
    return to + sizeof escaped;
}

} // namespace

void write_message(std::string_view from, char *field, size_t size) noexcept {
    constexpr std::string_view kCut = "...";
    assert(size > kCut.size());
    // First measure the escaped message, to know whether it fits.
    size_t all = 0;
    for (size_t at = 0; at < from.size();) {
        const Unit unit = unit_at(from, at);
        all += unit.written();
        at += unit.bytes.size();
    }

    // Then choose the lengths of the parts before and after the cut. The end is the longer one: it
    // gives the reason.
    const size_t room = size - 1;
    const bool fits = all <= room;
    const size_t head = fits ? room : (room - kCut.size()) / 3;
    const size_t tail = fits ? 0 : room - kCut.size() - head;

    // Write both parts, whole units only, and "..." once between them.
    char *to = field;
    bool cut = false;
    for (size_t at = 0, done = 0; at < from.size();) {
        const Unit unit = unit_at(from, at);
        if ((!cut && done + unit.written() <= head) || all - done <= tail) {
            to = put(unit, to);
        } else if (!cut) {
            std::memcpy(to, kCut.data(), kCut.size());
            to += kCut.size();
            cut = true;
        }
        done += unit.written();
        at += unit.bytes.size();
    }
    std::memset(to, 0, size - static_cast<size_t>(to - field));
}

} // namespace stasis::abi
