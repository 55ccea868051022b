// See keys.h. Keys are compared by their SHA-256, all of them and in constant time.
#include "tools/serve/http/keys.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include "tools/cli/handles.h"

namespace serve::http {
namespace {

constexpr size_t kTenantDigits = 12;

std::string_view without_blanks(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\r");
    return first == std::string_view::npos
               ? std::string_view()
               : text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

bool fits_a_header(std::string_view key) {
    return std::all_of(key.begin(), key.end(), [](char byte) { return byte > ' ' && byte < 0x7f; });
}

// Returns the key of "Bearer KEY", whose scheme may be in any case, or "".
std::string_view bearer(std::string_view value) {
    constexpr std::string_view kScheme = "bearer ";
    if (value.size() < kScheme.size()) {
        return {};
    }
    for (size_t i = 0; i < kScheme.size(); ++i) {
        const char byte = value[i];
        if ((byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte) != kScheme[i]) {
            return {};
        }
    }
    return without_blanks(value.substr(kScheme.size()));
}

std::array<uint8_t, 32> digest_of(std::string_view key) {
    std::array<uint8_t, 32> digest;
    SHA256(reinterpret_cast<const unsigned char *>(key.data()), key.size(), digest.data());
    return digest;
}

} // namespace

Keys Keys::load(const std::string &path) {
    std::ifstream file(path);
    if (!file) {
        throw command::Failure(path + ": " + std::strerror(errno));
    }
    Keys keys;
    struct stat about {};
    if (stat(path.c_str(), &about) == 0 && (about.st_mode & S_IROTH) != 0) {
        keys.warning_ = path + ": every user of this machine can read the keys in it (chmod o-r)";
    }
    std::string line;
    for (size_t number = 1; std::getline(file, line); ++number) {
        const std::string_view key = without_blanks(line);
        if (key.empty() || key[0] == '#') {
            continue;
        }
        if (!fits_a_header(key)) {
            throw command::Failure(path + ", line " + std::to_string(number) +
                                   ": a key is printable ASCII without blanks");
        }
        keys.digests_.push_back(digest_of(key));
    }
    if (file.bad() || !file.eof()) {
        throw command::Failure(path + ": cannot be read to its end");
    }
    if (keys.digests_.empty()) {
        throw command::Failure(path + ": holds no key");
    }
    return keys;
}

std::optional<std::string> Keys::tenant(const Request &request) const {
    std::string_view key = bearer(request.header("authorization"));
    const std::string_view other = request.header("x-api-key");
    if (!key.empty() && !other.empty() && key != other) { // both are the client's own
        return std::nullopt;
    }
    key = key.empty() ? other : key;
    const Digest digest = digest_of(key);
    unsigned found = 0;
    for (const Digest &known : digests_) {
        found |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0 ? 1U : 0U;
    }
    if (key.empty() || found == 0) {
        return std::nullopt;
    }
    std::string tenant;
    for (size_t i = 0; i < kTenantDigits; ++i) {
        tenant += "0123456789abcdef"[(digest[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15];
    }
    return tenant;
}

} // namespace serve::http
