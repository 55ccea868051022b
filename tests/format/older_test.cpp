// A root slot that cannot be read: damage to the last commit's is found whatever byte it affects,
// and the state before it is only used if that is asked for; a slot that a crash tore, and one of
// an older commit, have no effect.
#include <doctest/doctest.h>

#include <random>

#include "disk.h"
#include "format/constants.h"
#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// The same file after each of its commits; the first one is a save to a new file, or a stream form.
std::vector<Bytes> file_of_commits(const std::string &path, bool streamed) {
    std::vector<Bytes> after;
    for (const uint64_t position : {33, 35, 34, 37, 40}) {
        if (streamed && after.empty()) {
            Bytes bytes;
            const auto take = [](void *user, const void *data, size_t size_bytes) {
                const auto *begin = static_cast<const uint8_t *>(data);
                auto *all = static_cast<Bytes *>(user);
                all->insert(all->end(), begin, begin + size_bytes);
            };
            write_stream(small_state(position), {&bytes, take}, {});
            write_bytes(path, bytes);
        } else { // some have the feature of data
            const State state = small_state(position);
            save(position % 3 == 1 ? with_data(state, 100, position % 5) : state, path, {});
        }
        after.push_back(read_bytes(path));
    }
    return after;
}

std::shared_ptr<const Snapshot> open_bytes(const Bytes &bytes) {
    return Snapshot::open("memory", memory_files(bytes));
}

uint64_t other(uint64_t slot) {
    return slot == kSlotA ? kSlotB : kSlotA;
}

// The file's last commit is damaged: the one before opens, marked, and nothing takes it for the
// last.
void check_older(const Bytes &bytes, const Digest &before) {
    const auto snapshot = open_bytes(bytes);
    REQUIRE(snapshot->older());
    REQUIRE(snapshot->slot_damaged());
    REQUIRE(snapshot->state().digest == before);
    REQUIRE_THROWS_WITH_AS(snapshot->require_newest(),
                           doctest::Contains("the root of its last commit, at byte"), Error);
}

Digest digest_of(const Bytes &bytes) {
    return open_bytes(bytes)->state().digest;
}

// Calls `check` for files of 2 to 5 commits, with the slot of the last one and what it was before.
template <class Check> void for_each_file(const Check &check) {
    for (const bool streamed : {false, true}) {
        const ScratchFolder folder;
        const std::vector<Bytes> after = file_of_commits(folder.path("s"), streamed);
        for (size_t i = 1; i < after.size(); ++i) {
            CAPTURE(streamed);
            CAPTURE(i);
            check(after[i], after[i - 1], open_bytes(after[i])->slot());
        }
    }
}

} // namespace

TEST_CASE("Snapshot::open: one flipped bit in any byte of the last commit's slot is told from an "
          "unfinished one") {
    for_each_file([](Bytes bytes, const Bytes &earlier, uint64_t slot) {
        const Digest before = digest_of(earlier);
        // A flip that gives the last byte the value it had before, zero or an older root's, may be
        // a write that ended there.
        const size_t last = slot + kBlockBytes - 1;
        int excused = 0;
        for (size_t at = slot; at <= last; ++at) {
            const bool used = at < slot + kRootBytes || at >= slot + kBlockBytes - sizeof(Checksum);
            for (size_t bit = used ? 0 : at % 8; bit < 8; bit += used ? 1 : 8) {
                CAPTURE(at);
                bytes[at] ^= static_cast<uint8_t>(1 << bit);
                if (at == last && !Snapshot::open("memory", memory_files(bytes))->older()) {
                    ++excused;
                } else {
                    check_older(bytes, before);
                }
                bytes[at] ^= static_cast<uint8_t>(1 << bit);
            }
        }
        CHECK(excused <= 2);
        load("memory", {}, memory_files(bytes));
        bytes[slot + 108] ^= 1;
        CHECK_THROWS_AS(load("memory", {}, memory_files(bytes)), Error);
    });
}

TEST_CASE("Snapshot::open: several flipped bits in the last commit's slot are told from an "
          "unfinished one") {
    for_each_file([](const Bytes &bytes, const Bytes &earlier, uint64_t slot) {
        const Digest before = digest_of(earlier);
        for (uint32_t seed = 0; seed < 400; ++seed) {
            CAPTURE(seed);
            std::mt19937 random(seed);
            Bytes damaged = bytes;
            for (uint32_t left = 2 + random() % 40; left > 0; --left) {
                const size_t in = seed % 2 == 0 ? random() % kBlockBytes
                                  : random() % 2 == 0
                                      ? random() % kRootBytes
                                      : kBlockBytes - 1 - random() % sizeof(Checksum);
                damaged[slot + in] ^= static_cast<uint8_t>(1 << random() % 8);
            }
            if (damaged != bytes) {
                check_older(damaged, before);
            }
        }
        Bytes garbage = bytes; // a block that something else has overwritten
        std::fill_n(garbage.begin() + static_cast<ptrdiff_t>(slot), kBlockBytes, uint8_t{0x5A});
        check_older(garbage, before);
    });
}

