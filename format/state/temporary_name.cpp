// The temporary name of a file; see temporary_name.h.
#include "format/state/temporary_name.h"

#include <linux/limits.h>

#include <algorithm>

#include "format/state/digest.h"

namespace stasis {

std::string temporary_name(const std::string &path, std::string_view suffix) {
    constexpr size_t kDigits = 16;
    const std::string plain = path + std::string(suffix);
    const size_t folder = path.rfind('/') + 1; // npos + 1 is 0
    if (plain.size() - folder <= NAME_MAX && plain.size() < PATH_MAX) {
        return plain;
    }
    const std::string name = path.substr(folder);
    const size_t added = 1 + kDigits + suffix.size();
    const size_t room = std::min<size_t>(NAME_MAX, name.size()); // no longer than what it becomes
    const std::string digits = to_hex(Sha256().bytes(name.data(), name.size()).finish());
    return path.substr(0, folder) + name.substr(0, room > added ? room - added : 0) + "-" +
           digits.substr(0, kDigits) + std::string(suffix);
}

} // namespace stasis
