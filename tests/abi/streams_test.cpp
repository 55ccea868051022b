// Snapshots through sinks and sources: memory, a socket, one that fails or ends at any byte.
#include <algorithm>
#include <thread>

#include <sys/socket.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// A sink into memory that accepts at most `room` bytes.
struct MemorySink {
    std::string bytes = {};
    size_t room = SIZE_MAX;
    size_t calls = 0;

    stasis_sink sink() {
        auto made = sized<stasis_sink>();
        made.user = this;
        made.write = [](void *user, const void *data, size_t size) -> int32_t {
            auto &self = *static_cast<MemorySink *>(user);
            ++self.calls;
            if (size > self.room - self.bytes.size()) {
                return 28;
            }
            self.bytes.append(static_cast<const char *>(data), size);
            return 0;
        };
        return made;
    }
};

// A source from memory that gives at most `step` bytes at a time.
struct MemorySource {
    std::string bytes = {};
    size_t step = SIZE_MAX;
    size_t at = 0;
    int64_t lie = 0; // returned instead, once all is read

    stasis_source source() {
        auto made = sized<stasis_source>();
        made.user = this;
        made.read = [](void *user, void *data, size_t size) -> int64_t {
            auto &self = *static_cast<MemorySource *>(user);
            const size_t count = std::min(std::min(size, self.step), self.bytes.size() - self.at);
            std::memcpy(data, self.bytes.data() + self.at, count);
            self.at += count;
            return count > 0 ? static_cast<int64_t>(count) : self.lie;
        };
        return made;
    }
};

std::string written(stasis_session *session, uint32_t codec = STASIS_CODEC_RAW,
                    uint32_t keep = STASIS_KEEP_FULL) {
    MemorySink memory;
    const stasis_sink sink = memory.sink();
    auto options = sized<stasis_save_options>();
    options.codec = codec;
    options.keep = keep;
    stasis_error error;
    const stasis_status status = stasis_session_write(session, &sink, &options, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return memory.bytes;
}

Session read_from(const stasis_source &source) {
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status = stasis_session_read(gemma(), &source, nullptr, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Session(session);
}

void check_same_from_here(stasis_session *a, stasis_session *b) {
    CHECK(digest(a) == digest(b));
    stasis_token x = 0, y = 1;
    REQUIRE(stasis_session_decode(a, &x, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_decode(b, &y, nullptr) == STASIS_OK);
    CHECK(x == y);
    CHECK(digest(a) == digest(b));
}

} // namespace

TEST_CASE("stasis_session_read: a stream loads to the same bits, whatever it keeps and in whatever "
          "pieces it comes") {
    for (const size_t count : {0U, 1U, 64U, 200U}) {
        const Session session = session_of(gemma(), some_tokens(count));
        for (const uint32_t codec : {STASIS_CODEC_RAW, STASIS_CODEC_ZSTD}) {
            for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
                MemorySource memory{written(session.get(), codec, keep)};
                for (const size_t step : {size_t{1}, size_t{1000}, SIZE_MAX}) {
                    memory.step = step;
                    memory.at = 0;
                    const Session again = read_from(memory.source());
                    CHECK(digest(again.get()) == digest(session.get()));
                    CHECK(memory.at == memory.bytes.size());
                }
                if (count > 0) {
                    memory.at = 0;
                    check_same_from_here(read_from(memory.source()).get(),
                                         fork(session.get()).get());
                }
            }
        }
    }
}

TEST_CASE(
    "stasis_session_write: what a sink was given is a file: it opens, loads, and takes commits") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(100));
    write_file(path, written(session.get()));
    std::filesystem::permissions(path, std::filesystem::perms::owner_read |
                                           std::filesystem::perms::owner_write);
    CHECK(digest(load(gemma(), path).get()) == digest(session.get()));
    const uintmax_t before = std::filesystem::file_size(path);
    append(session.get(), some_tokens(3, 5));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(digest(load(gemma(), path).get()) == digest(session.get()));
    CHECK(snapshot_info(path).commits == 2);
    CHECK(std::filesystem::file_size(path) - before < before / 4);

    // And the other way round: a file goes through a stream as it is.
    MemorySource memory{read_file(path)};
    CHECK(digest(read_from(memory.source()).get()) == digest(session.get()));
    memory.at = 0;
    stasis_snapshot *out = nullptr;
    const stasis_source source = memory.source();
    REQUIRE(stasis_snapshot_open_source(&source, &out, nullptr) == STASIS_OK);
    const Snapshot streamed(out);
    auto difference = sized<stasis_difference>();
    REQUIRE(stasis_snapshot_compare(out, open_snapshot(path).get(), &difference, nullptr) ==
            STASIS_OK);
    CHECK(difference.equal == 1);
    auto report = sized<stasis_verify_report>();
    CHECK(stasis_snapshot_verify(out, gemma(), nullptr, &report, nullptr) == STASIS_OK);
}

TEST_CASE(
    "stasis_session_write: a sink that fails at any byte: IO, the session goes on as it was") {
    const Session session = session_of(gemma(), some_tokens(70));
    const Digest before = digest(session.get());
    const std::string whole = written(session.get());
    for (size_t room = 0; room < whole.size(); room += room < 64 ? 1 : whole.size() / 97) {
        MemorySink memory;
        memory.room = room;
        const stasis_sink sink = memory.sink();
        stasis_error error;
        CHECK(stasis_session_write(session.get(), &sink, nullptr, &error) == STASIS_IO);
        CHECK_MESSAGE(contains(error, "returned 28"), error.message);
        CHECK(whole.substr(0, memory.bytes.size()) == memory.bytes);
    }
    CHECK(digest(session.get()) == before);
    CHECK(written(session.get()) == whole);
}

