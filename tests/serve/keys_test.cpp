// Keys of a file: which requests they let in, and which files are refused.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/handles.h"
#include "tools/serve/http/keys.h"

namespace {

using serve::http::Keys;
using serve::http::Request;

// A file that only its owner may read, gone with this object.
struct KeyFile {
    explicit KeyFile(const std::string &text, mode_t mode = 0600) {
        char name[] = "/tmp/stasis-keys-XXXXXX";
        close(mkstemp(name));
        path = name;
        std::ofstream(path) << text;
        chmod(name, mode);
    }
    ~KeyFile() { std::filesystem::remove(path); }
    KeyFile(const KeyFile &) = delete;
    KeyFile &operator=(const KeyFile &) = delete;
    std::string path;
};

Request request_with(serve::http::Headers headers) {
    Request request;
    request.headers = std::move(headers);
    return request;
}

std::string refusal_of_keys(const std::string &path) {
    try {
        Keys::load(path);
    } catch (const command::Failure &failure) {
        return failure.what();
    }
    return "";
}

} // namespace

TEST_CASE("Keys: a tenant is known by either header, and called by a hash") {
    const KeyFile file("# keys of the team\n\n  sk-one \nsk-two\r\n#sk-three\n");
    const Keys keys = Keys::load(file.path);
    const auto one = keys.tenant(request_with({{"authorization", "Bearer sk-one"}}));
    REQUIRE(one.has_value());
    CHECK(*one == "456f1612bd25"); // the beginning of sha256("sk-one")
    CHECK(keys.tenant(request_with({{"x-api-key", "sk-one"}})) == one);
    CHECK(keys.tenant(request_with({{"authorization", "bEARER  sk-one"}})) == one);
    CHECK(keys.tenant(
              request_with({{"authorization", "Bearer sk-one"}, {"x-api-key", "sk-one"}})) == one);
    const auto two = keys.tenant(request_with({{"authorization", "Bearer sk-two"}}));
    REQUIRE(two.has_value());
    CHECK(*two != *one);
}

TEST_CASE("Keys: what is no key lets nobody in") {
    const KeyFile file("sk-one\nsk-two\n#sk-three\n");
    const Keys keys = Keys::load(file.path);
    for (const char *value :
         {"", "sk-one", "Bearer", "Bearer ", "Bearer sk-on", "Bearer sk-one2", "Bearer sk-three",
          "Bearer #sk-three", "Basic sk-one", "Bearer SK-ONE", "Bearer sk-one sk-two"}) {
        CAPTURE(value);
        CHECK(!keys.tenant(request_with({{"authorization", value}})).has_value());
    }
    CHECK(!keys.tenant(request_with({})).has_value());
    CHECK(!keys.tenant(request_with({{"x-api-key", ""}})).has_value());
    CHECK(!keys.tenant(request_with({{"authorization", "Bearer sk-one"}, {"x-api-key", "sk-two"}}))
               .has_value());
}

TEST_CASE("Keys: files that cannot be right are refused by name and line, without the key") {
    const KeyFile empty("# nothing\n\n"), blank("sk-one\nsk two\n"), other("sk-\xc3\xa9\n");
    CHECK(refusal_of_keys(empty.path) == empty.path + ": holds no key");
    CHECK(refusal_of_keys(blank.path) ==
          blank.path + ", line 2: a key is printable ASCII without blanks");
    CHECK(refusal_of_keys(other.path) ==
          other.path + ", line 1: a key is printable ASCII without blanks");
    CHECK(refusal_of_keys("/no/such/file") == "/no/such/file: No such file or directory");
    CHECK(!refusal_of_keys("/tmp").empty());
}

TEST_CASE("Keys: a file that everyone can read is warned of") {
    const KeyFile open("sk-one\n", 0644), closed("sk-one\n", 0640);
    CHECK(Keys::load(open.path).warning().find(open.path) == 0);
    CHECK(Keys::load(closed.path).warning().empty());
}
