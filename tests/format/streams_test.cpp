// The stream form, and compaction: the same states by other roads.
#include <doctest/doctest.h>

#include <cstring>

#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

void add_bytes(void *user, const void *data, size_t size_bytes) {
    const auto *from = static_cast<const uint8_t *>(data);
    auto *bytes = static_cast<Bytes *>(user);
    bytes->insert(bytes->end(), from, from + size_bytes);
}

Bytes streamed(const State &state, const SaveOptions &options = {}) {
    Bytes bytes;
    write_stream(state, {&bytes, add_bytes}, options);
    return bytes;
}

// Gives the bytes in pieces of any size, as a socket does.
struct Pieces {
    const Bytes &bytes;
    size_t at = 0;

    static size_t read(void *user, void *data, size_t size_bytes) {
        auto *pieces = static_cast<Pieces *>(user);
        const size_t count = std::min(
            {size_bytes, pieces->bytes.size() - pieces->at, size_t{1} + pieces->at % 5000});
        std::copy_n(pieces->bytes.data() + pieces->at, count, static_cast<uint8_t *>(data));
        pieces->at += count;
        return count;
    }
};

State read_all(const Snapshot &snapshot) {
    State state = snapshot.state();
    snapshot.read_pages(state, {});
    return state;
}

std::string stream_refusal(const Bytes &bytes) {
    try {
        Pieces pieces{bytes};
        read_all(*Snapshot::open_source({&pieces, Pieces::read}));
    } catch (const Error &error) {
        return std::to_string(static_cast<int>(error.status())) + ": " + error.what();
    }
    return "";
}

} // namespace

TEST_CASE("write_stream: a state goes through a stream, and the reader stops where it ends") {
    for (const uint64_t position : {0, 1, 64, 150}) {
        for (const SaveOptions &options :
             {SaveOptions{}, SaveOptions{.codec = Codec::zstd}, SaveOptions{.keep = Keep::none}}) {
            const State state = course(position);
            Bytes bytes = streamed(state, options);
            const size_t size = bytes.size();
            bytes.insert(bytes.end(), 1000, 0x77); // what else the socket carries
            Pieces pieces{bytes};
            const auto snapshot = Snapshot::open_source({&pieces, Pieces::read});
            CHECK(pieces.at == size);
            CHECK(snapshot->file_bytes() == size);
            CHECK(snapshot->slot() == 0);
            CHECK(!snapshot->slot_damaged());
            if (options.keep == Keep::full) {
                check_same(state, read_all(*snapshot));
            }
            CHECK(snapshot->state().digest == state.digest);
        }
    }
}

TEST_CASE("write_stream: a stream kept in a file opens, and its first commits fill the slots") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const Bytes bytes = streamed(course(100));
    write_bytes(path, bytes);
    CHECK(Snapshot::open(path)->slot() == 0);
    check_same(course(100), load(path, {}));
    // As an interrupted first commit leaves it: more bytes after the trailer, a torn slot.
    Bytes interrupted = bytes;
    interrupted.resize(bytes.size() + 777, 0x5A);
    interrupted[kSlotA + 5] = 1;
    write_bytes(path, interrupted);
    CHECK(Snapshot::open(path)->slot_damaged());
    check_same(course(100), load(path, {}));
    save(course(120), path, {});
    CHECK(Snapshot::open(path)->slot() == kSlotA);
    CHECK(Snapshot::open(path)->root().sequence == 2);
    CHECK(!Snapshot::open(path)->slot_damaged());
    check_same(course(120), load(path, {}));
    save(course(90), path, {});
    CHECK(Snapshot::open(path)->slot() == kSlotB);
    check_same(course(90), load(path, {}));
    Bytes later = read_bytes(path);
    CHECK(std::memcmp(later.data() + kSectionsBegin, bytes.data() + kSectionsBegin,
                      bytes.size() - kSectionsBegin) == 0);
}

TEST_CASE(
    "Snapshot::open_source: an ordinary file is read from a stream as well, commits and all") {
    const ScratchFolder folder;
    save(course(100), folder.path("s"), {});
    save(course(130), folder.path("s"), {});
    Bytes bytes = read_bytes(folder.path("s"));
    const size_t size = bytes.size();
    bytes.resize(size + 500, 1);
    Pieces pieces{bytes};
    check_same(course(130), read_all(*Snapshot::open_source({&pieces, Pieces::read})));
    CHECK(pieces.at == size);
}

