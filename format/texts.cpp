// Token texts to bytes and back: for each token u32 id, u32 size in bytes, the bytes; see texts.h.
#include "format/texts.h"

#include <algorithm>
#include <cstring>

#include "format/error.h"

namespace stasis::format {

std::vector<uint8_t> encode_texts(const TokenTexts &texts) {
    std::vector<uint8_t> bytes;
    for (const auto &[token, text] : texts) {
        const uint32_t head[2] = {token, static_cast<uint32_t>(text.size())};
        const auto *from = reinterpret_cast<const uint8_t *>(head);
        bytes.insert(bytes.end(), from, from + sizeof head);
        bytes.insert(bytes.end(), text.begin(), text.end());
    }
    return bytes;
}

TokenTexts decode_texts(const std::vector<uint8_t> &bytes) {
    TokenTexts texts;
    size_t at = 0;
    while (at < bytes.size()) {
        uint32_t head[2] = {};
        const size_t left = bytes.size() - at;
        if (left >= sizeof head) {
            std::memcpy(head, bytes.data() + at, sizeof head);
        }
        if (left < sizeof head || head[1] > left - sizeof head) {
            fail(Status::corrupt, "token texts: entry %zu at byte %zu does not end in the section",
                 texts.size(), at);
        }
        const auto *text = reinterpret_cast<const char *>(bytes.data() + at + sizeof head);
        texts.emplace_back(head[0], std::string(text, head[1]));
        at += sizeof head + head[1];
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
