// What a URI and the environment say, and what is refused, without a secret in the message.
#include <doctest/doctest.h>

#include <map>

#include "modules/s3/failure.h"
#include "modules/s3/settings.h"

using namespace stasis_s3;

namespace {

std::map<std::string, std::string> variables;

const char *told(const char *name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
}

Settings settings_of(const std::string &uri) {
    variables.insert({{"AWS_ACCESS_KEY_ID", "AKID"}, {"AWS_SECRET_ACCESS_KEY", "hidden"}});
    return read_settings(uri, told);
}

std::string refusal_of(const std::string &uri) {
    try {
        settings_of(uri);
        return "";
    } catch (const Failure &failure) {
        CHECK(failure.status() == STASIS_INVALID_ARGUMENT);
        return failure.what();
    }
}

} // namespace

TEST_CASE("read_settings: the URI first, then the environment, then Amazon") {
    variables.clear();
    Settings found = settings_of("s3://my-bucket/some/prefix/");
    CHECK(found.bucket == "my-bucket");
    CHECK(found.prefix == "some/prefix/");
    CHECK(found.region == "us-east-1");
    CHECK(found.origin == "https://my-bucket.s3.us-east-1.amazonaws.com");
    CHECK(found.host == "my-bucket.s3.us-east-1.amazonaws.com");
    CHECK(found.base_path.empty());
    CHECK(found.name() == "s3:https://my-bucket.s3.us-east-1.amazonaws.com/some/prefix/");
    CHECK(found.credentials.session_token.empty());
    found = settings_of("s3://dotted.bucket?region=eu-west-1");
    CHECK(found.prefix.empty());
    CHECK(found.origin == "https://s3.eu-west-1.amazonaws.com");
    CHECK(found.base_path == "/dotted.bucket");
    variables = {{"AWS_REGION", "one"},
                 {"AWS_DEFAULT_REGION", "two"},
                 {"AWS_SESSION_TOKEN", "token"},
                 {"AWS_ENDPOINT_URL", "http://storage.local:9000/"}};
    found = settings_of("s3://bucket/p");
    CHECK(found.region == "one");
    CHECK(found.origin == "http://storage.local:9000");
    CHECK(found.host == "storage.local:9000");
    CHECK(found.base_path == "/bucket");
    CHECK(found.credentials.session_token == "token");
    found = settings_of("s3://bucket/p?endpoint=https%3A%2F%2Fother:443&region=three");
    CHECK(found.region == "three");
    CHECK(found.origin == "https://other");
    CHECK(found.host == "other");
    variables.erase("AWS_REGION");
    CHECK(settings_of("s3://bucket/p").region == "two");
}

TEST_CASE("read_settings: what is refused") {
    variables.clear();
    for (const char *uri : {"s3:bucket",
                            "s3://",
                            "s3:///p",
                            "s3://ab",
                            "s3://Bucket",
                            "s3://-bucket",
                            "s3://a..b",
                            "s3://bucket/a//b",
                            "s3://bucket/.a",
                            "s3://bucket/a b",
                            "s3://bucket/p?x=1",
                            "s3://bucket/p?region",
                            "s3://bucket/p?region=",
                            "s3://bucket/p?region=a&region=b",
                            "s3://bucket/p?region=a%2",
                            "s3://bucket/p?region=a%0a",
                            "s3://bucket/p?region=A/b",
                            "s3://bucket/p?endpoint=ftp://x",
                            "s3://bucket/p?endpoint=http://",
                            "s3://bucket/p?endpoint=http://u:hidden@x",
                            "s3://bucket/p?endpoint=http://x/path",
                            "s3://bucket/p?cache_bytes=10000000",
                            "s3://bucket/p?cache=/c&cache_bytes=1",
                            "s3://bucket/p?cache=/c&cache_bytes=1x"}) {
        CAPTURE(uri);
        const std::string message = refusal_of(uri);
        CHECK(!message.empty());
        CHECK(message.find("hidden") == std::string::npos);
    }
    CHECK(refusal_of("s3://bucket/" + std::string(480, 'p')).empty());
    CHECK(!refusal_of("s3://bucket/" + std::string(481, 'p')).empty());
    variables = {{"AWS_ACCESS_KEY_ID", ""}};
    CHECK(refusal_of("s3://bucket").find("AWS_SECRET_ACCESS_KEY") != std::string::npos);
}