TEST_CASE("Snapshot::open_source: every truncation and every flipped byte of a stream is refused") {
    Bytes bytes = streamed(sample_state(kSmall));
    REQUIRE(stream_refusal(bytes) == "");
    for (size_t size = 0; size < bytes.size(); ++size) {
        const std::string message =
            stream_refusal({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)});
        REQUIRE(message.starts_with("6: stream: the stream ends at byte"));
    }
    for (size_t at = 0; at < bytes.size(); ++at) {
        const bool in_slot = at >= kSlotA && at < kSectionsBegin;
        bytes[at] ^= 0x21;
        if (stream_refusal(bytes).empty() !=
            in_slot) { // the stream form uses no slot: reported only
            FAIL_CHECK("flip of byte " << at);
        }
        bytes[at] ^= 0x21;
    }
}

TEST_CASE(
    "Snapshot::open_source: a stream that promises much gets no memory for it before it comes") {
    Bytes bytes = streamed(course(10));
    Bytes lying(bytes.begin(), bytes.begin() + kSectionsBegin);
    const Frame frame{SectionKind::run, Codec::raw, 1ULL << 50, 1ULL << 50, {}, 1};
    const FrameBytes begin = encode_frame(frame);
    lying.insert(lying.end(), begin.begin(), begin.end());
    lying.resize(lying.size() + 100);
    largest_allocation();
    CHECK(stream_refusal(lying).find("the stream ends at byte") != std::string::npos);
    CHECK(largest_allocation() < 4U << 20);
    const Frame endless{SectionKind::run, Codec::raw, UINT64_MAX, UINT64_MAX, {}, 1};
    const FrameBytes worse = encode_frame(endless);
    std::copy(worse.begin(), worse.end(), lying.begin() + kSectionsBegin);
    CHECK(stream_refusal(lying).starts_with("6: stream: section at byte 12288"));
}

TEST_CASE("write_stream: a sink or source that fails ends the call with its error") {
    const Sink full{nullptr, [](void *, const void *, size_t) { fail(Status::io, "full"); }};
    CHECK_THROWS_WITH_AS(write_stream(course(40), full, {}), "full", Error);
    const Source broken{nullptr,
                        [](void *, void *, size_t) -> size_t { fail(Status::io, "gone"); }};
    CHECK_THROWS_WITH_AS(Snapshot::open_source(broken), "gone", Error);
    const std::atomic<bool> cancel{true};
    Bytes bytes;
    CHECK_THROWS_AS(write_stream(course(40), {&bytes, add_bytes}, {.watch = {.cancel = &cancel}}),
                    Error);
}

TEST_CASE("compact: compaction leaves the state and nothing else: the bytes of a first save") {
    const std::vector<float> row = sample_row({});
    for (const SaveOptions &options :
         {SaveOptions{}, SaveOptions{.codec = Codec::zstd}, SaveOptions{.keep = Keep::none},
          SaveOptions{.logits_row = row}}) {
        const ScratchFolder folder;
        const std::string path = folder.path("s");
        for (const State &state : {course(100), course(110), course(320), course(60, 2, 40),
                                   course(61, 2, 40), course(130, 2, 40), course(129, 2, 40)}) {
            SaveOptions plain = options;
            plain.logits_row = {};
            save(state, path, plain);
        }
        save(course(150, 1), path, options);
        const size_t before = read_bytes(path).size();
        compact(path, {.codec = options.codec});
        CHECK(read_bytes(path).size() < before);
        CHECK(folder.names() == std::vector<std::string>{"s"});
        if (options.keep == Keep::full) {
            check_same(course(150), load(path, {}));
            CHECK(read_bytes(path) == saved(course(150), options));
        } else {
            CHECK(Snapshot::open(path)->state().digest == course(150).digest);
            CHECK(Snapshot::open(path)->keep() == Keep::none);
            CHECK(Snapshot::open(path)->page(0, 1).fingerprints.size() == 34);
        }
        compact(path, {.codec = options.codec});
        save(course(160), path, options.logits_row.empty() ? options : SaveOptions{});
        CHECK(Snapshot::open(path)->state().digest == course(160).digest);
    }
}

TEST_CASE("compact: compaction refuses what a save refuses, and leaves the file") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    CHECK_THROWS_AS(compact(path, {}), Error);
    save(course(100), path, {});
    Bytes bytes = read_bytes(path);
    const Run run = Snapshot::open(path)->page(0, 1).runs.at(0);
    bytes[run.offset + kFrameBytes + 3] ^= 1;
    write_bytes(path, bytes);
    try {
        compact(path, {});
        FAIL("compacted a damaged file");
    } catch (const Error &error) {
        CHECK(error.status() == Status::corrupt);
    }
    CHECK(read_bytes(path) == bytes);
    CHECK(folder.names() == std::vector<std::string>{"s"});
    const std::atomic<bool> cancel{true};
    save(course(100), path, {.replace = true});
    CHECK_THROWS_AS(compact(path, {.watch = {.cancel = &cancel}}), Error);
    check_same(course(100), load(path, {}));
}
