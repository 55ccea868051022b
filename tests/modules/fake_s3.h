// The service of fake_s3.py as tests use it: started once for the process, told what trouble to
// make; and stores in it.
#pragma once

#include <memory>
#include <string>

#include "format/store/backend.h"
#include "modules/s3/objects.h"

namespace stasis_s3 {

// Sets the trouble, JSON, and begins the counts anew.
void make_trouble(const std::string &json);
// The number of calls since then, of a method ("GET") or of all ("calls").
int calls_since(const std::string &what = "calls");

// Settings for the service under a prefix.
Settings fake_settings(const std::string &prefix);
// What ends calls of this thread: OK, until a test sets it.
Host fake_host();

// The module's objects as a backend of a store, whose watch ends its calls.
std::unique_ptr<stasis::format::Backend> open_fake(const Settings &settings);

} // namespace stasis_s3
