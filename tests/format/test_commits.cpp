// Commits to a file that is there: whatever a session did since, the file holds its state, bit for
// bit, and grew by little more than what is new.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>

#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// A session's state after `position` tokens, of which the first `common` are those of seed 1.
State course(uint64_t position, uint64_t seed = 1, uint64_t common = 0) {
    return sample_state({.position = position, .seed = seed, .common = common});
}

void commit_and_check(const State &state, const std::string &path,
                      const SaveOptions &options = {}) {
    CAPTURE(state.log.size());
    save(state, path, options);
    check_same(state, load(path, {}));
}

} // namespace

TEST_CASE("append, rewind, regrow and fork, into one file: what is loaded is what was saved") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (uint64_t position : {0,  1,  2,  31,  32,  33,  70,  150, 149, 100, 96,
                              97, 64, 63, 130, 131, 320, 319, 5,   4,   0,   40}) {
        commit_and_check(course(position), path);
    }
    // A fork that parts at position 50, then the first course again, then one that parts earlier.
    for (const State &state : {course(120, 2, 50), course(120), course(120, 3, 20),
                               course(33, 3, 20), course(200, 4, 33), course(200, 4, 1)}) {
        commit_and_check(state, path);
    }
    CHECK(folder.names() == std::vector<std::string>{"s"});
    CHECK(Snapshot::open(path)->root().sequence == 28);
}
