// The memory that a session keeps of the file that it was saved to or loaded from: a commit reads
// only its roots, until another process has changed it.
#include <doctest/doctest.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// Bytes that this process has asked read() and the like for.
uint64_t bytes_read_so_far() {
    std::ifstream counters("/proc/self/io");
    std::string name;
    uint64_t count = 0;
    counters >> name >> count;
    REQUIRE(name == "rchar:");
    return count;
}

// Adds tokens, saves, and returns how much was read for that.
uint64_t bytes_of_commit(stasis_session *session, const std::string &path) {
    append(session, some_tokens(3, 5));
    digest(session); // as a host shows it
    const uint64_t before = bytes_read_so_far();
    REQUIRE(save(session, path) == STASIS_OK);
    return bytes_read_so_far() - before;
}

} // namespace

TEST_CASE(
    "stasis_session_save: a session that saved or loaded a file commits to it without reading it") {
    constexpr uint64_t kRoots = 3 * 4096, kCounters = 1024; // reading the counters counts as well
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(llama(), some_tokens(400));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(bytes_of_commit(session.get(), path) < kRoots + kCounters);
    CHECK(bytes_of_commit(session.get(), path) < kRoots + kCounters);
    CHECK(bytes_of_commit(fork(session.get()).get(), path) < kRoots + kCounters);
    const Session loaded = load(llama(), path);
    CHECK(bytes_of_commit(loaded.get(), path) < kRoots + kCounters);
    // Which is now another's: it is read again.
    CHECK(bytes_of_commit(session.get(), path) > kRoots + kCounters);
    CHECK(digest(load(llama(), path).get()) == digest(session.get()));
}

TEST_CASE("stasis_session_save: a file that was damaged since is refused by who remembers it, and "
          "replaced when asked") {
    const Folder folder;
    const std::string path = folder.file("s");
    const Session session = session_of(llama(), some_tokens(400));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    std::string bytes = read_file(path);
    const stasis_token first = some_tokens(400)[0];
    const std::string entry(reinterpret_cast<const char *>(&first), sizeof first);
    const size_t log = bytes.rfind(entry + std::string(4, '\0')); // its source is `prompt`
    REQUIRE(log != std::string::npos);
    bytes[log] ^= 1;
    write_file(path, bytes);
    append(session.get(), some_tokens(3, 5));
    stasis_error error;
    CHECK(save(session.get(), path, 0, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "SHA-256"));
    CHECK(save(session.get(), path, STASIS_SAVE_REPLACE) == STASIS_OK);
    CHECK(digest(load(llama(), path).get()) == digest(session.get()));
}
