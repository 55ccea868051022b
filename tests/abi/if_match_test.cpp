// Saves that must not overwrite another session's work: a file must hold the state that the session
// last loaded or saved. Two sessions that continue one file, in turn and at the same time.
#include <algorithm>
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// Refused, and nothing has changed.
void check_conflict(stasis_session *session, const std::string &path) {
    const std::string bytes = read_file(path);
    const Digest before = digest(session);
    stasis_error error;
    CHECK(save(session, path, STASIS_SAVE_IF_MATCH, &error) == STASIS_CONFLICT);
    const std::string message = error.message;
    CHECK_MESSAGE(message.find(path) != std::string::npos, message);
    CHECK(read_file(path) == bytes);
    CHECK(digest(session) == before);
}

} // namespace

TEST_CASE("STASIS_SAVE_IF_MATCH: of two who have loaded one file, the second finds that the first "
          "has saved") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session first = session_of(gemma(), some_tokens(70));
    REQUIRE(save(first.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK); // nothing is there
    const Session second = load(gemma(), path);
    append(first.get(), some_tokens(3, 2));
    REQUIRE(save(first.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK);
    append(second.get(), some_tokens(4, 3));
    check_conflict(second.get(), path);
    check_conflict(second.get(), path); // nor is it known from having been refused
    const Session third = load(gemma(), path);
    append(third.get(), some_tokens(5, 4));
    REQUIRE(save(third.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK);
    check_conflict(first.get(), path);
    REQUIRE(save(second.get(), path) == STASIS_OK); // who does not ask overwrites
    check_conflict(third.get(), path);
}

TEST_CASE("STASIS_SAVE_IF_MATCH: what a save that must match takes for the same, and for another") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(70));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    check_conflict(session_of(gemma(), some_tokens(70)).get(), path); // it has not seen the file
    check_conflict(create(gemma()).get(), path);

    append(session.get(), some_tokens(30, 2)); // written anew, the state is the same
    REQUIRE(stasis_snapshot_compact(path.c_str(), nullptr, nullptr) == STASIS_OK);
    REQUIRE(save(session.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK);

    const std::string empty = folder.file("empty"); // there is nothing to lose
    REQUIRE(save(create(gemma()).get(), empty) == STASIS_OK);
    REQUIRE(save(create(gemma()).get(), empty, STASIS_SAVE_IF_MATCH) == STASIS_OK);
    REQUIRE(save(fork(session.get()).get(), empty, STASIS_SAVE_IF_MATCH) == STASIS_OK);

    const Session child = fork(session.get()); // what it was forked from has
    append(child.get(), some_tokens(5, 3));
    REQUIRE(save(child.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK);
    check_conflict(session.get(), path);

    const std::string copy = folder.file("b");
    write_file(copy, read_file(path)); // open to others: it is replaced as a whole
    rewind(child.get(), 60);
    REQUIRE(save(child.get(), copy, STASIS_SAVE_IF_MATCH) == STASIS_OK);

    REQUIRE(std::filesystem::remove(path)); // no session's work is lost
    CHECK(save(session.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_OK);
    CHECK(save(session.get(), path, STASIS_SAVE_IF_MATCH | STASIS_SAVE_REPLACE) ==
          STASIS_INVALID_ARGUMENT);
    const Session other = session_of(llama(), some_tokens(70));
    CHECK(save(other.get(), path, STASIS_SAVE_IF_MATCH) == STASIS_INVALID_ARGUMENT);
}

// Each appends its own token, and begins again from the file wherever another was faster.
TEST_CASE("STASIS_SAVE_IF_MATCH: of many threads that add to one file none loses a token") {
    constexpr uint32_t kHosts = 3, kTokens = 12;
    const Folder folder;
    const std::string path = folder.file("a");
    REQUIRE(save(session_of(gemma(), some_tokens(70)).get(), path) == STASIS_OK);
    const auto host = [&](stasis_model *model, stasis_token own, stasis_status *outcome) {
        for (uint32_t added = 0; added < kTokens && *outcome == STASIS_OK;) {
            stasis_session *session = nullptr;
            *outcome = stasis_session_load(model, path.c_str(), nullptr, &session, nullptr);
            const Session owner(session);
            if (*outcome == STASIS_OK) {
                *outcome = stasis_session_append(session, &own, 1, nullptr, nullptr);
            }
            if (*outcome != STASIS_OK) {
                return;
            }
            const stasis_status saved = save(session, path, STASIS_SAVE_IF_MATCH);
            added += saved == STASIS_OK ? 1 : 0;
            const bool again = saved == STASIS_CONFLICT || saved == STASIS_BUSY;
            *outcome = again ? STASIS_OK : saved;
        }
    };
    std::vector<stasis_status> outcomes(kHosts, STASIS_OK);
    std::vector<std::thread> hosts;
    for (uint32_t i = 0; i < kHosts; ++i) {
        hosts.emplace_back(host, gemma(), 100 + i, &outcomes[i]);
    }
    for (std::thread &each : hosts) {
        each.join();
    }
    const Session end = load(gemma(), path);
    REQUIRE(position(end.get()) == 70 + kHosts * kTokens);
    Tokens tokens(kHosts * kTokens);
    size_t count = 0;
    REQUIRE(stasis_session_tokens(end.get(), 70, tokens.data(), nullptr, tokens.size(), &count,
                                  nullptr) == STASIS_OK);
    for (uint32_t i = 0; i < kHosts; ++i) {
        CHECK(outcomes[i] == STASIS_OK);
        CHECK(std::count(tokens.begin(), tokens.end(), stasis_token(100 + i)) == kTokens);
    }
}
