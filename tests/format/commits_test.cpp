// Commits to a file that is there: whatever a session did since, the file holds its state, bit for
// bit, and grew by little more than what is new.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

std::atomic<uint64_t> bytes_written{0};

// Counts, and does not wait for the disk: what must be synced is another test's.
const FileOperations &write_counting_files() {
    static const FileOperations operations = [] {
        FileOperations files = system_files();
        files.write_at = [](int descriptor, const void *data, size_t size_bytes, off_t offset) {
            bytes_written += size_bytes;
            return system_files().write_at(descriptor, data, size_bytes, offset);
        };
        files.sync = [](int) { return 0; };
        return files;
    }();
    return operations;
}

// Saves, checks what is loaded, and returns how many bytes were written.
uint64_t commit(const State &state, const std::string &path, const SaveOptions &options = {}) {
    CAPTURE(state.log.size());
    bytes_written = 0;
    save(state, path, options, write_counting_files());
    const uint64_t written = bytes_written;
    State found = load(path, {});
    if (options.keep == Keep::none) { // no page is there, and nothing else is missing
        for (const std::vector<Page> &pages : found.pages) {
            for (const Page &page : pages) {
                CHECK(page.data == nullptr);
            }
        }
        for (size_t group = 0; group < state.pages.size(); ++group) {
            for (size_t index = 0; index < state.pages[group].size(); ++index) {
                found.pages[group][index].data = state.pages[group][index].data;
            }
        }
    }
    check_same(state, found);
    return written;
}

// Upper bound of a commit: the new keys, values and tokens and a tenth, and 64 KiB.
uint64_t allowance(const State &state, uint64_t tokens) {
    uint64_t token_bytes = sizeof(TokenEntry);
    for (size_t group = 0; group < state.groups.size(); ++group) {
        token_bytes += page_stored_bytes(state, group, 1);
    }
    return tokens * token_bytes * 110 / 100 + (64U << 10);
}

const std::vector<Run> &runs(const Snapshot &snapshot, size_t group, uint64_t index) {
    return snapshot.page(group, index).runs;
}

} // namespace

TEST_CASE(
    "save: append, rewind, regrow and fork, into one file: what is loaded is what was saved") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    uint64_t commits = 0;
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        for (const uint64_t position : {0,  1,  2,  31,  32,  33,  70,  150, 149, 100, 96,
                                        97, 64, 63, 130, 131, 320, 319, 5,   4,   0,   40}) {
            commit(course(position), path, {.codec = codec});
            ++commits;
        }
        // A fork that parts at position 50, then the first course again, then ones that part
        // earlier.
        for (const State &state : {course(120, 2, 50), course(120), course(120, 3, 20),
                                   course(33, 3, 20), course(200, 4, 33), course(200, 4, 1)}) {
            commit(state, path, {.codec = codec});
            ++commits;
        }
    }
    CHECK(folder.names() == std::vector<std::string>{"s"});
    CHECK(Snapshot::open(path)->root().sequence == commits);
}

TEST_CASE("save: a commit keeps the slots that are the same, and only those") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const auto open = [&] { return Snapshot::open(path); };
    commit(course(70), path);
    const auto first = open();
    commit(course(90), path);
    const auto grown = open();
    // Two full pages shared; the third continues with a run of its own.
    CHECK(runs(*grown, 0, 0) == runs(*first, 0, 0));
    CHECK(runs(*grown, 0, 1) == runs(*first, 0, 1));
    REQUIRE(runs(*grown, 0, 2).size() == 2);
    CHECK(runs(*grown, 0, 2)[0] == runs(*first, 0, 2)[0]);
    CHECK(runs(*grown, 0, 2)[1].slots == 90 - 70);
    // A rewind uses less of the run, and writes no run.
    commit(course(72), path);
    const auto rewound = open();
    REQUIRE(runs(*rewound, 0, 2).size() == 2);
    CHECK(runs(*rewound, 0, 2)[1].slots == 20);
    CHECK(runs(*rewound, 0, 2)[1].used == 2);
    // Another course from position 71 on: one slot of that run stays in use.
    commit(course(75, 2, 71), path);
    const auto forked = open();
    REQUIRE(runs(*forked, 0, 2).size() == 3);
    CHECK(runs(*forked, 0, 2)[1].used == 1);
    CHECK(runs(*forked, 0, 2)[2].slots == 4);
    // The same state again: neither runs nor nodes.
    const uint64_t written = commit(course(75, 2, 71), path);
    CHECK(open()->trees().log.levels == forked->trees().log.levels);
    CHECK(open()->trees().pages[0].levels == forked->trees().pages[0].levels);
    CHECK(written < 2 * kBlockBytes + 4096);
    CHECK(runs(*forked, 1, 2)[0] == runs(*open(), 1, 2)[0]);
}

