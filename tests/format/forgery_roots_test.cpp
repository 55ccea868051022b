// Roots with right checksums and digests that a reader must refuse or must not follow: features of
// each class, newer commits that are not understood, a last commit that none can follow; and
// versions from the future.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "format/constants.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

TEST_CASE("Snapshot::open: features of each class, in a slot and in a trailer, for each bit") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const Bytes file = saved(sample_state(kSmall));
    Shape longer = kSmall;
    longer.position += 1;
    const State next = sample_state(longer);
    for (const uint64_t slot : {kSlotA, uint64_t{0}}) {
        for (uint64_t bit = 1; bit != 0; bit <<= 1) {
            Root root = read_root(file);
            root.file_bytes += slot != 0 ? 0 : kTrailerBytes;
            root.features_ignore = bit;
            write_bytes(path, with_root(file, root, slot));
            CHECK(refusal(read_bytes(path)) == "");
            save(next, path, {});
            CHECK(Snapshot::open(path)->state().digest == next.digest);
            root.features_ignore = 0;
            root.features_read = bit & ~kFeaturesReadKnown;
            const Bytes read_only = with_root(file, root, slot);
            write_bytes(path, read_only);
            CHECK(refusal(read_bytes(path)) == "");
            if (root.features_read != 0) {
                CHECK_THROWS_WITH_AS(save(next, path, {}), doctest::Contains("it uses features"),
                                     Error);
                CHECK_THROWS_WITH_AS(compact(path, {}), doctest::Contains("it uses features"),
                                     Error);
            }
            CHECK(read_bytes(path) == read_only);
            root.features_read = 0;
            root.features_refuse = bit;
            CHECK(refusal(with_root(file, root, slot))
                      .starts_with(bit == kFeatureEvictions
                                       ? "6: memory: evictions: the root's features"
                                   : bit == kFeatureProfile
                                       ? "6: memory: device profile: the root's features"
                                   : bit == kFeatureRecurrent
                                       ? "6: memory: recurrent layers: the root's features"
                                   : bit == kFeatureExperts
                                       ? "6: memory: contract for experts: the root's features"
                                   : bit == kFeatureLayers
                                       ? "6: memory: layers that differ: the root's features"
                                   : bit == kFeatureSettings
                                       ? "6: memory: settings with sets: the root's features"
                                       : "7: memory: the file needs format features"));
        }
    }
}

TEST_CASE(
    "Snapshot::open: a newer commit that is not understood is never passed over for an older one") {
    const ScratchFolder folder;
    save(sample_state(kSmall), folder.path("s"), {});
    save(sample_state(kSmall), folder.path("s"), {});
    Bytes bytes = read_bytes(folder.path("s"));
    Root root = read_root(bytes);             // of the first of them
    root.features_refuse = uint64_t{1} << 40; // an older one is not looked at
    write_block(bytes, kSlotA, encode_slot(root));
    CHECK(refusal(bytes) == "");
    root.sequence = 3;
    write_block(bytes, kSlotA, encode_slot(root));
    CHECK(refusal(bytes).starts_with("7: "));
    root.features_refuse = 0; // nor if its manifest is not where it says
    root.manifest_offset += 64;
    write_block(bytes, kSlotA, encode_slot(root));
    check_refused("", bytes);
    root.sequence = 2;
    write_block(bytes, kSlotA, encode_slot(root));
    CHECK(refusal(bytes).find("both root slots are of commit 2") != std::string::npos);
}

TEST_CASE("Snapshot::open: a file of the last commit there can be takes no other") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const Bytes file = saved(sample_state(kSmall));
    Root root = read_root(file);
    root.sequence = UINT64_MAX;
    const Bytes last = with_root(file, root, kSlotA);
    CHECK(refusal(last) == "");
    write_bytes(path, last);
    Shape longer = kSmall;
    longer.position += 1;
    CHECK_THROWS_AS(save(sample_state(longer), path, {}), Error);
    CHECK(read_bytes(path) == last);
    compact(path, {}); // counts from 1 again
    save(sample_state(longer), path, {});
    CHECK(Snapshot::open(path)->root().sequence == 2);
}

TEST_CASE("Snapshot::open: a version from the future is refused, both versions named: as a file "
          "and as a stream") {
    Bytes bytes = saved(sample_state(kSmall));
    for (const uint32_t version : {kFormatVersion + 1, UINT32_MAX}) {
        std::memcpy(bytes.data() + 8, &version, sizeof version);
        const Checksum sum = checksum(bytes.data(), kBlockBytes - sizeof sum);
        std::memcpy(bytes.data() + kBlockBytes - sizeof sum, &sum, sizeof sum);
        const std::string message = "the file has format version " + std::to_string(version) +
                                    ", this build reads version 1";
        CHECK(refusal(bytes) == "7: memory: " + message);
        size_t read = 0;
        struct From {
            const Bytes &bytes;
            size_t &at;
        } from{bytes, read};
        const Source source{&from, [](void *user, void *data, size_t size_bytes) {
                                auto *left = static_cast<From *>(user);
                                std::copy_n(left->bytes.data() + left->at, size_bytes,
                                            static_cast<uint8_t *>(data));
                                left->at += size_bytes;
                                return size_bytes;
                            }};
        CHECK_THROWS_WITH_AS(Snapshot::open_source(source), ("stream: " + message).c_str(), Error);
        CHECK(read == kBlockBytes); // what follows may be laid out in any way
    }
}
