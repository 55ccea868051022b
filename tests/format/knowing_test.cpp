// A save may use what the caller knows of the file instead of reading it: the contents that the
// last save returned, and a page's digest when it was shorter. The file becomes the same, byte for
// byte.
#include <doctest/doctest.h>

#include <atomic>

#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

using Known = std::shared_ptr<const Contents>;

std::atomic<uint64_t> bytes_read{0};

const FileOperations &read_counting_files() {
    static const FileOperations operations = [] {
        FileOperations files = system_files();
        files.read_at = [](int descriptor, void *data, size_t size_bytes, off_t offset) {
            bytes_read += size_bytes;
            return system_files().read_at(descriptor, data, size_bytes, offset);
        };
        files.sync = [](int) { return 0; };
        return files;
    }();
    return operations;
}

// The contents that a save returned are those that an open reads.
void check_told(const Contents &told, const std::string &path) {
    const auto snapshot = Snapshot::open(path);
    const Contents &read = *snapshot->contents();
    CHECK(told.root == read.root);
    check_same(told.state, read.state);
    CHECK(told.state.storage.empty());
    CHECK(told.state.digest == read.state.digest);
    CHECK(told.layout == read.layout);
    CHECK(told.trees == read.trees);
    CHECK(told.texts == read.texts);
    CHECK(told.pages == read.pages);
}

} // namespace

TEST_CASE("save: one who knows the file writes what one writes who reads it") {
    const ScratchFolder folder;
    const std::string reading = folder.path("reading"), knowing = folder.path("knowing");
    Known known;
    const auto commit = [&](const State &state, SaveOptions options) {
        CAPTURE(state.log.size());
        save(state, reading, options, read_counting_files());
        options.known = known;
        known = save(state, knowing, options, read_counting_files());
        CHECK(read_bytes(reading) == read_bytes(knowing));
        check_told(*known, knowing);
    };
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        for (const Keep keep : {Keep::full, Keep::none}) {
            for (const uint64_t position : {0, 1, 33, 70, 150, 149, 96, 64, 131, 320, 4, 40}) {
                commit(course(position), {.keep = keep, .codec = codec});
            }
            for (const State &state : {course(120, 2, 50), course(120), course(33, 3, 20)}) {
                commit(state, {.keep = keep, .codec = codec});
            }
        }
    }
}

TEST_CASE("save: one who knows the file reads no more of it than its roots") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const Known known = save(course(96), path, {});
    bytes_read = 0;
    save(course(97), path, {.known = known}, read_counting_files());
    const uint64_t knowing = bytes_read;
    CHECK(knowing <= 3 * kBlockBytes);
    bytes_read = 0;
    save(course(97), path, {}, read_counting_files());
    CHECK(bytes_read > knowing + 97 * sizeof(TokenEntry));
}

TEST_CASE("save: what is known of a file counts only while the file is like that") {
    const ScratchFolder folder;
    const std::string path = folder.path("s"), other = folder.path("other");
    const Known old = save(course(70), path, {});
    save(course(120), path, {}); // another process
    check_told(*save(course(80), path, {.known = old}), path);
    check_same(course(80), load(path, {}));
    const Known now = save(course(90), path, {});
    compact(path, {}); // the same state at other places
    check_told(*save(course(95), path, {.known = now}), path);
    check_same(course(95), load(path, {}));
    save(course(40, 5), other, {}); // another file
    check_told(*save(course(60, 5), other, {.known = now}), other);
    check_same(course(60, 5), load(other, {}));
}

TEST_CASE("save: who knows a file that was changed behind its roots reads it, and refuses it") {
    const ScratchFolder folder;
    const std::string path = folder.path("s"), copy = folder.path("copy");
    const Known known = save(course(90), path, {});
    const Bytes bytes = read_bytes(path);
    const NodeRef leaf = known->trees.log.levels[0][0];
    const auto write = [&](const std::string &to, uint8_t flip) {
        Bytes changed = bytes;
        changed[leaf.section + kFrameBytes + leaf.begin + 20] ^= flip;
        write_bytes(to, changed);
    };
    write(path, 1);
    CHECK_THROWS_AS(save(course(95), path, {.known = known}), Error);
    write(copy, 1);
    CHECK_THROWS_AS(save(course(95), copy, {.known = known}), Error);
    write(path, 0);
    save(course(95), path, {.known = known});
    check_same(course(95), load(path, {}));
}

TEST_CASE("save: a page that the file has as it was before is continued without being read") {
    const ScratchFolder folder;
    const std::string read = folder.path("read"), known = folder.path("known");
    const State before = course(90);
    State after = course(95);
    const auto commit_after = [&](const std::string &path, bool knowing) {
        const Known contents = save(before, path, {});
        bytes_read = 0;
        save(after, path, {.known = knowing ? contents : nullptr}, read_counting_files());
        return bytes_read.load();
    };
    commit_after(read, false);
    const uint64_t all = commit_after(folder.path("all"), true);
    uint64_t partial_pages = 0;
    for (size_t group = 0; group < after.pages.size(); ++group) {
        after.pages[group].back().earlier_valid = before.pages[group].back().valid;
        after.pages[group].back().earlier = before.pages[group].back().digest;
        partial_pages += page_stored_bytes(before, group, before.pages[group].back().valid);
    }
    CHECK(commit_after(known, true) + partial_pages < all);
    CHECK(read_bytes(read) == read_bytes(known));
    CHECK(commit_after(folder.path("unknown"), false) > all); // who does not know the file reads
    // Known by another digest, it is looked at.
    after.pages[0].back().earlier.bytes[0] ^= 1;
    CHECK(commit_after(folder.path("other"), true) + partial_pages >= all);
    check_same(after, load(folder.path("other"), {}));
}