TEST_CASE("save: changing codec and what is kept, back and forth") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const SaveOptions zstd{.codec = Codec::zstd};
    const SaveOptions none{.keep = Keep::none};
    commit(course(70), path);
    commit(course(100), path, zstd); // old runs stay as they are
    commit(course(130), path);
    CHECK(Snapshot::open(path)->keep() == Keep::full);
    commit(course(130), path, none);
    CHECK(Snapshot::open(path)->keep() == Keep::none);
    const auto kept = Snapshot::open(path)->page(0, 1).fingerprints;
    CHECK(kept.size() == 32 + 2); // slots, layers
    commit(course(150), path, none);
    CHECK(Snapshot::open(path)->page(0, 1).fingerprints == kept);
    commit(course(40), path, none);
    commit(course(90), path); // all of it is written again
    CHECK(runs(*Snapshot::open(path), 0, 0).size() == 1);
    commit(course(95), path, none);
}

TEST_CASE("save: local pages that a session released go, and those that it kept stay") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    commit(sample_state({.position = 150, .window_retain = 1000}), path);
    commit(course(150), path); // releases pages 0 to 2 of the local group
    CHECK(!Snapshot::open(path)->stored(1, 2));
    commit(course(300), path);
    commit(sample_state({.position = 300, .window_retain = 1000}), path); // has them again
    CHECK(Snapshot::open(path)->stored(1, 0));
    commit(course(310), path, {.keep = Keep::none});
    // Released pages keep the fingerprints that were taken when they were there.
    CHECK(Snapshot::open(path)->page(1, 9).fingerprints.size() == 310 - 288 + 1);
    commit(course(600), path, {.keep = Keep::none});
    CHECK(Snapshot::open(path)->page(1, 8).fingerprints.size() == 32 + 1);
}

TEST_CASE("save: bytes of a commit follow the new tokens, at 1k as at 128k positions") {
    for (const uint64_t begin : {1000, 131000}) {
        for (const uint64_t step : {1, 60, 1000}) {
            const ScratchFolder folder;
            const std::string path = folder.path("s");
            const auto state = [](uint64_t position) {
                return sample_state({.position = position,
                                     .layers = 2,
                                     .kv_heads = 1,
                                     .head_dim = 4,
                                     .vocabulary = 4000,
                                     .page_positions = 64,
                                     .window = 512});
            };
            save(state(begin), path, {}, write_counting_files());
            uint64_t most = 0;
            for (uint64_t i = 1; i <= 4; ++i) {
                const State next = state(begin + i * step);
                const uint64_t written = commit(next, path);
                CHECK(written <= allowance(next, step));
                most = std::max(most, written);
            }
            MESSAGE("commits of " << step << " at " << begin << " positions: at most " << most
                                  << " bytes, " << allowance(state(0), step) << " allowed");
        }
    }
}

