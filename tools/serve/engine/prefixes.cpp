// Names of beginnings; see prefixes.h.
#include "tools/serve/engine/prefixes.h"

#include <algorithm>

#include <openssl/evp.h>

#include "tools/cli/terminal.h"

namespace serve {

std::string sha256(const std::string &text) {
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_Digest(text.data(), text.size(), hash, &size, EVP_sha256(), nullptr);
    stasis_digest digest;
    std::copy(hash, hash + sizeof digest.bytes, digest.bytes);
    return command::hex(digest);
}

std::vector<std::string> prefix_names(const std::string &identity,
                                      std::span<const stasis_token> tokens) {
    constexpr size_t kShortest = 256, kPage = 64;
    std::vector<std::string> names;
    std::string chain = identity;
    size_t begin = 0;
    for (size_t end = kShortest; end <= tokens.size(); end = end * 3 / 2 / kPage * kPage) {
        const auto *const bytes = reinterpret_cast<const char *>(tokens.data() + begin);
        chain = sha256(chain + std::string(bytes, (end - begin) * sizeof(stasis_token)));
        names.push_back("p_" + chain);
        begin = end;
    }
    return names;
}

} // namespace serve