TEST_CASE("Snapshot::open: damage to the slot of an older commit is seen, and costs nothing") {
    for_each_file([](Bytes bytes, const Bytes &, uint64_t slot) {
        const Digest newest = digest_of(bytes);
        for (size_t at = other(slot); at < other(slot) + kBlockBytes; ++at) {
            bytes[at] ^= 0x10;
            const auto snapshot = open_bytes(bytes);
            REQUIRE(snapshot->slot_damaged());
            REQUIRE(!snapshot->older());
            REQUIRE(snapshot->state().digest == newest);
            bytes[at] ^= 0x10;
        }
        std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(other(slot)), kBlockBytes, uint8_t{7});
        CHECK(!open_bytes(bytes)->older());
    });
}

TEST_CASE("Snapshot::open: a slot torn between any of its sectors is an unfinished commit, also "
          "once it is cleared") {
    constexpr size_t kSectors = kBlockBytes / kTornBytes;
    for_each_file([](const Bytes &bytes, const Bytes &before, uint64_t slot) {
        const Digest old = digest_of(before), next = digest_of(bytes);
        size_t torn = 0;
        // Each sector as it was, as the commit writes it or, from where that was given up, zero.
        for (uint32_t written = 0; written < (1U << kSectors); ++written) {
            for (const uint32_t cleared : {0U, 1U, 1U << (kSectors - 1), 0xFFU}) {
                Bytes mixed = bytes;
                for (size_t sector = 0; sector < kSectors; ++sector) {
                    const auto at = static_cast<ptrdiff_t>(slot + sector * kTornBytes);
                    if ((cleared >> sector & 1) != 0 && written != 0xFF) {
                        std::fill_n(mixed.begin() + at, kTornBytes, uint8_t{0});
                    } else if ((written >> sector & 1) == 0) {
                        std::copy_n(before.begin() + at, kTornBytes, mixed.begin() + at);
                    }
                }
                const auto snapshot = open_bytes(mixed);
                REQUIRE(!snapshot->older());
                const Digest &digest = snapshot->state().digest;
                REQUIRE((digest == old || digest == next));
                torn += snapshot->slot_damaged() ? 1 : 0;
            }
        }
        CHECK(torn > 200);
    });
}

TEST_CASE("Snapshot::open: whether a slot was torn is told in memory that is worth the file") {
    for_each_file([](const Bytes &bytes, const Bytes &, uint64_t slot) {
        Bytes damaged = bytes;
        damaged[slot] ^= 1;
        largest_allocation();
        const auto snapshot = open_bytes(damaged);
        CHECK(largest_allocation() < 4 * bytes.size());
    });
}

TEST_CASE("save: no save and no compaction passes over a damaged last commit unknowingly") {
    for (const bool streamed : {false, true}) {
        CAPTURE(streamed);
        const ScratchFolder folder;
        const std::string path = folder.path("s");
        Bytes bytes = file_of_commits(path, streamed).back();
        const auto whole = Snapshot::open(path);
        bytes[whole->slot() + 108] ^= 1;
        write_bytes(path, bytes);
        const auto older = Snapshot::open(path);
        REQUIRE(older->older());
        CHECK(older->contents()->older);
        const State next = small_state(45);
        const char *why = "the root of its last commit";
        CHECK_THROWS_WITH_AS(save(next, path, {}), doctest::Contains(why), Error);
        // The session's knowledge is of the damaged commit, or of another file's older state.
        CHECK_THROWS_AS(save(next, path, {.known = whole->contents()}), Error);
        const auto elsewhere = std::make_shared<Contents>(*older->contents());
        elsewhere->root.sequence += 1;
        CHECK_THROWS_AS(save(next, path, {.known = elsewhere}), Error);
        CHECK_THROWS_WITH_AS(compact(path, {}), doctest::Contains(why), Error);
        CHECK(read_bytes(path) == bytes);
        CHECK(folder.names() == std::vector<std::string>{"s"});
        // A session that accepted the older state and continued from it may commit to it.
        const auto written = save(next, path, {.known = older->contents()});
        CHECK(!written->older);
        CHECK(!Snapshot::open(path)->slot_damaged());
        CHECK(Snapshot::open(path)->root().sequence == older->root().sequence + 1);
        check_same(next, load(path, {}));
        write_bytes(path, bytes);
        save(next, path, {.replace = true});
        check_same(next, load(path, {}));
    }
}
