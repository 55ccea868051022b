// Reading the URI and the environment; see settings.h.
#include "modules/s3/settings.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "modules/s3/failure.h"

namespace stasis_s3 {

namespace {

constexpr size_t kPrefixMax = 480;                  // and a key: S3 takes 1024 bytes
constexpr uint64_t kCacheBytes = uint64_t{1} << 30; // unless the URI says otherwise
constexpr uint64_t kCacheBytesMin = uint64_t{1} << 20;

bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

int hexadecimal(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

std::string decoded(std::string_view text, const char *name) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 2 < text.size() ? hexadecimal(text[i + 1]) : -1;
            const int low = i + 2 < text.size() ? hexadecimal(text[i + 2]) : -1;
            if (high < 0 || low < 0) {
                fail(STASIS_INVALID_ARGUMENT, "uri: %s: '%%' and no two hexadecimal digits", name);
            }
            c = static_cast<char>(high * 16 + low);
            i += 2;
        }
        if (static_cast<unsigned char>(c) < 0x20) {
            fail(STASIS_INVALID_ARGUMENT, "uri: %s has a control character", name);
        }
        out += c;
    }
    return out;
}

std::map<std::string, std::string> read_query(std::string_view query) {
    std::map<std::string, std::string> values;
    while (!query.empty()) {
        const std::string_view one = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), one.size() + 1));
        const size_t equals = one.find('=');
        const std::string name(one.substr(0, equals));
        const bool known =
            name == "endpoint" || name == "region" || name == "cache" || name == "cache_bytes";
        if (!known || equals == one.npos || equals + 1 == one.size() || values.contains(name)) {
            fail(STASIS_INVALID_ARGUMENT,
                 "uri: '%.100s' after '?': expected endpoint, region, cache or cache_bytes, once, "
                 "'=' and a value",
                 std::string(one).c_str());
        }
        values[name] = decoded(one.substr(equals + 1), name.c_str());
    }
    return values;
}

std::string variable(Environment environment, const char *name) {
    const char *value = environment(name);
    return value == nullptr ? "" : value;
}

void check_bucket(const std::string &bucket) {
    const bool good = bucket.size() >= 3 && bucket.size() <= 63 && is_plain(bucket.front()) &&
                      is_plain(bucket.back()) &&
                      std::all_of(bucket.begin(), bucket.end(),
                                  [](char c) { return is_plain(c) || c == '-' || c == '.'; });
    if (!good || bucket.find("..") != bucket.npos) {
        fail(STASIS_INVALID_ARGUMENT,
             "uri: '%.100s' is no bucket's name: 3 to 63 characters of a-z, 0-9, '-' and '.'",
             bucket.c_str());
    }
}

// Sets origin, host and base path from http(s)://host or http(s)://host:port.
void read_endpoint(Settings &settings, std::string endpoint) {
    while (!endpoint.empty() && endpoint.back() == '/') {
        endpoint.pop_back();
    }
    const bool tls = endpoint.starts_with("https://");
    const std::string host = endpoint.substr(std::min<size_t>(endpoint.size(), tls ? 8 : 7));
    const bool good = (tls || endpoint.starts_with("http://")) && !host.empty() &&
                      std::all_of(host.begin(), host.end(), [](char c) {
                          return is_plain(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
                                 c == ':' || c == '[' || c == ']' || c == '_';
                      });
    if (!good) { // not shown: it may hold a password
        fail(STASIS_INVALID_ARGUMENT,
             "endpoint: expected http://HOST or https://HOST, with :PORT or without");
    }
    const std::string usual = tls ? ":443" : ":80";
    settings.host = host.ends_with(usual) ? host.substr(0, host.size() - usual.size()) : host;
    settings.origin = (tls ? "https://" : "http://") + settings.host;
    settings.base_path = "/" + settings.bucket;
}

} // namespace