TEST_CASE("stasis_session_read: a source that ends, fails or lies at any byte is refused") {
    const Session session = session_of(gemma(), some_tokens(70));
    const std::string whole = written(session.get(), STASIS_CODEC_ZSTD);
    stasis_session *out = nullptr;
    stasis_snapshot *snapshot = nullptr;
    stasis_error error;
    for (size_t size = 0; size < whole.size(); size += size < 64 ? 1 : whole.size() / 97) {
        MemorySource memory{whole.substr(0, size)};
        const stasis_source source = memory.source();
        CHECK(stasis_session_read(gemma(), &source, nullptr, &out, &error) == STASIS_CORRUPT);
        CHECK_MESSAGE(contains(error, "ends at byte " + std::to_string(size)), error.message);
        memory.at = 0;
        memory.lie = -5;
        CHECK(stasis_session_read(gemma(), &source, nullptr, &out, &error) == STASIS_IO);
        CHECK_MESSAGE(contains(error, "at byte " + std::to_string(size)), error.message);
        memory.at = 0;
        memory.lie = INT64_MAX;
        CHECK(stasis_snapshot_open_source(&source, &snapshot, &error) == STASIS_INVALID_ARGUMENT);
    }
    CHECK(out == nullptr);
    CHECK(snapshot == nullptr);
    MemorySource rubbish{"this is no snapshot" + std::string(20000, 'x')};
    const stasis_source source = rubbish.source();
    CHECK(stasis_session_read(gemma(), &source, nullptr, &out, &error) == STASIS_CORRUPT);
    CHECK(rubbish.at < 8192); // it saw that early
}

TEST_CASE("stasis_session_read: one flipped bit anywhere in a stream is refused") {
    const Session session = session_of(gemma(), some_tokens(70));
    const std::string whole = written(session.get());
    for (size_t at = 0; at < whole.size(); at += 1 + at % 389) {
        MemorySource memory{whole};
        memory.bytes[at] = static_cast<char>(memory.bytes[at] ^ 16);
        const stasis_source source = memory.source();
        stasis_session *out = nullptr;
        stasis_error error;
        const stasis_status status = stasis_session_read(gemma(), &source, nullptr, &out, &error);
        const Session loaded(out);
        const bool slot = at >= 4096 && at < 3 * 4096; // both are empty in a stream
        if (slot && status == STASIS_OK) {
            CHECK(digest(out) == digest(session.get()));
        } else {
            CHECK_MESSAGE((status == STASIS_CORRUPT || status == STASIS_VERSION), at, ": ",
                          error.message);
        }
    }
}

TEST_CASE("stasis_session_read: through a socket, with more behind the snapshot") {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const Session first = session_of(gemma(), some_tokens(150));
    const Session second = session_of(gemma(), some_tokens(20, 7));
    auto sink = sized<stasis_sink>();
    sink.user = &ends[0];
    sink.write = [](void *user, const void *data, size_t size) -> int32_t {
        for (const char *at = static_cast<const char *>(data); size > 0;) {
            const ssize_t count = send(*static_cast<int *>(user), at, size, 0);
            if (count <= 0) {
                return 1;
            }
            at += count;
            size -= static_cast<size_t>(count);
        }
        return 0;
    };
    std::jthread writer([&] { // checked by what arrives
        stasis_session_write(first.get(), &sink, nullptr, nullptr);
        stasis_session_write(second.get(), &sink, nullptr, nullptr);
        send(ends[0], "the rest", 8, 0);
        shutdown(ends[0], SHUT_WR);
    });
    auto source = sized<stasis_source>();
    source.user = &ends[1];
    source.read = [](void *user, void *data, size_t size) -> int64_t {
        return recv(*static_cast<int *>(user), data, size, 0);
    };
    const Session one = read_from(source), two = read_from(source);
    writer.join();
    CHECK(digest(one.get()) == digest(first.get()));
    CHECK(digest(two.get()) == digest(second.get()));
    char rest[100];
    CHECK(recv(ends[1], rest, sizeof rest, MSG_WAITALL) == 8);
    CHECK(std::memcmp(rest, "the rest", 8) == 0);
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("stasis_session_read: callbacks of streams may look at nothing that is busy, and cancel "
          "the call") {
    const Session session = session_of(gemma(), some_tokens(70));
    struct Host {
        stasis_session *session;
        stasis_cancel *cancel;
        stasis_status busy;
    };
    const Cancel cancel = make_cancel();
    Host host{session.get(), cancel.get(), STASIS_OK};
    auto sink = sized<stasis_sink>();
    sink.user = &host;
    sink.write = [](void *user, const void *, size_t) -> int32_t {
        auto &own = *static_cast<Host *>(user);
        stasis_digest value;
        own.busy = stasis_session_digest(own.session, &value, nullptr);
        return 0;
    };
    auto options = sized<stasis_save_options>();
    options.cancel = cancel.get();
    CHECK(stasis_session_write(session.get(), &sink, &options, nullptr) == STASIS_OK);
    CHECK(host.busy == STASIS_BUSY);
    stasis_cancel_request(cancel.get());
    CHECK(stasis_session_write(session.get(), &sink, &options, nullptr) == STASIS_CANCELLED);
}
