// Mending a store: whatever is damaged or cannot be read, a put makes it whole and nothing worse.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "store_case.h"

using namespace stasis;
using namespace stasis::format;

TEST_CASE("store: a damaged segment is put anew by whoever puts or imports the same session") {
    const State state = sample_state(large_pages(150));
    const ScratchFolder folder;
    write_bytes(folder.path("x"), saved(state));
    for (const bool import : {false, true}) {
        CAPTURE(import);
        MemoryStore memory;
        memory.put(state, "first");
        const std::vector<SegmentRef> segments = memory.store.open("first").ranges->root().segments;
        REQUIRE(segments.size() == 1);
        REQUIRE(memory.backend->damage(object_key(segments[0].digest), 200));
        if (import) {
            memory.store.import(*Snapshot::open(folder.path("x")), "second", {});
        } else {
            memory.put(state, "second");
        }
        CHECK(memory.store.open("second").ranges->root().segments[0].digest == segments[0].digest);
        check_same(state, memory.get("second"));
        check_same(state, memory.get("first"));
    }
}

TEST_CASE("store: a lender that cannot be read is none") {
    const State state = sample_state(large_pages(2110, 3, 2070));
    for (const bool known : {false, true}) { // then it is read only while the put is written
        CAPTURE(known);
        MemoryStore memory;
        const StorePut lender = memory.put(sample_state(large_pages(2110, 2, 2070)), "lender");
        StorePutOptions options;
        options.lender = "lender";
        options.lender_known = known ? lender.contents : nullptr;
        const auto unreadable = [&](const std::string &what, const std::string &prefix) {
            memory.backend->meanwhile([=](const char *call, const std::string &key) {
                if (what == call && key.starts_with(prefix)) {
                    fail(Status::io, "memory: %s: %s: it failed", call, key.c_str());
                }
            });
        };
        unreadable("put", kObjectPrefix);
        const std::string error = error_of([&] { memory.store.put(state, "s", options); });
        CHECK(error.substr(0, 2) == "3 ");
        memory.backend->meanwhile({});
        const SegmentRef segment = memory.store.open("lender").ranges->root().segments[0];
        std::set<std::string> got;
        memory.backend->meanwhile([&](const char *call, const std::string &key) {
            if (call != std::string_view("get")) {
                return;
            }
            got.insert(key);
            if (key == object_key(segment.digest)) {
                fail(Status::io, "memory: get: it failed");
            }
        });
        memory.store.put(state, "s", options);
        memory.backend->meanwhile({});
        // What is whole is not read back: no payload, and of segments only what begins anew.
        const std::vector<SegmentRef> segments = memory.store.open("s").ranges->root().segments;
        CHECK(got == std::set{object_key(segment.digest), object_key(segments[0].digest)});
        check_same(state, memory.get("s"));
    }
}

TEST_CASE("store: a run of a lender whose frame says another size is not taken") {
    const SaveOptions save{.codec = Codec::zstd};
    State state = sample_state(large_pages(96));
    for (size_t group = 0; group < state.pages.size(); ++group) {
        for (const Page &page : state.pages[group]) { // so that they become smaller
            auto *const numbers = const_cast<uint16_t *>(page.data);
            std::for_each_n(numbers, page.data == nullptr ? 0 : page_elements(state, group),
                            [](uint16_t &number) { number &= 0xFF80; });
        }
    }
    seal(state);
    Bytes file = saved(state, save);
    const Run run = Snapshot::open("x", memory_files(file))->page(0, 0).runs[0];
    const auto at = file.begin() + static_cast<ptrdiff_t>(run.offset);
    FrameBytes bytes;
    std::copy_n(at, bytes.size(), bytes.begin());
    Frame frame = decode_frame(bytes, run.offset);
    REQUIRE(frame.codec == Codec::zstd);
    frame.raw_bytes += 64;
    bytes = encode_frame(frame);
    std::copy(bytes.begin(), bytes.end(), at);
    const ScratchFolder folder;
    write_bytes(folder.path("x"), file);
    MemoryStore memory;
    memory.store.import(*Snapshot::open(folder.path("x")), "lender", {});
    REQUIRE(error_of([&] { memory.get("lender"); }).substr(0, 2) == "6 ");
    StorePutOptions options;
    options.save = save;
    options.lender = "lender";
    memory.store.put(state, "s", options);
    check_same(state, memory.get("s"));
}

namespace {

// Two sessions that have all their objects in common.
struct Pair {
    MemoryStore memory;
    const State state = sample_state(large_pages(150));
    std::vector<std::string> objects;

    Pair() {
        memory.put(state, "s");
        memory.store.fork("s", "other", false);
        objects = keys_of(*memory.backend, kObjectPrefix);
        REQUIRE(objects.size() > 3);
    }
    // As a session puts that was got and lacked something.
    std::string repair() {
        StorePutOptions options;
        options.overwrite = options.repair = true;
        return error_of([&] { memory.store.put(state, "s", options); });
    }
};

} // namespace

TEST_CASE("store: a repair that is cut short at any call leaves every object") {
    for (const bool damaged : {true, false}) { // or it was damaged only on its way
        CAPTURE(damaged);
        Pair pair;
        MemoryBackend &backend = *pair.memory.backend;
        uint64_t calls = 0;
        for (uint64_t call = 1;; ++call) {
            CAPTURE(call);
            for (const std::string &key : pair.objects) {
                REQUIRE((!damaged || backend.damage(key, 100)));
            }
            Trouble trouble;
            trouble.fail_from = call;
            trouble.damage_every = damaged ? 0 : 1;
            backend.trouble(trouble);
            const std::string error = pair.repair();
            calls = backend.calls();
            backend.trouble({});
            for (const std::string &key : pair.objects) {
                REQUIRE(backend.get(key, {}));
                const Bytes bytes = *backend.get(key, {});
                if (object_key(Sha256().bytes(bytes.data(), bytes.size()).finish()) != key) {
                    REQUIRE(damaged); // and not mended so far
                    backend.damage(key, 100);
                }
            }
            check_same(pair.state, pair.memory.get("other"));
            if (calls < call) {
                CHECK(error.empty());
                break;
            }
            CHECK(!error.empty());
        }
        CHECK(calls > 2 * pair.objects.size());
    }
}
