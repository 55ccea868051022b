// Signatures: Amazon's own examples, and the pieces that they are made of.
#include <doctest/doctest.h>

#include "modules/s3/sign.h"

using namespace stasis_s3;

namespace {

// The credentials and the moment of "Signature calculations for the authorization header" in the
// API reference of S3: 2013-05-24 00:00:00.
const Credentials kExample = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                              ""};
constexpr time_t kMoment = 1369353600;

std::string signature_of(Signed request, const Credentials &credentials = kExample) {
    request.headers.emplace_back("host", "examplebucket.s3.amazonaws.com");
    sign(request, credentials, "us-east-1", "s3", kMoment);
    const std::string &text = request.headers.back().second;
    REQUIRE(request.headers.back().first == "authorization");
    return text.substr(text.rfind('=') + 1);
}

} // namespace

TEST_CASE("md5_base64: the examples of RFC 1321") {
    const std::string abc = "abc";
    CHECK(md5_base64({}) == "1B2M2Y8AsgTpgAmY7PhCfg==");
    CHECK(md5_base64({reinterpret_cast<const uint8_t *>(abc.data()), abc.size()}) ==
          "kAFQmDzST7DWlj99KOF/cg==");
}

TEST_CASE("sign: the examples of the API reference of S3") {
    const std::string none = sha256_hex({});
    CHECK(none == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(signature_of({"GET", "/test.txt", "", {{"range", "bytes=0-9"}}, none}) ==
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    CHECK(signature_of({"GET", "/", "lifecycle=", {}, none}) ==
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    CHECK(signature_of({"GET", "/", "max-keys=2&prefix=J", {}, none}) ==
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    const std::string text = "Welcome to Amazon S3.";
    CHECK(
        signature_of({"PUT",
                      "/test%24file.text",
                      "",
                      {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                       {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                      sha256_hex({reinterpret_cast<const uint8_t *>(text.data()), text.size()})}) ==
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST_CASE("sign: a session's token is signed and sent") {
    Credentials credentials = kExample;
    credentials.session_token = "token";
    Signed request{"GET", "/", "", {{"host", "h"}}, sha256_hex({})};
    sign(request, credentials, "eu-central-1", "s3", kMoment);
    bool sent = false;
    for (const auto &[name, value] : request.headers) {
        sent = sent || (name == "x-amz-security-token" && value == "token");
    }
    CHECK(sent);
    const std::string &text = request.headers.back().second;
    CHECK(text.find("Credential=AKIAIOSFODNN7EXAMPLE/20130524/eu-central-1/s3/aws4_request, "
                    "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, ") !=
          std::string::npos);
    CHECK(text.find(kExample.secret_key) == std::string::npos);
}

TEST_CASE("encoded: as Amazon encodes") {
    CHECK(encoded("a/b c+d~e=\xC3\xA4", true) == "a/b%20c%2Bd~e%3D%C3%A4");
    CHECK(encoded("a/b", false) == "a%2Fb");
}
