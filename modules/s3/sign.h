// Amazon's signature of a request, version 4. Must not know connections.
#pragma once

#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "modules/s3/settings.h"

namespace stasis_s3 {

// What of a request is signed. Path and query are encoded as they are sent; the query's names are
// in order. Names of headers are in lower case.
struct Signed {
    std::string method, path, query;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body_digest; // SHA-256, in hexadecimal
};

std::string sha256_hex(std::span<const uint8_t> bytes);
// For content-md5; empty: this machine's libcrypto may not compute it.
std::string md5_base64(std::span<const uint8_t> bytes);
// As Amazon encodes: all but letters, digits, '-', '.', '_' and '~'; in a path '/' too stays.
std::string encoded(std::string_view text, bool path);

// Adds the headers that sign the request at this moment: x-amz-date, x-amz-content-sha256,
// x-amz-security-token where there is one, and authorization. `headers` must have host.
void sign(Signed &request, const Credentials &credentials, const std::string &region,
          const std::string &service, time_t now);

} // namespace stasis_s3
