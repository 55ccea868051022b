// Golden files: their paths, and how a session continues from one. Used by the program that made
// them and the tests that read them; knows the public header, and SHA-256.
#pragma once

#include "format/state/digest.h"
#include "tests/abi/conversation.h"
#include "tests/abi/restored.h"

namespace abi_test {

constexpr size_t kGoldenDraws = 8;

inline std::string golden_path(const std::string &folder, const std::string &name) {
    return test_data("golden/" + folder + "/" + name);
}

inline std::string hex(const void *digest) {
    stasis::Digest copy;
    std::memcpy(copy.bytes.data(), digest, copy.bytes.size());
    return stasis::to_hex(copy);
}

// The continuation of a file: tokens drawn from the stored state, if it has any position, then
// those of a reply, both under the settings in force; and the state digest at its end.
inline nlohmann::ordered_json continuation(stasis_session *session) {
    nlohmann::ordered_json found;
    found["next"] = position(session) > 0 ? draw(session, kGoldenDraws) : Tokens();
    say(session, "and you?");
    found["reply"] = draw(session, kGoldenDraws);
    found["digest_then"] = hex(digest(session).data());
    return found;
}

} // namespace abi_test
