// The module's backend, for the tests of all backends; see tests/format/backends.h.
#include <algorithm>

#include "fake_s3.h"
#include "tests/format/backends.h"

namespace stasis::format {

std::vector<BackendKind> backend_kinds() {
    stasis_s3::fake_settings("begun"); // here, so that a child of a test has the same service
    return {{"s3",
             [](const std::string &path) {
                 std::string prefix = path.substr(1);
                 std::replace(prefix.begin(), prefix.end(), '.', '-');
                 return stasis_s3::open_fake(stasis_s3::fake_settings(prefix));
             },
             true, false}};
}

} // namespace stasis::format
