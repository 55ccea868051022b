// The signature; see sign.h.
#include "modules/s3/sign.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>

#include "modules/s3/failure.h"

namespace stasis_s3 {

namespace {

using Mac = std::array<uint8_t, 32>;

std::string to_hex(std::span<const uint8_t> bytes) {
    std::string text;
    for (const uint8_t byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

std::span<const uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

Mac hmac(std::span<const uint8_t> key, std::string_view text) {
    Mac out;
    unsigned int length = 0;
    if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text).data(),
             text.size(), out.data(), &length) == nullptr) {
        fail(STASIS_IO, "s3: HMAC-SHA256 failed");
    }
    return out;
}

} // namespace

std::string sha256_hex(std::span<const uint8_t> bytes) {
    Mac out;
    unsigned int length = 0;
    if (EVP_Digest(bytes.data(), bytes.size(), out.data(), &length, EVP_sha256(), nullptr) != 1) {
        fail(STASIS_IO, "s3: SHA-256 failed");
    }
    return to_hex(out);
}

std::string md5_base64(std::span<const uint8_t> bytes) {
    std::array<uint8_t, 16> digest;
    if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_md5(), nullptr) != 1) {
        return "";
    }
    std::array<uint8_t, 25> text; // with the zero that ends it
    EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(digest.size()));
    return {text.begin(), text.end() - 1};
}

std::string encoded(std::string_view text, bool path) {
    std::string out;
    for (const char c : text) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            c == '-' || c == '.' || c == '_' || c == '~' || (path && c == '/')) {
            out += c;
        } else {
            out += '%';
            out += "0123456789ABCDEF"[static_cast<uint8_t>(c) >> 4];
            out += "0123456789ABCDEF"[static_cast<uint8_t>(c) & 15];
        }
    }
    return out;
}

void sign(Signed &request, const Credentials &credentials, const std::string &region,
          const std::string &service, time_t now) {
    tm utc{};
    char moment[24];
    gmtime_r(&now, &utc);
    std::strftime(moment, sizeof moment, "%Y%m%dT%H%M%SZ", &utc);
    request.headers.emplace_back("x-amz-date", moment);
    request.headers.emplace_back("x-amz-content-sha256", request.body_digest);
    if (!credentials.session_token.empty()) {
        request.headers.emplace_back("x-amz-security-token", credentials.session_token);
    }
    std::sort(request.headers.begin(), request.headers.end());
    std::string names, canonical = request.method + "\n" + request.path + "\n" + request.query;
    canonical += "\n";
    for (const auto &[name, value] : request.headers) {
        canonical += name + ":" + value + "\n";
        names += (names.empty() ? "" : ";") + name;
    }
    canonical += "\n" + names + "\n" + request.body_digest;

    const std::string day(moment, 8);
    const std::string scope = day + "/" + region + "/" + service + "/aws4_request";
    const std::string text = "AWS4-HMAC-SHA256\n" + std::string(moment) + "\n" + scope + "\n" +
                             sha256_hex(bytes_of(canonical));
    const std::string secret = "AWS4" + credentials.secret_key;
    const Mac key = hmac(hmac(hmac(hmac(bytes_of(secret), day), region), service), "aws4_request");
    request.headers.emplace_back(
        "authorization", "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope +
                             ", SignedHeaders=" + names + ", Signature=" + to_hex(hmac(key, text)));
}

} // namespace stasis_s3
