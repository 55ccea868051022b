// Readers of a file that a writer commits to all the time: each gets a state that was saved, whole.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

int64_t read_from(void *user, void *data, size_t size_bytes) {
    auto *file = static_cast<std::ifstream *>(user);
    file->read(static_cast<char *>(data), static_cast<std::streamsize>(size_bytes));
    return file->gcount();
}

// Returns whether a stream caught a root half written. A file is then read again; a stream cannot
// be, and is refused as if its root were damaged (stasis_session_read).
bool caught_a_write(stasis_status status, const stasis_error &error) {
    return status == STASIS_CORRUPT &&
           std::string(error.message).find("stream: the root of its last commit") == 0;
}

// One reader: opens for inspection, loads, and takes the file as a stream; the first error.
std::string read_in_turn(const std::string &path, const std::atomic<bool> &done, uint64_t &count) {
    uint64_t seen = 0, streams = 0, caught = 0;
    for (; !done; ++count) {
        stasis_error error{};
        stasis_status status = STASIS_OK;
        auto info = sized<stasis_snapshot_info>();
        if (count % 8 < 6) {
            stasis_snapshot *snapshot = nullptr;
            status = stasis_snapshot_open(path.c_str(), &snapshot, &error);
            if (status == STASIS_OK) {
                status = stasis_snapshot_get_info(snapshot, &info, &error);
                stasis_snapshot_close(snapshot);
            }
            if (status == STASIS_OK && (info.commits < seen || info.older != 0)) {
                return "commit " + std::to_string(info.commits) + " after " + std::to_string(seen);
            }
            seen = info.commits;
        } else {
            stasis_session *session = nullptr;
            if (count % 8 == 6) {
                status = stasis_session_load(gemma(), path.c_str(), nullptr, &session, &error);
            } else {
                std::ifstream file(path, std::ios::binary);
                auto source = sized<stasis_source>();
                source.read = read_from;
                source.user = &file;
                status = stasis_session_read(gemma(), &source, nullptr, &session, &error);
                ++streams;
                if (caught_a_write(status, error)) {
                    ++caught;
                    status = STASIS_OK;
                }
            }
            stasis_session_free(session);
        }
        if (status != STASIS_OK) {
            return error.message;
        }
    }
    if (caught > 1 + streams / 10) { // some in a thousand, on a busy machine
        return std::to_string(caught) + " of " + std::to_string(streams) +
               " streams caught a write";
    }
    return "";
}

} // namespace

TEST_CASE("stasis_session_load: readers of a file keep their state while a writer commits single "
          "tokens to it") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(40));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    std::atomic<bool> done{false};
    std::string found[2];
    uint64_t counts[2] = {};
    std::thread readers[2];
    for (size_t i = 0; i < 2; ++i) {
        readers[i] = std::thread([&, i] { found[i] = read_in_turn(path, done, counts[i]); });
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    stasis_status status = STASIS_OK;
    uint64_t commits = 1;
    for (; status == STASIS_OK && std::chrono::steady_clock::now() < end; ++commits) {
        if (position(session.get()) > 200) {
            status =
                stasis_session_rewind(session.get(), 40, STASIS_REWIND_RECOMPUTE, nullptr, nullptr);
        }
        append(session.get(), some_tokens(1, static_cast<uint32_t>(commits)));
        status = status == STASIS_OK ? save(session.get(), path) : status;
    }
    done = true;
    for (std::thread &reader : readers) {
        reader.join();
    }
    CHECK(status == STASIS_OK);
    CHECK(found[0] == "");
    CHECK(found[1] == "");
    CHECK(snapshot_info(path).commits == commits);
    MESSAGE(commits << " commits, " << counts[0] + counts[1] << " reads");
}
