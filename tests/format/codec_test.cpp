// The codec gives back the bits it was given, whatever they are, and refuses what it did not write.
#include "codec_runs.h"

#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "format/state/error.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// One number; one slot; on both sides of where centring begins; more than a frame; a row of more
// than a frame.
const RunShape kRunShapes[] = {{1, 1, 1},     {1, 1, 7},    {4, 1, 64},  {3, 15, 5},
                               {3, 16, 5},    {6, 60, 80},  {2, 64, 64}, {70, 64, 64},
                               {3, 64, 2100}, {5, 256, 128}};

Status status_of(FrameCoder &coder, const RunShape &shape, const Coded &run) {
    try {
        decode_run(coder, shape, run);
    } catch (const Error &error) {
        return error.status();
    }
    return Status::ok;
}

uint32_t &table_field(Coded &run, size_t field) {
    return *reinterpret_cast<uint32_t *>(run.data() + field * sizeof(uint32_t));
}

} // namespace

TEST_CASE("codec: what was encoded comes back bit for bit") {
    FrameCoder coder;
    for (const RunShape &shape : kRunShapes) {
        CAPTURE(shape.rows);
        CAPTURE(shape.slots);
        CAPTURE(shape.channels);
        Numbers denormals = random_bits(shape, 3);
        Numbers infinite = random_bits(shape, 4);
        Numbers every(shape.numbers());
        for (size_t i = 0; i < every.size(); ++i) {
            denormals[i] &= 0x807F;
            infinite[i] |= 0x7F80;
            every[i] = static_cast<uint16_t>(i);
        }
        for (const Numbers &numbers :
             {Numbers(shape.numbers(), 0), Numbers(shape.numbers(), 0xFFFF), random_bits(shape, 1),
              like_keys(shape, 2), denormals, infinite, every}) {
            const Coded run = encode_run(coder, shape, numbers);
            REQUIRE(run.size() <= encoded_bound(shape));
            REQUIRE(decode_run(coder, shape, run) == numbers);
        }
    }
}

TEST_CASE("codec: sizes are what benchmarks/snapshots.md promises") {
    FrameCoder coder;
    const RunShape page{22 * 2 * 4, 64, 64};
    const auto ratio = [&](const RunShape &shape, const Numbers &numbers) {
        return static_cast<double>(encode_run(coder, shape, numbers).size()) /
               static_cast<double>(shape.bytes());
    };
    // Uncentred, exponents of such channels take 3.5 bits and all of it 0.72.
    CHECK(ratio(page, like_keys(page, 1)) < 0.68);
    CHECK(ratio({page.rows, 1, 64}, like_keys({page.rows, 1, 64}, 1)) < 0.75);
    CHECK(ratio(page, Numbers(page.numbers(), 0x3F80)) < 0.002);
    // Numbers that cannot be compressed grow by the table and the centres at most.
    const double random = ratio(page, random_bits(page, 1));
    CHECK(random > 1.0);
    CHECK(random < 1.008);
}

