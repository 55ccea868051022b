// A store that fails, loses or damages: errors that name what it was, and sessions as they were.
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>

#include "format/store/collect.h"
#include "store_case.h"
#include "tests/share.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// Three puts of a session with keys and values, a value of a host, and more than one segment.
struct Three {
    MemoryStore memory;
    State states[3] = {sample_state(large_pages(60)), sample_state(large_pages(110)),
                       with_data(sample_state(large_pages(150)), 6000)};
    StorePut last;

    Three() {
        for (const State &state : states) {
            last = memory.put(state, "s", last);
        }
    }
};

} // namespace

TEST_CASE("store: whichever call of the backend fails, the put fails and the session stays") {
    for (const bool answer_lost : {false, true}) {
        Three base;
        const State next = sample_state(large_pages(190));
        uint64_t failed = 0;
        for (uint64_t call = answer_lost ? 2 : 1;; ++call) { // a lock has no answer to lose
            CAPTURE(call);
            Trouble trouble;
            (answer_lost ? trouble.lose_answer_at : trouble.fail_at) = call;
            base.memory.backend->trouble(trouble);
            const std::string error = error_of([&] { base.memory.put(next, "s", base.last); });
            const bool reached = base.memory.backend->calls() >= call;
            base.memory.backend->trouble({});
            if (!reached) {
                CHECK(error.empty());
                break;
            }
            ++failed;
            CHECK(error.substr(0, 2) == "3 ");
            const State now = base.memory.get("s");
            if (answer_lost && now.digest == next.digest) { // that of the swap
                CHECK(error.find("swap") != std::string::npos);
                check_same(next, now);
                break;
            }
            check_same(base.states[2], now);
        }
        CHECK(failed > 10);
        check_same(next, base.memory.get("s"));
    }
}

TEST_CASE("store: a full backend, and one that fails from some call on, keep what was stored") {
    Three base;
    Trouble full;
    full.bytes_max = base.memory.backend->bytes() + 50000;
    base.memory.backend->trouble(full);
    const std::string error =
        error_of([&] { base.memory.put(sample_state(large_pages(190)), "s", base.last); });
    CHECK(error.find("no space left") != std::string::npos);
    check_same(base.states[2], base.memory.get("s"));
    base.memory.backend->trouble({});
    collect(*base.memory.backend, {});
    base.memory.put(sample_state(large_pages(190)), "s", base.last);
    check_same(sample_state(large_pages(190)), base.memory.get("s"));
}

TEST_CASE("store: an object of any kind that is damaged or missing is refused by its name") {
    Three base;
    MemoryBackend &backend = *base.memory.backend;
    const StoredSession opened = base.memory.store.open("s");
    std::vector<std::string> named = {root_key("s")};
    for (const SegmentRef &ref : opened.ranges->root().segments) {
        named.push_back(object_key(ref.digest));
    }
    std::set<std::string> live; // payloads that the last state refers to
    for (const Section &section : opened.snapshot->sections()) {
        for (const Segment &segment : opened.ranges->segments()) {
            for (const Extent &extent : segment.payloads) {
                if (extent.offset == section.offset + kFrameBytes) {
                    live.insert(object_key(extent.digest));
                }
            }
        }
    }
    REQUIRE(named.size() > 2);
    REQUIRE(live.size() > 10);
    named.insert(named.end(), live.begin(), live.end());
    for (const std::string &key : named) {
        CAPTURE(key);
        const Bytes bytes = *backend.get(key, {});
        std::vector<size_t> places = {0, bytes.size() / 2, bytes.size() - 1};
        for (size_t at = 0; at < std::min<size_t>(bytes.size(), 400); at += 7) {
            places.push_back(at);
        }
        for (const size_t at : places) {
            backend.damage(key, at);
            const std::string error = error_of([&] { base.memory.get("s"); });
            CHECK((error.substr(0, 2) == "6 " || error.substr(0, 2) == "7 "));
            CHECK(error.find(key) != std::string::npos);
            backend.damage(key, at);
        }
        backend.remove(key, {});
        const std::string error = error_of([&] { base.memory.get("s"); });
        CHECK(error.find(key == named[0] ? "no session" : key) != std::string::npos);
        backend.put(key, bytes, {});
        check_same(base.states[2], base.memory.get("s"));
    }

    // Bytes that change on their way are refused as well.
    for (uint64_t every = 1; every < 12; ++every) {
        Trouble trouble;
        trouble.damage_every = every;
        backend.trouble(trouble);
        CHECK(error_of([&] { base.memory.get("s"); }).substr(0, 2) == "6 ");
        trouble = {};
        trouble.lose_half_at = 10;
        backend.trouble(trouble);
        CHECK(error_of([&] { base.memory.get("s"); }).substr(0, 2) == "3 ");
        backend.trouble({});
    }
}

