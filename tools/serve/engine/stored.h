// What the server keeps in a session beside its state, and how ids are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
// Gives a session what another one of the same state has and it lacks; names are joined.
void merge_data(const stasis_session *from, stasis_session *to);
// Keeps of a file's data a conversation, if it is one that this server could have written, and
// removes all else that the server gives a meaning. Throws api::Refused.
void check_data(stasis_session *session);
// Returns the lines of a text.
std::vector<std::string> lines_of(const std::string &text);

// Pages are shared within a tenant: how long a prompt takes tells nothing of other tenants'.
uint64_t domain_of(const std::string &tenant);

// The further name of a session is this and the id of the request that it answers.
inline constexpr char kRequestName[] = "r_";
inline constexpr size_t kRequestIdLength = 32; // hexadecimal digits

// Returns the hexadecimal digits of an id with or without its prefix: of a digest or of a request;
// "": it is neither.
std::string id_in(const std::string &text, const std::string &prefix);
int64_t now(); // seconds since 1970

} // namespace serve
