// No damaged byte gets through: flips and truncations of files of one and of several commits, in
// the sections, in the root slots and in the stream form.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

Bytes saved_small(Keep keep = Keep::full, Codec codec = Codec::raw) {
    const std::vector<float> row = sample_row(kSmall);
    return saved(sample_state(kSmall), {.keep = keep, .codec = codec, .logits_row = row});
}

constexpr uint8_t kFlips[] = {0x01, 0x80, 0xFF};

// Which bytes belong to runs and recurrent states: opening does not look at them.
std::vector<bool> bytes_of_runs(const Bytes &bytes) {
    std::vector<bool> of_run(bytes.size(), false);
    for (const Section &section : Snapshot::open("memory", memory_files(bytes))->sections()) {
        if (section.frame.kind == SectionKind::run ||
            section.frame.kind == SectionKind::recurrent) {
            std::fill_n(of_run.begin() + static_cast<ptrdiff_t>(section.offset),
                        section_bytes(section.frame.stored_bytes), true);
        }
    }
    return of_run;
}

void check_every_flip(Bytes bytes) {
    REQUIRE(refusal(bytes) == "");
    const std::vector<bool> of_run = bytes_of_runs(bytes);
    const Digest digest = Snapshot::open("memory", memory_files(bytes))->state().digest;
    for (size_t at = 0; at < bytes.size(); ++at) {
        for (const uint8_t flip : kFlips) {
            bytes[at] ^= flip;
            if (at >= kSlotB && at < kSectionsBegin) { // never written: slot A has the state
                const auto snapshot = Snapshot::open("memory", memory_files(bytes));
                REQUIRE((snapshot->slot_damaged() && snapshot->state().digest == digest));
            } else if (of_run[at] ? refusal(bytes).empty() : opens(bytes)) {
                FAIL_CHECK("flip of byte " << at << " was not noticed");
            }
            bytes[at] ^= flip;
        }
    }
    CHECK(refusal(bytes) == "");
}

} // namespace

TEST_CASE("Snapshot::open: every flipped byte is refused: header, slot, trees, manifest and "
          "padding at opening, all by load") {
    check_every_flip(saved_small());
    check_every_flip(saved(with_data(sample_state(kSmall), 200)));
    check_every_flip(saved_small(Keep::full, Codec::zstd));
    check_every_flip(saved_small(Keep::none));
    Shape hybrid = kSmall;
    hybrid.checkpoints = 20;
    for (const Codec codec : {Codec::raw, Codec::zstd}) {
        check_every_flip(saved(sample_state(hybrid), {.codec = codec}));
    }
}

TEST_CASE("Snapshot::open: a flipped byte in either slot of a file of commits: the other commit "
          "opens, and says so") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    State states[3];
    for (uint64_t i = 0; i < 3; ++i) {
        Shape shape = kSmall;
        shape.position = 36 + i;
        states[i] = sample_state(shape);
        save(states[i], path, {});
    }
    Bytes bytes = read_bytes(path);
    CHECK(Snapshot::open(path)->slot() == kSlotA); // commit 3; B has commit 2
    CHECK(!Snapshot::open(path)->slot_damaged());
    for (size_t at = kSlotA; at < kSectionsBegin; ++at) {
        for (const uint8_t flip : kFlips) {
            bytes[at] ^= flip;
            const auto snapshot = Snapshot::open("memory", memory_files(bytes));
            REQUIRE(snapshot->slot_damaged());
            REQUIRE(snapshot->state().digest == states[at < kSlotB ? 1 : 2].digest);
            bytes[at] ^= flip;
        }
    }
    // A commit takes the damaged slot, whichever it was, if the state is the last or the caller
    // knows it as older.
    for (const uint64_t slot : {kSlotA, kSlotB}) {
        Bytes damaged = bytes;
        damaged[slot + 100] ^= 1;
        write_bytes(path, damaged);
        save(states[0], path, {.known = Snapshot::open(path)->contents()});
        CHECK(Snapshot::open(path)->slot() == slot);
        CHECK(!Snapshot::open(path)->slot_damaged());
        check_same(states[0], load(path, {}));
    }
    // Both damaged, or one of them and the other never written: refused.
    Bytes both = bytes;
    both[kSlotA] ^= 1;
    both[kSlotB] ^= 1;
    CHECK(refusal(both).find("no root: a root slot is damaged") != std::string::npos);
}