TEST_CASE("store: a put over a session of which something is lost writes all of it again") {
    const State next = sample_state(large_pages(190));
    for (size_t which = 0; which < 4; ++which) {
        CAPTURE(which);
        Three base;
        const StoredSession opened = base.memory.store.open("s");
        const std::vector<Segment> &segments = opened.ranges->segments();
        const std::string key = which == 0 ? object_key(segments[0].payloads[0].digest)
                                : which == 1
                                    ? object_key(segments.back().payloads.back().digest)
                                    : object_key(opened.ranges->root().segments[which - 2].digest);
        if (which % 2 == 0) {
            base.memory.backend->remove(key, {});
        } else {
            base.memory.backend->damage(key, 100);
        }
        REQUIRE(!error_of([&] { base.memory.get("s"); }).empty());
        // As a session would that was computed again: what it remembers is of no use.
        StorePutOptions options;
        options.expected = base.last.mark;
        options.repair = true;
        base.memory.store.put(next, "s", options);
        check_same(next, base.memory.get("s"));
    }
    // Without being told: from what it cannot read.
    Three base;
    const StoredSession opened = base.memory.store.open("s");
    base.memory.backend->remove(object_key(opened.ranges->root().segments[0].digest), {});
    StorePutOptions options;
    options.expected = base.last.mark;
    base.memory.store.put(next, "s", options);
    check_same(next, base.memory.get("s"));
}

TEST_CASE("store: forged segments and roots are refused, whatever field was changed") {
    Three base;
    const StoredSession opened = base.memory.store.open("s");
    const std::string key = "objects/x";
    const std::string root = root_key("s");
    const Bytes record = base.memory.backend->get_marked(root, {})->bytes;
    CHECK(encode_stored_root(decode_stored_root(record, root)) == record);
    for (size_t size = 0; size < record.size(); ++size) {
        CHECK(!error_of([&] { decode_stored_root(std::span(record).first(size), root); }).empty());
    }
    const auto resealed = [&](size_t at, uint8_t change) {
        Bytes bytes = record;
        bytes[at] ^= change;
        const Digest seal = Sha256().bytes(bytes.data(), bytes.size() - 32).finish();
        std::copy(seal.bytes.begin(), seal.bytes.end(), bytes.end() - 32);
        return bytes;
    };
    for (size_t at = 0; at < record.size() - 32; ++at) {
        // Whoever seals it again: what the manifest or the objects say contradicts it, or it is
        // the length of the state and other numbers that a root may have.
        const Bytes bytes = resealed(at, 1);
        MemoryStore forged;
        for (const std::string &each : keys_of(*base.memory.backend, kObjectPrefix)) {
            forged.backend->put(each, *base.memory.backend->get(each, {}), {});
        }
        forged.backend->swap(root, std::nullopt, bytes, {});
        const bool sequence_or_ignored = at >= 24 && at < 40; // of the root: not in the manifest
        const std::string error = error_of([&] { forged.get("s"); });
        CAPTURE(at);
        CHECK((sequence_or_ignored || !error.empty()));
    }

    for (const Segment &segment : opened.ranges->segments()) {
        const Bytes bytes = encode_segment(segment);
        CHECK(encode_segment(decode_segment(bytes, key)) == bytes);
        for (size_t size = 0; size < bytes.size(); size += 1 + size / 64) {
            CHECK(error_of([&] { decode_segment(std::span(bytes).first(size), key); }).find(key) !=
                  std::string::npos);
        }
        const size_t header = 32 + 48 * segment.payloads.size();
        for (size_t at = 0; at < header; ++at) {
            const bool digest = at >= 32 && (at - 32) % 48 >= 16; // checked when it is read
            Bytes forged = bytes;
            forged[at] ^= 1;
            CHECK((digest || !error_of([&] { decode_segment(forged, key); }).empty()));
        }
    }
}

TEST_CASE("store: whatever kind it is, a writer that is killed at any moment leaves it whole") {
    const ScratchFolder folder;
    std::shared_ptr<Backend> (*open)(const std::string &path) = nullptr;
    SUBCASE("a directory") {
        open = [](const std::string &path) -> std::shared_ptr<Backend> {
            return open_directory_backend(path);
        };
    }
    SUBCASE("a database") {
        open = [](const std::string &path) -> std::shared_ptr<Backend> {
            return open_sqlite_backend(path);
        };
    }
    constexpr uint64_t kMost = 60;
    std::vector<State> states;
    for (uint64_t position = 1; position <= kMost; ++position) {
        states.push_back(sample_state(large_pages(position)));
    }
    std::mt19937_64 random(20261126);
    uint64_t position = 0;
    // Until a put has ended, for a slow machine.
    const uint64_t rounds = test::kSanitized ? 5 : 40, rounds_max = 1000;
    for (uint64_t round = 0; round < rounds || (position == 0 && round < rounds_max); ++round) {
        const pid_t writer = fork();
        REQUIRE(writer >= 0);
        if (writer == 0) {
            try {
                const Store store(open(folder.path("d")));
                StorePutOptions options;
                for (uint64_t next = position % kMost;; next = (next + 1) % kMost) {
                    options.overwrite = true;
                    store.put(states[next], "s", options);
                }
            } catch (...) {
                _exit(1);
            }
        }
        usleep(static_cast<useconds_t>(random() % (position == 0 ? (round + 1) * 30000 : 30000)));
        kill(writer, SIGKILL);
        int status = 0;
        REQUIRE(waitpid(writer, &status, 0) == writer);
        REQUIRE(WIFSIGNALED(status));
        const Store store(open(folder.path("d")));
        bool there = false;
        store.list([&](const ListedSession &session) {
            CHECK(session.damage.empty());
            return there = true;
        });
        if (there) {
            const StoredSession opened = store.open("s");
            State state = opened.snapshot->state();
            opened.snapshot->read_pages(state, {});
            check_same(states[state.log.size() - 1], state);
            position = state.log.size();
        }
        if (round % 4 == 0) {
            collect(store.backend(), {});
        }
    }
    CHECK(position != 0);
}