TEST_CASE("codec: frames may be coded on any thread and in any order") {
    FrameCoder coder;
    const RunShape shape{100, 64, 128};
    const Numbers numbers = like_keys(shape, 1);
    const Coded expected = encode_run(coder, shape, numbers);
    const size_t frames = frame_count(shape);
    REQUIRE(frames > 4);

    Coded run(encoded_bound(shape));
    Numbers decoded(numbers.size());
    const auto on_threads = [&](const auto &code) {
        std::vector<std::thread> threads;
        for (size_t first = 0; first < 3; ++first) {
            threads.emplace_back([&code, frames, first] {
                for (size_t i = frames; i-- > 0;) {
                    if (i % 3 == first) {
                        code(i);
                    }
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    };
    on_threads([&](size_t i) { coder.encode(shape, i, numbers.data(), run.data()); });
    run.resize(close_run(shape, run.data()));
    CHECK(run == expected);
    on_threads([&](size_t i) { coder.decode(shape, i, run.data(), run.size(), decoded.data()); });
    CHECK(decoded == numbers);
}

TEST_CASE("codec: a frame touches its own numbers only") {
    FrameCoder coder;
    const RunShape shape{40, 64, 128};
    const Numbers numbers = like_keys(shape, 1);
    const Coded run = encode_run(coder, shape, numbers);
    REQUIRE(frame_count(shape) == 3);
    Numbers decoded(numbers.size(), 0x1234);
    coder.decode(shape, 1, run.data(), run.size(), decoded.data());
    const size_t frame = size_t{16} * 64 * 128;
    CHECK(std::memcmp(&decoded[frame], &numbers[frame], frame * sizeof(uint16_t)) == 0);
    for (size_t i = 0; i < decoded.size(); ++i) {
        if (i < frame || i >= 2 * frame) {
            REQUIRE(decoded[i] == 0x1234);
        }
    }
}

TEST_CASE("codec: every truncation and every flipped bit is refused") {
    FrameCoder coder;
    for (const RunShape &shape : {RunShape{2, 3, 8}, RunShape{4, 20, 16}}) {
        const Coded good = encode_run(coder, shape, like_keys(shape, 5));
        REQUIRE(status_of(coder, shape, good) == Status::ok);
        for (size_t size = 0; size < good.size(); ++size) {
            const Coded cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
            REQUIRE(status_of(coder, shape, cut) == Status::corrupt);
        }
        Coded longer = good;
        longer.push_back(0);
        CHECK(status_of(coder, shape, longer) == Status::corrupt);
        for (size_t bit = 0; bit < good.size() * 8; ++bit) {
            Coded flipped = good;
            flipped[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
            REQUIRE(status_of(coder, shape, flipped) == Status::corrupt);
        }
    }
}

TEST_CASE("codec: what decodes behind a right checksum is in bounds or refused") {
    FrameCoder coder;
    const RunShape shape{4, 20, 16};
    const Coded good = encode_run(coder, shape, like_keys(shape, 5));
    size_t refused = 0;
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
        Coded flipped = good;
        flipped[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
        mend_checksums(shape, flipped);
        const Status status = status_of(coder, shape, flipped);
        REQUIRE((status == Status::ok || status == Status::corrupt));
        refused += status == Status::corrupt ? 1 : 0;
    }
    CHECK(refused > 100); // those in zstd's headers and in the table, at least
}

TEST_CASE("codec: a table that lies is refused") {
    FrameCoder coder;
    const RunShape shape{4, 20, 16};
    Coded good = encode_run(coder, shape, like_keys(shape, 5));
    const uint32_t centres = table_field(good, 0);
    const uint32_t exponents = table_field(good, 1);
    const uint32_t mantissas = table_field(good, 2);
    REQUIRE(centres > 0);
    REQUIRE(exponents < 4 * 20 * 16);
    REQUIRE(mantissas == 4 * 20 * 16); // not shortened, so stored as they are

    const auto with = [&](uint32_t first, uint32_t second, uint32_t third) {
        Coded run = good;
        table_field(run, 0) = first;
        table_field(run, 1) = second;
        table_field(run, 2) = third;
        mend_checksums(shape, run);
        return status_of(coder, shape, run);
    };
    CHECK(with(centres, exponents, mantissas) == Status::ok);
    CHECK(with(0, exponents + centres, mantissas) == Status::corrupt);
    CHECK(with(centres + 1, exponents - 1, mantissas) == Status::corrupt);
    CHECK(with(centres, exponents - 1, mantissas + 1) == Status::corrupt);
    CHECK(with(centres, exponents + mantissas, 0) == Status::corrupt);
    CHECK(with(0, 0, centres + exponents + mantissas) == Status::corrupt);
    CHECK(with(0xFFFFFFFF, exponents, mantissas) == Status::corrupt);
    CHECK(with(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) == Status::corrupt);
    // A run of another shape; each of its planes is a good frame of zstd, and too short or too
    // long.
    const RunShape shorter{3, 20, 16};
    const RunShape longer{5, 20, 16};
    for (const RunShape &other : {shorter, longer}) {
        const Coded run = encode_run(coder, other, Numbers(other.numbers(), 0x3F80));
        CHECK(status_of(coder, other, run) == Status::ok);
        CHECK(status_of(coder, shape, run) == Status::corrupt);
    }
    // A run of fewer frames, and of more.
    CHECK(status_of(coder, {4, 21, 16}, good) == Status::corrupt);
    CHECK(status_of(coder, {70, 64, 64}, good) == Status::corrupt);
}