TEST_CASE(
    "Snapshot::open: in a file of commits every flipped byte that the state reaches is refused") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    for (uint64_t position : {33, 35, 34, 37}) {
        Shape shape = kSmall;
        shape.position = position;
        save(sample_state(shape), path, {});
    }
    Bytes bytes = read_bytes(path);
    const auto snapshot = Snapshot::open(path);
    CHECK(snapshot->page(0, 1).runs.size() == 3); // slots 0, 1 (of 0 to 2), 2 to 4
    std::vector<Section> sections = snapshot->sections();
    size_t flipped = 0;
    for (const Section &section : sections) {
        // Sections of nodes may contain bytes that are not in use any more: another test covers
        // them.
        const uint64_t size = section.frame.kind == SectionKind::nodes
                                  ? kFrameBytes
                                  : section_bytes(section.frame.stored_bytes);
        for (uint64_t at = section.offset; at < section.offset + size; ++at) {
            bytes[at] ^= 0x10;
            if (refusal(bytes).empty()) {
                FAIL_CHECK("flip of byte " << at << " was not noticed");
            }
            bytes[at] ^= 0x10;
            ++flipped;
        }
    }
    CHECK(flipped > 2000);
}

TEST_CASE(
    "Snapshot::open: every truncation is refused; what lies behind the state is not looked at") {
    const Bytes bytes = saved_small();
    for (size_t size = 0; size < bytes.size(); ++size) {
        const Bytes shorter(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
        if (opens(shorter)) {
            FAIL_CHECK("opens when cut to " << size << " bytes");
        }
    }
    for (const size_t more : {1, 63, 64, 5000}) {
        Bytes longer = bytes;
        longer.resize(bytes.size() + more, 0xAB);
        CHECK(refusal(longer) == "");
    }
}

TEST_CASE("Snapshot::open: files of other versions and with unknown features") {
    const auto with = [](size_t at, uint32_t value, size_t block) {
        Bytes bytes = saved_small();
        std::memcpy(bytes.data() + at, &value, 4);
        const Checksum sum = checksum(bytes.data() + block, kBlockBytes - 16);
        std::memcpy(bytes.data() + block + kBlockBytes - 16, &sum, 16);
        return refusal(bytes);
    };
    CHECK(with(8, 7, 0) == "7: memory: the file has format version 7, this build reads version 1");
    CHECK(with(12, 8192, 0).find("block size is 8192") != std::string::npos);
    CHECK(with(16, 1, 0).find("byte 16 is unused") != std::string::npos);
    CHECK(with(kSlotA, 0, kSlotA).find("sequence 0") != std::string::npos);
    CHECK(with(kSlotA + 88, 9, kSlotA).find("byte 88 is unused") != std::string::npos);
    CHECK(with(kSlotA + 24, kFeaturesKnown + 1, kSlotA)
              .starts_with("7: memory: the file needs format features"));
    // Features are under the root digest.
    CHECK(with(kSlotA + 8, 1, kSlotA).find("root digest is") != std::string::npos);
    CHECK(with(kSlotA + 16, 1, kSlotA).find("root digest is") != std::string::npos);
    CHECK(with(8, 0, 0) == "7: memory: the file has format version 0, this build reads version 1");
    // Bounds of the manifest, whatever the numbers.
    for (uint32_t value : {0U, 1U, 63U, 12287U, 12289U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
        for (size_t at : {32, 36, 40, 44, 48, 52}) {
            if (value != 0 || at % 8 == 0) { // the high halves are zero already
                CHECK(with(kSlotA + at, value, kSlotA) != "");
            }
        }
    }
    Bytes text(20000, 'x');
    CHECK(refusal(text).find("not a snapshot") != std::string::npos);
}

TEST_CASE("Snapshot::open: a manifest with any flipped byte and right checksums never does harm") {
    const Bytes bytes = saved_small();
    const Root root = read_root(bytes);
    for (size_t at = root.manifest_offset + kFrameBytes; at < bytes.size(); ++at) {
        for (uint8_t flip : {0x01, 0x7F, 0x80, 0xFF}) {
            Bytes changed = bytes;
            changed[at] ^= flip;
            reseal(changed);
            largest_allocation();
            refusal(changed); // opens or is refused; ASan and UBSan watch
            REQUIRE(largest_allocation() < 16 * bytes.size());
        }
    }
}
