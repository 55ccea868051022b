// Members of a body's objects: read by name with their types checked, refused by where they lie.
// Must not know what any API means by them.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "tools/serve/api/request.h"

namespace serve::api {

// Throws Refused with status 400.
[[noreturn]] void refuse(const std::string &parameter, const std::string &message,
                         const char *code = "invalid_value");

// Returns the JSON of a body, whose depth and time to read are limited. Throws Refused if it is
// none.
Json parse_body(std::string_view body);

// Returns a list of tokens, which is not empty. Throws Refused if it is none.
std::vector<stasis_token> read_tokens(const Json &list, const std::string &place);

// An object and its place in the body ("messages[2].content"; the body's own is ""). A member that
// is null counts as absent. The object must outlive it.
class Members {
  public:
    // Throws Refused if `object` is none.
    Members(const Json &object, std::string place);

    const std::string &place() const { return place_; }
    std::string place_of(const std::string &name) const;

    // Each returns the member, or nothing if it is absent, and throws Refused if it has another
    // type or is out of range. `find` returns nullptr for an absent one.
    const Json *find(const char *name);
    const Json *list(const char *name);
    std::optional<std::string> text(const char *name);
    std::optional<bool> flag(const char *name);
    std::optional<double> number(const char *name, double least, double most);
    std::optional<int64_t> integer(const char *name, int64_t least, int64_t most);

    // Throw Refused if the member is absent.
    std::string needed_text(const char *name);
    const Json &needed(const char *name);
    const Json &needed_list(const char *name);

    // Throws Refused if one of them is there.
    void unsupported(std::initializer_list<const char *> names);
    // These have no bearing on the reply, whatever they hold.
    void ignore(std::initializer_list<const char *> names);
    // Throws Refused if there is a member of whose name no function above was called.
    void refuse_others() const;

  private:
    const Json *object_;
    std::string place_;
    std::vector<std::string> known_;
};

} // namespace serve::api
