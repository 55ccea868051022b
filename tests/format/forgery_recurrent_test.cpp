// Recurrent layers and states that contradict themselves, with all checksums right: each refused
// for its reason, and nothing allocated by a size that was not checked.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "codec_runs.h"
#include "format/reader.h"
#include "format/recurrent.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const Bytes &hybrid_file() {
    static const Bytes bytes = saved(sample_state(kHybrid)); // states at 30, 60, 90, 100
    return bytes;
}

void refused_hybrid(const char *why, const Change &change) {
    check_refused(why, forged(hybrid_file(), change));
}

using Layers = std::vector<uint32_t>;

} // namespace

TEST_CASE("Snapshot::open: recurrent layers out of range, out of order or in a group are refused") {
    for (const Layers &layers : {Layers{0, 2, 5}, Layers{0, 2, 2}, Layers{2, 0, 4}}) {
        refused_hybrid("is out of range, twice or out of order",
                       [&](State &s, Layout &) { s.recurrent.layers = layers; });
    }
    refused_hybrid("layer 1 is out of range, twice, out of order, recurrent or sharing",
                   [](State &s, Layout &) {
                       s.recurrent.layers = {0, 1, 2, 4};
                   });
    refused_hybrid("layer groups hold 2 layers of 5, 2 are recurrent, 0 sharing",
                   [](State &s, Layout &) {
                       s.recurrent.layers = {0, 4};
                   });
    refused_hybrid("recurrent layers, but none is named", [](State &s, Layout &) {
        s.recurrent.layers = {}; // what is left of it makes a table
    });
}

TEST_CASE("Snapshot::open: impossible sizes of a recurrent state are refused, and none overflows") {
    uint32_t RecurrentShape::*const sizes[] = {
        &RecurrentShape::key_heads, &RecurrentShape::value_heads, &RecurrentShape::key_dim,
        &RecurrentShape::value_dim, &RecurrentShape::taps};
    for (const auto size : sizes) {
        for (const uint32_t value : {0U, 65537U, UINT32_MAX}) {
            refused_hybrid("expected 1 to 65536",
                           [&](State &s, Layout &) { s.recurrent.*size = value; });
        }
        // Larger than what is stored, as far as there can be so many numbers.
        refused_hybrid("", [&](State &s, Layout &) { s.recurrent.*size = 65536; });
    }
    refused_hybrid("is too large", [&](State &s, Layout &) {
        for (const auto size : sizes) {
            s.recurrent.*size = 65536;
        }
    });
    refused_hybrid("is too large", [](State &s, Layout &) { s.recurrent.taps = 257; });
    refused_hybrid("is too large", [](State &s, Layout &) { // 2^48 numbers of S, in 3 layers
        s.recurrent.value_heads = s.recurrent.key_dim = s.recurrent.value_dim = 65536;
        s.recurrent.key_heads = s.recurrent.taps = 1;
    });
    // 16 times what is stored, and more than that.
    const auto heads = [](uint32_t times) {
        return [times](State &s, Layout &) {
            s.recurrent.taps = 1; // S alone: 90 numbers
            s.recurrent.value_heads = times;
        };
    };
    refused_hybrid("in 936 stored ones", heads(83 * 2)); // 3 * 15 * 4 bytes a head
    CHECK(opens(forged(hybrid_file(), heads(83))));
    check_refused("expected 14940 in 936", forged(hybrid_file(), heads(83)));
}

TEST_CASE("Snapshot::open: states at impossible positions, or none at the end, are refused") {
    const auto moved = [](size_t index, uint64_t position) {
        return [=](State &s, Layout &) { s.states[index].position = position; };
    };
    refused_hybrid("at position 0, expected one behind 0", moved(0, 0));
    refused_hybrid("at position 60, expected one behind 60", moved(0, 60));
    refused_hybrid("at position 29, expected one behind 30", moved(1, 29));
    refused_hybrid("at position 101, expected one behind 90, in a log of 100", moved(3, 101));
    refused_hybrid("at position 18446744073709551615", moved(3, UINT64_MAX));
    refused_hybrid("the last one is at position 99, the log ends at 100", moved(3, 99));
    refused_hybrid("the last one is at position 90, the log ends at 100", [](State &s, Layout &l) {
        s.states.pop_back();
        l.states.pop_back();
    });
    refused_hybrid("the last one is at position 0, the log ends at 100", [](State &s, Layout &l) {
        s.states.clear();
        l.states.clear();
    });
    refused_hybrid("state digest is", [](State &s, Layout &) { s.states[3].digest.bytes[5] ^= 1; });
}

TEST_CASE("Snapshot::open: references to states are refused unless they name a section's place") {
    const auto placed = [](auto change) {
        return [=](State &, Layout &l) { change(l.states[1]); };
    };
    const char *const place = "recurrent state at position 60: 936 bytes in";
    const uint64_t size = hybrid_file().size();
    for (const uint64_t offset :
         {uint64_t{1}, kSectionsBegin - 64, kSectionsBegin + 1, size - 64, size, UINT64_MAX - 63}) {
        refused_hybrid(place, placed([=](StateRef &ref) { ref.offset = offset; }));
    }
    for (const uint64_t stored : {uint64_t{0}, uint64_t{57}, size, UINT64_MAX}) {
        refused_hybrid(place, placed([=](StateRef &ref) { ref.stored_bytes = stored; }));
    }
    refused_hybrid("not stored in a file that keeps states",
                   placed([](StateRef &ref) { ref = {}; }));
    check_refused("stored in a file that keeps none",
                  forged(saved(sample_state(kHybrid), {.keep = Keep::none}),
                         [](State &, Layout &l) { l.states[1].stored_bytes = 936; }));
    check_refused("of kind identity", forged(hybrid_file(), [](State &, Layout &l) {
                      l.states[1].offset = l.identity.offset;
                  }));
    // Another state's section.
    check_refused("recurrent state at position 60: its digest is",
                  forged(hybrid_file(), [](State &, Layout &l) { l.states[1] = l.states[0]; }));
    check_refused("recurrent): 936 bytes in 936 stored ones, expected 936 in 935",
                  forged(hybrid_file(), placed([](StateRef &ref) { ref.stored_bytes = 935; })));
}

