// Where the objects are and who asks: what the URI and the environment say. Must not know requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stasis_s3 {

struct Credentials {
    std::string access_key, secret_key, session_token; // token: empty for long-lived keys
};

struct Settings {
    std::string bucket;
    std::string prefix;    // of all keys: empty, or with '/' at its end
    std::string origin;    // "https://host" or "https://host:port"
    std::string host;      // what the Host header says
    std::string base_path; // before keys: "/bucket", or "" where the host names the bucket
    std::string region;
    std::string cache;        // folder of the cache; empty: none
    uint64_t cache_bytes = 0; // that it holds at most
    Credentials credentials;

    std::string name() const { return "s3:" + origin + base_path + "/" + prefix; }
};

// How the environment's variables are read; null: there is none.
using Environment = const char *(*)(const char *name);

// Reads s3://BUCKET/PREFIX?NAME=VALUE&... Throws Failure(INVALID_ARGUMENT), whose message holds no
// secret.
Settings read_settings(std::string_view uri, Environment environment);

// What keys are made of; parts between '/' have at least one character and do not begin with '.'.
bool is_key(std::string_view key);

} // namespace stasis_s3