bool is_key(std::string_view key) {
    if (key.empty() || key.size() > 512) {
        return false;
    }
    char before = '/';
    for (const char c : key) {
        const bool good = is_plain(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
                          (before != '/' && (c == '.' || c == '/'));
        if (!good) {
            return false;
        }
        before = c;
    }
    return before != '/';
}

Settings read_settings(std::string_view uri, Environment environment) {
    constexpr std::string_view kScheme = "s3://";
    if (!uri.starts_with(kScheme)) {
        fail(STASIS_INVALID_ARGUMENT, "uri: expected s3://BUCKET/PREFIX");
    }
    uri.remove_prefix(kScheme.size());
    const std::string_view place = uri.substr(0, uri.find('?'));
    std::map<std::string, std::string> values =
        read_query(uri.substr(std::min(uri.size(), place.size() + 1)));

    Settings settings;
    settings.bucket = place.substr(0, place.find('/'));
    check_bucket(settings.bucket);
    std::string_view prefix = place.substr(settings.bucket.size());
    prefix.remove_prefix(prefix.empty() ? 0 : 1);
    while (!prefix.empty() && prefix.back() == '/') {
        prefix.remove_suffix(1);
    }
    if (!prefix.empty() && (!is_key(prefix) || prefix.size() > kPrefixMax)) {
        fail(STASIS_INVALID_ARGUMENT,
             "uri: '%.100s' is no prefix: at most %zu characters of a-z, A-Z, 0-9, '.', '-', '_' "
             "and '/', in parts that do not begin with '.'",
             std::string(prefix).c_str(), kPrefixMax);
    }
    settings.prefix = prefix.empty() ? "" : std::string(prefix) + "/";

    const auto first = [&](const char *name, const char *one, const char *other) {
        const std::string value = values.contains(name) ? values[name] : variable(environment, one);
        return value.empty() && other != nullptr ? variable(environment, other) : value;
    };
    settings.region = first("region", "AWS_REGION", "AWS_DEFAULT_REGION");
    settings.region = settings.region.empty() ? "us-east-1" : settings.region;
    if (!std::all_of(settings.region.begin(), settings.region.end(),
                     [](char c) { return is_plain(c) || c == '-'; })) {
        fail(STASIS_INVALID_ARGUMENT, "region: '%.100s' is none", settings.region.c_str());
    }
    const std::string endpoint = first("endpoint", "AWS_ENDPOINT_URL", nullptr);
    const std::string amazon = "s3." + settings.region + ".amazonaws.com";
    read_endpoint(settings, endpoint.empty() ? "https://" + amazon : endpoint);
    // Amazon's own host names the bucket; a certificate covers no name with another dot.
    if (endpoint.empty() && settings.bucket.find('.') == std::string::npos) {
        read_endpoint(settings, "https://" + settings.bucket + "." + amazon);
        settings.base_path = "";
    }

    settings.cache = values["cache"];
    settings.cache_bytes = settings.cache.empty() ? 0 : kCacheBytes;
    if (values.contains("cache_bytes")) {
        const std::string &text = values["cache_bytes"];
        const char *end = text.data() + text.size();
        const auto [read, problem] = std::from_chars(text.data(), end, settings.cache_bytes);
        if (problem != std::errc() || read != end || settings.cache_bytes < kCacheBytesMin ||
            settings.cache.empty()) {
            fail(STASIS_INVALID_ARGUMENT,
                 "uri: cache_bytes is '%.40s': expected a number, at least %llu, beside a cache",
                 text.c_str(), static_cast<unsigned long long>(kCacheBytesMin));
        }
    }

    settings.credentials = {variable(environment, "AWS_ACCESS_KEY_ID"),
                            variable(environment, "AWS_SECRET_ACCESS_KEY"),
                            variable(environment, "AWS_SESSION_TOKEN")};
    if (settings.credentials.access_key.empty() || settings.credentials.secret_key.empty()) {
        fail(STASIS_INVALID_ARGUMENT,
             "s3: the environment has no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    }
    return settings;
}

} // namespace stasis_s3