TEST_CASE("save: a thousand commits of one token each stay small, and the next one too") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const auto state = [](uint64_t position) {
        return sample_state({.position = position,
                             .layers = 2,
                             .kv_heads = 1,
                             .head_dim = 4,
                             .page_positions = 64,
                             .window = 128});
    };
    uint64_t most = 0;
    for (uint64_t position = 1; position <= 1000; ++position) {
        const State next = state(position);
        bytes_written = 0;
        save(next, path, {}, write_counting_files());
        most = std::max(most, bytes_written.load());
        CHECK(bytes_written <= allowance(next, 1));
    }
    MESSAGE("at most " << most << " bytes");
    check_same(state(1000), load(path, {}));
    CHECK(runs(*Snapshot::open(path), 0, 3).size() == 64);
}

TEST_CASE("save: a reader keeps its state through commits, a compaction and a replacement") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    save(course(100), path, {});
    const auto check = [](const Snapshot &snapshot, const State &state) {
        State found = snapshot.state();
        snapshot.read_pages(found, {});
        check_same(state, found);
    };
    const auto first = Snapshot::open(path);
    save(course(150), path, {});
    const auto second = Snapshot::open(path);
    save(course(60), path, {});
    check(*first, course(100));
    compact(path, {});
    check(*first, course(100));
    check(*second, course(150));
    save(course(70), path, {});
    save(course(80, 9), path, {.replace = true});
    check(*first, course(100));
    check(*second, course(150));
    check_same(course(80, 9), load(path, {}));
}

TEST_CASE("save: what an interrupted commit left behind the state is cut by the next one") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    save(course(100), path, {});
    Bytes bytes = read_bytes(path);
    const Digest root = Snapshot::open(path)->root().digest;
    bytes.resize(bytes.size() + 100000, 0x5A);
    write_bytes(path, bytes);
    CHECK(Snapshot::open(path)->root().digest == root);
    commit(course(101), path);
    CHECK(read_bytes(path).size() == Snapshot::open(path)->file_bytes());
    CHECK(read_bytes(path).size() < bytes.size());
}

TEST_CASE("save: threads write and read the same bits") {
    // Runs the pieces backwards: nothing may depend on their order.
    const Parallel backwards{nullptr,
                             [](void *, size_t count, void (*work)(void *, size_t), void *data) {
                                 while (count-- > 0) {
                                     work(data, count);
                                 }
                             }};
    const State state = sample_state({.position = 600, .head_dim = 64});
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        const Bytes alone = saved(state, {.codec = codec});
        CHECK(saved(state, {.codec = codec, .parallel = backwards}) == alone);
        const ScratchFolder folder;
        write_bytes(folder.path("s"), alone);
        check_same(state, load(folder.path("s"), {}, system_files(), backwards));
    }
    // If several pieces fail, the error of the first one is reported.
    Bytes damaged = saved(state);
    for (const uint64_t index : {5, 9}) {
        const auto snapshot = Snapshot::open("memory", memory_files(damaged));
        damaged[runs(*snapshot, 0, index)[0].offset + kFrameBytes] ^= 1;
    }
    const auto snapshot = Snapshot::open("memory", memory_files(damaged));
    State into = snapshot->state();
    try {
        snapshot->read_pages(into, {}, backwards);
        FAIL("read damaged pages");
    } catch (const Error &error) {
        CHECK(std::string(error.what()).find("page 5 of layer group 0") != std::string::npos);
    }
}

TEST_CASE("save: numbers that compress too well are stored raw, so that a reader's memory stays "
          "bounded") {
    State state = sample_state({.position = 64, .head_dim = 64});
    for (std::vector<Page> &pages : state.pages) {
        for (Page &page : pages) {
            if (page.data != nullptr) {
                std::fill_n(const_cast<uint16_t *>(page.data), page_elements(state, 0) / 2,
                            uint16_t{0});
                std::fill_n(const_cast<uint16_t *>(page.data), page_elements(state, 1),
                            uint16_t{0x3F80});
            }
        }
    }
    seal(state);
    const ScratchFolder folder;
    commit(state, folder.path("s"), {.codec = Codec::zstd});
    for (const Section &section : Snapshot::open(folder.path("s"))->sections()) {
        if (section.frame.kind == SectionKind::run) {
            CHECK(section.frame.raw_bytes / kCodecRatioMax <= section.frame.stored_bytes);
        }
    }
}
