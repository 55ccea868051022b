// What backends share: which keys there are, and marks made of bytes; see backend.h.
#include "format/store/backend.h"

#include <algorithm>

#include "format/state/digest.h"

namespace stasis::format {

namespace {

constexpr size_t kKeyCharacters = 512, kPartCharacters = 200;

bool is_part(std::string_view part) {
    return !part.empty() && part.size() <= kPartCharacters && part.front() != '.' &&
           std::all_of(part.begin(), part.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
           });
}

} // namespace

bool is_key(std::string_view key) {
    if (key.size() > kKeyCharacters) {
        return false;
    }
    for (size_t slash = key.find('/'); slash != key.npos; slash = key.find('/')) {
        if (!is_part(key.substr(0, slash))) {
            return false;
        }
        key.remove_prefix(slash + 1);
    }
    return is_part(key);
}

void check_key(std::string_view key) {
    if (!is_key(key)) {
        fail(Status::invalid_argument,
             "'%s' is no key of a store: at most %zu characters of a-z, A-Z, 0-9, '.', '-', '_' "
             "and '/', in parts of 1 to %zu that do not begin with '.'",
             std::string(key.substr(0, kKeyCharacters)).c_str(), kKeyCharacters, kPartCharacters);
    }
}

void check_prefix(std::string_view prefix) {
    // Whatever keys begin so may end after one more character.
    const bool whole = prefix.empty() || prefix.back() == '/';
    check_key(whole ? std::string(prefix) + "x" : std::string(prefix));
}

std::string mark_of(std::span<const uint8_t> bytes) {
    return to_hex(Sha256().bytes(bytes.data(), bytes.size()).finish());
}

} // namespace stasis::format