TEST_CASE("store: a damaged segment that sessions have in common is put anew by the next of them") {
    MemoryStore memory;
    const auto put = [&](uint64_t seed) {
        StorePutOptions options;
        options.lender = seed == 2 ? "" : "2";
        const State state = sample_state(large_pages(2110, seed, 2070));
        memory.store.put(state, std::to_string(seed), options);
        return state;
    };
    put(2);
    const State third = put(3);
    const std::vector<SegmentRef> segments = memory.store.open("3").ranges->root().segments;
    REQUIRE(segments.size() == 2);
    const std::string key = object_key(segments[0].digest);
    REQUIRE(memory.backend->damage(key, 4000));
    CHECK(error_of([&] { memory.get("3"); }).find(key) != std::string::npos);
    const State fourth = put(4);
    CHECK(memory.store.open("4").ranges->root().segments[0].digest == segments[0].digest);
    check_same(fourth, memory.get("4"));
    check_same(third, memory.get("3"));
}

// Puts a session of full pages, of which a process that knows it reads nothing, and what follows
// it, after a segment was damaged or removed. It must be whole for another process.
void put_over_lost(const State states[3], const std::string &name, size_t index, bool damaged) {
    MemoryStore memory;
    const StorePut last = memory.put(states[1], "s", memory.put(states[0], "s"));
    memory.store.fork("s", "forked", false);
    const StoredRoot root = memory.store.open("s").ranges->root();
    REQUIRE(root.segments.size() == 2);
    REQUIRE((root.segments[0].object_bytes > 1 << 20) == (states[0].log.size() > 10000));
    const std::string key = object_key(root.segments[index].digest);
    if (damaged) {
        REQUIRE(memory.backend->damage(key, 100));
    } else {
        memory.backend->remove(key, {});
    }
    StorePutOptions options;
    options.expected = last.mark;
    options.overwrite = name != "s";
    options.save.known = last.contents;
    memory.store.put(states[2], name, options);
    check_same(states[2], whole(Store(memory.backend), name));
}

TEST_CASE("store: a segment that is lost while its session is in memory is put anew") {
    const auto at = [](Shape shape, uint64_t position) {
        shape.position = position;
        return sample_state(shape);
    };
    const Shape small = large_pages(0);
    const State states[3] = {at(small, 96), at(small, 160), at(small, 190)};
    // Pages within the segment, of which there is more than is read each time.
    const State large[3] = {at({}, 16384), at({}, 16416), at({}, 16420)};
    for (const std::string name : {"s", "forked"}) {
        CAPTURE(name);
        for (const size_t index : {0, 1}) {
            put_over_lost(states, name, index, false);
            put_over_lost(states, name, index, true);
            put_over_lost(large, name, index, false);
        }
        put_over_lost(large, name, 1, true);
    }
}

TEST_CASE("store: a file with a section among its dead bytes that is longer than it is refused") {
    const State state = sample_state(large_pages(40));
    const Bytes file = saved(state);
    const auto snapshot = Snapshot::open("x", memory_files(file));
    const Root root = snapshot->root();
    const auto begin = file.begin() + static_cast<ptrdiff_t>(root.manifest_offset + kFrameBytes);
    const Bytes manifest(begin, begin + static_cast<ptrdiff_t>(root.manifest_bytes));
    const uint64_t rest = section_bytes(manifest.size()); // after the dead frame
    for (const uint64_t bytes : {uint64_t{1} << 40, UINT64_MAX, rest + 1, rest}) {
        for (const SectionKind kind : {SectionKind::run, SectionKind::hidden}) {
            CAPTURE(bytes);
            const FrameBytes frame = encode_frame({kind, Codec::raw, bytes, bytes, {}, 1});
            const Bytes forged =
                with_manifest(file, *snapshot, Bytes(frame.begin(), frame.end()), manifest);
            const ScratchFolder folder;
            write_bytes(folder.path("x"), forged);
            MemoryStore memory;
            const std::string error =
                error_of([&] { memory.store.import(*Snapshot::open(folder.path("x")), "s", {}); });
            if (bytes == rest) { // what follows is within it, and is read all the same
                CHECK(error.empty());
                check_same(state, memory.get("s"));
            } else {
                CHECK(error.find(folder.path("x") + ": the last section is cut off") !=
                      std::string::npos);
                CHECK(keys_of(*memory.backend, kRootPrefix).empty());
            }
            collect(*memory.backend, {});
        }
    }
}
