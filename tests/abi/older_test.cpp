// A file whose last commit is damaged: every call that would continue from it refuses it, unless
// asked for the older state, and every inspection reports it. And the checksums of sections that no
// state refers to.
#include "tests/abi/fixture.h"
#include "tests/abi/restored.h"

using namespace abi_test;

namespace {

constexpr size_t kSlotA = 4096, kSlotB = 8192, kSectionsBegin = 12288;

struct TwoCommits {
    std::string bytes;
    Digest first, second;
};

// The first commit's root is in slot A, the second's in slot B.
TwoCommits two_commits(const std::string &path, uint32_t codec = STASIS_CODEC_RAW) {
    const Session session = session_of(gemma(), some_tokens(40));
    TwoCommits made;
    made.first = digest(session.get());
    REQUIRE(save_as(session.get(), path, codec) == STASIS_OK);
    append(session.get(), some_tokens(10, 2));
    made.second = digest(session.get());
    REQUIRE(save_as(session.get(), path, codec) == STASIS_OK);
    made.bytes = read_file(path);
    return made;
}

stasis_status load_with(const std::string &path, uint32_t flags, Session &loaded,
                        stasis_error &error) {
    auto options = sized<stasis_load_options>();
    options.flags = flags;
    stasis_session *session = nullptr;
    const stasis_status status =
        stasis_session_load(gemma(), path.c_str(), &options, &session, &error);
    loaded.reset(session);
    return status;
}

stasis_verify_report verified(const std::string &path, uint32_t flags, stasis_status expected) {
    auto options = sized<stasis_verify_options>();
    options.flags = flags;
    auto report = sized<stasis_verify_report>();
    stasis_error error;
    const stasis_status status =
        stasis_snapshot_verify(open_snapshot(path).get(), gemma(), &options, &report, &error);
    CHECK_MESSAGE(status == expected, error.message);
    return report;
}

} // namespace

TEST_CASE("stasis_session_load: a damaged last commit is refused by load, save and compact, and "
          "told by the others") {
    const Folder folder;
    const std::string path = folder.file("a");
    const TwoCommits made = two_commits(path);
    for (const size_t at : {kSlotB, kSlotB + 20, kSlotB + 108, kSlotB + 600, kSlotB + 4095}) {
        CAPTURE(at);
        const std::string damaged = flipped(made.bytes, at);
        write_file(path, damaged);
        std::filesystem::permissions(path, std::filesystem::perms(0600));
        stasis_error error;
        Session older;
        CHECK(load_with(path, 0, older, error) == STASIS_CORRUPT);
        CHECK(contains(error, "the root of its last commit, at byte 8192, is damaged"));
        CHECK(contains(error, "commit 1, before it, is whole, of 40 positions"));
        CHECK(stasis_snapshot_compact(path.c_str(), nullptr, &error) == STASIS_CORRUPT);
        Memory memory{damaged};
        const stasis_source source = memory.source();
        stasis_session *read = nullptr;
        CHECK(stasis_session_read(gemma(), &source, nullptr, &read, &error) == STASIS_CORRUPT);
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK(info.older == 1);
        CHECK(info.flags == STASIS_SNAPSHOT_DAMAGED_ROOT);
        CHECK(info.commits == 1);
        CHECK(verified(path, 0, STASIS_OK).older == 1);

        REQUIRE(load_with(path, STASIS_LOAD_ACCEPT_OLDER, older, error) == STASIS_OK);
        CHECK(digest(older.get()) == made.first);
        CHECK(info_of(older).older == 1);
        const Session other = session_of(gemma(), some_tokens(45));
        CHECK(info_of(other).older == 0);
        CHECK(save(other.get(), path) == STASIS_INVALID_ARGUMENT);
        CHECK(read_file(path) == damaged);
        const Session child = fork(older.get());
        CHECK(info_of(child).older == 1);
        append(child.get(), some_tokens(1, 5));
        REQUIRE(save(child.get(), path) == STASIS_OK); // it knows what it was loaded from
        CHECK(info_of(child).older == 0);
        CHECK(snapshot_info(path).older == 0);
        CHECK(snapshot_info(path).flags == 0);
        CHECK(digest(load(gemma(), path).get()) == digest(child.get()));
        write_file(path, damaged);
        CHECK(save(other.get(), path, STASIS_SAVE_REPLACE) == STASIS_OK);
    }
}

TEST_CASE(
    "stasis_session_load: damage to the slot of an older commit keeps nobody from the last one") {
    const Folder folder;
    const std::string path = folder.file("a");
    const TwoCommits made = two_commits(path);
    write_file(path, flipped(made.bytes, kSlotA + 20));
    CHECK(snapshot_info(path).flags == STASIS_SNAPSHOT_DAMAGED_ROOT);
    CHECK(snapshot_info(path).older == 0);
    CHECK(digest(load(gemma(), path).get()) == made.second);
    CHECK(verified(path, 0, STASIS_OK).older == 0);
    verified(path, STASIS_VERIFY_STRICT, STASIS_CORRUPT);
}

TEST_CASE(
    "STASIS_VERIFY_STRICT: the strict verification finds each flipped byte, dead ones included") {
    for (const uint32_t codec : {STASIS_CODEC_RAW, STASIS_CODEC_ZSTD}) {
        CAPTURE(codec);
        const Folder folder;
        const std::string path = folder.file("a");
        const TwoCommits made = two_commits(path, codec);
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK(info.dead_bytes > 0);
        CHECK(verified(path, STASIS_VERIFY_STRICT, STASIS_OK).sections > 5);
        CHECK(verified(path, 0, STASIS_OK).sections == 0);
        for (size_t at = 0; at < info.file_bytes; at += 97) {
            write_file(path, flipped(made.bytes, at));
            stasis_snapshot *opened = nullptr;
            if (stasis_snapshot_open(path.c_str(), &opened, nullptr) == STASIS_OK) {
                stasis_snapshot_close(opened);
                verified(path, STASIS_VERIFY_STRICT, STASIS_CORRUPT);
            }
        }
        write_file(path, made.bytes);
        REQUIRE(stasis_snapshot_compact(path.c_str(), nullptr, nullptr) == STASIS_OK);
        CHECK(snapshot_info(path).dead_bytes == 0);
        verified(path, STASIS_VERIFY_STRICT, STASIS_OK);
    }
}
