// What the server keeps in a session beside its state, and how ids are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/stasis.h"
#include "tools/serve/api/request.h"

namespace serve {

inline constexpr char kOneTenant[] = "all"; // of a server without keys

// Names of data (stasis_data.h). The first two are those of objects, see below.
inline constexpr char kConversationData[] = "serve.conversation"; // the reply included
inline constexpr char kResponseData[] = "serve.response"; // the body that the client was sent
inline constexpr char kNamesData[] = "serve.names"; // further names that it was given, a line each

// Returns the bytes under a name, or "".
std::string data_of(const stasis_session *session, const char *name);
// Throws api::Refused.
void set_data(stasis_session *session, const char *name, const std::string &bytes);
void clear_data(stasis_session *session, const char *name); // which may not be there

// The same for JSON objects, which are kept in pieces, NAME.000, NAME.001 and so on: what a turn
// adds to a conversation becomes new pieces, so that what was said before is not stored again, and
// what is long is a piece of its own, which a store holds once for all sessions that have it.
std::string object_text(const stasis_session *session, const char *name); // "": there is none
void set_object(stasis_session *session, const char *name, const api::Json &object);
void clear_object(stasis_session *session, const char *name);
// Gives a session what another one of the same state has and it lacks; names are joined, those that
// it has before the others.
void merge_data(const stasis_session *from, stasis_session *to);
// Keeps of a session's names the first kNamesMost of each kind, which its first letter says, and
// returns the others: a state that is asked for in ever new ways has no end of names.
inline constexpr size_t kNamesMost = 128;
std::vector<std::string> cut_names(stasis_session *session);
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