TEST_CASE("Snapshot::open: states that share a section are not read, as they outgrow the file") {
    const Bytes bytes = forged(hybrid_file(), [](State &s, Layout &l) {
        const RecurrentState last = s.states.back();
        const StateRef ref = l.states.back();
        s.states.clear();
        for (uint64_t position = 1; position < 100; ++position) {
            s.states.push_back({position, last.digest, nullptr});
        }
        s.states.push_back(last);
        l.states.assign(100, ref);
    });
    CHECK_FALSE(opens(bytes));
    check_refused("936 bytes in 936 stored ones at byte", bytes);
}

TEST_CASE("Snapshot::read_state: a frame with another checksum of the numbers is refused") {
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        Bytes bytes = saved(sample_state(kHybrid), {.codec = codec});
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        const uint64_t offset = snapshot->layout().states[2].offset;
        FrameBytes frame;
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), kFrameBytes, frame.begin());
        Frame changed = decode_frame(frame, offset);
        changed.checksum.high ^= 1;
        frame = encode_frame(changed);
        std::copy(frame.begin(), frame.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
        check_refused("recurrent state at position 90: section at byte", bytes);
    }
}

TEST_CASE("Snapshot::open: contract, features and recurrent layers agree, or are refused") {
    refused_hybrid("recurrent layers: 3 of them, under version 0 of their contract",
                   [](State &s, Layout &) { s.contract.recurrent = 0; });
    refused("recurrent layers: 0 of them, under version 1 of their contract",
            [](State &s, Layout &) { s.contract.recurrent = 1; });
    refused_hybrid("state digest is", [](State &s, Layout &) { s.contract.recurrent = 8; });
    refused_hybrid("contract for experts: the root's features and the manifest disagree",
                   [](State &s, Layout &) { s.contract.experts = 1; });
    Root root = read_root(hybrid_file());
    root.features_refuse = 0;
    check_refused("recurrent layers: the root's features and the manifest disagree",
                  with_root(hybrid_file(), root, kSlotA));
}

TEST_CASE("Snapshot::read_state: numbers that are not finite are refused, as a save refuses them") {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
        State state = sample_state(kHybrid);
        const_cast<float *>(state.states[2].data)[80] = bad;
        seal(state);
        CHECK_THROWS_WITH_AS(
            saved(state), doctest::Contains("recurrent state at position 90: the f32 bits"), Error);
        // As a forger would write it: the section of another value, the digest of this one.
        const auto snapshot = Snapshot::open("memory", memory_files(hybrid_file()));
        const StateRef ref = snapshot->layout().states[2];
        Bytes bytes = hybrid_file();
        std::memcpy(bytes.data() + ref.offset + kFrameBytes, state.states[2].data, 936);
        reframe(bytes, ref.offset, SectionKind::recurrent, 936);
        bytes = forged(bytes, [&](State &s, Layout &) { s.states[2] = state.states[2]; });
        check_refused("in layer 2, index 2, are not a finite number", bytes);
    }
}

TEST_CASE("save: a recurrent state without its numbers, or at a wrong position, is refused") {
    const auto refused_save = [](const char *why, auto change) {
        State state = sample_state(kHybrid);
        change(state);
        state.digest = state_digest(state);
        CHECK_THROWS_WITH_AS(saved(state), doctest::Contains(why), Error);
    };
    refused_save("at position 60: without its numbers",
                 [](State &s) { s.states[1].data = nullptr; });
    refused_save("the last one is at position 90", [](State &s) { s.states.pop_back(); });
    refused_save("expected one behind 60", [](State &s) { std::swap(s.states[0], s.states[1]); });
    refused_save("under version 0", [](State &s) { s.contract.recurrent = 0; });
}

TEST_CASE(
    "decode_state_piece: any change of a coded state is refused, or decodes within its room") {
    constexpr size_t kCount = 131072 * 2 + 100;
    std::vector<float> numbers(kCount);
    std::mt19937 random(5);
    for (float &number : numbers) {
        number = std::ldexp(static_cast<float>(random() % 1000003), static_cast<int>(random() % 3));
    }
    FrameCoder coder;
    std::vector<uint8_t> stored(encoded_state_bound(kCount));
    const size_t pieces = frame_count(halves_shape(kCount));
    CHECK(pieces == 3);
    for (size_t i = pieces; i-- > 0;) {
        encode_state_piece(coder, kCount, i, numbers.data(), stored.data());
    }
    stored.resize(close_state(kCount, stored.data()));
    const auto decode = [&](const std::vector<uint8_t> &from) {
        std::vector<float> decoded(kCount);
        for (size_t i = 0; i < pieces; ++i) {
            decode_state_piece(coder, kCount, i, from.data(), from.size(), decoded.data());
        }
        return decoded;
    };
    CHECK(decode(stored) == numbers);
    const size_t coded = 2 * kCount; // the lower halves are under the section's checksum alone
    for (int round = 0; round < 300; ++round) {
        std::vector<uint8_t> changed = stored;
        changed[coded + random() % (stored.size() - coded)] ^=
            static_cast<uint8_t>(1 + random() % 255);
        CHECK_THROWS_AS(decode(changed), Error);
        changed = stored;
        changed.resize(random() % stored.size());
        CHECK_THROWS_AS(decode(changed), Error);
    }
}
