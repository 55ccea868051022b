// What the server keeps in a session beside its state, and how ids are written.
#pragma once

#include <cstdint>
#include <string>

#include "abi/stasis.h"

namespace serve {

inline constexpr char kOneTenant[] = "all"; // of a server without keys

// Names of data (stasis_data.h).
inline constexpr char kConversationData[] = "serve.conversation"; // JSON, the reply included
inline constexpr char kResponseData[] = "serve.response"; // the body that the client was sent

inline constexpr char kNamesData[] = "serve.names"; // further names that it was given, a line each

// Returns the bytes under a name, or "".
std::string data_of(const stasis_session *session, const char *name);
// Throws api::Refused.
void set_data(stasis_session *session, const char *name, const std::string &bytes);
void clear_data(stasis_session *session, const char *name); // which may not be there

// The further name of a session is this and the id of the request that it answers.
inline constexpr char kRequestName[] = "r_";
inline constexpr size_t kRequestIdLength = 32; // hexadecimal digits

// Returns the hexadecimal digits of an id with or without its prefix: of a digest or of a request;
// "": it is neither.
std::string id_in(const std::string &text, const std::string &prefix);
int64_t now(); // seconds since 1970

} // namespace serve
