// Files whose checksums and digests are right but whose contents are not what a state may be: what
// the log, the settings, the last position and the pages hold.
#include <doctest/doctest.h>

#include <cfloat>
#include <cmath>
#include <cstring>

#include "format/pages.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

TEST_CASE("Snapshot::open: forged contents are refused") {
    refused("settings in force are 2 of 2", [](State &s, Layout &) { s.sampling = 2; });
    refused("sampling settings 1 of 1", [](State &s, Layout &) {
        s.samplings.pop_back();
        s.sampling = 0;
    });
    refused("temperature is nan", [](State &s, Layout &) { s.samplings[0].temperature = NAN; });
    refused("logit bias: token 50", [](State &s, Layout &) { s.samplings[1].bias[2].first = 50; });
    refused("logit bias: token 1 is out of order",
            [](State &s, Layout &) { s.samplings[1].bias[0].first = 1; });
    refused("logit bias", [](State &s, Layout &) { s.samplings[1].bias[0].second = NAN; });
    refused("capacity is 36", [](State &s, Layout &) { s.capacity = 36; });
    refused("tracking of attention is 3", [](State &s, Layout &) { s.tracking = 3; });
    refused("best logits: token", [](State &s, Layout &) { std::swap(s.top[0], s.top[1]); });
    refused("best logits: token 50", [](State &s, Layout &) { s.top[0].first = 50; });
    refused("65 best logits", [](State &s, Layout &) { s.top.resize(65, {0, 0.0F}); });
    refused("state digest is", [](State &s, Layout &) { s.digest.bytes[31] ^= 1; });
    refused("state digest is", [](State &s, Layout &) { s.contract.core ^= 1; });
    refused("state digest is", [](State &s, Layout &) { s.contract.kv ^= 1; });
    refused("state digest is", [](State &s, Layout &) { s.model.model.bytes[0] ^= 1; });
    refused("state digest is", [](State &s, Layout &) { s.groups[1].window ^= 64; });
    const auto node = [](const char *why, TreeKind kind, size_t byte, uint8_t value) {
        check_refused(why, forged_node(small_file(), kind, 0, 0, 0,
                                       [=](Bytes &n) { n[kNodeHeaderBytes + byte] = value; }));
    };
    const auto entry = [&](const char *why, size_t byte, uint8_t value) {
        node(why, TreeKind::log, byte, value);
    };
    entry("state digest is", 8, 3);                        // another token
    entry("log, position 1: token 50", 8, 50);             // outside the vocabulary
    entry("sampling settings 1 of 2, source 0", 8 + 4, 1); // of a token that was not drawn
    entry("log, position 1: source 4", 8 + 6, 4);
    entry("turn byte 05", 8 + 7, 5);
    entry("turn byte 10", 8 + 7, 0x10);
    node("token texts: token 50 is there twice or out of range", TreeKind::texts, 0, 50);
    const uint32_t second = Snapshot::open("memory", memory_files(small_file()))->texts()[1].first;
    node("is there twice", TreeKind::texts, 0, static_cast<uint8_t>(second));
    check_refused("state digest is",
                  forged_section(small_file(), &Layout::hidden, SectionKind::hidden,
                                 [](uint8_t *data) { data[0] ^= 1; }));
    check_refused("row of logits: 200 bytes, or its SHA-256 is not the one of the logits",
                  forged_section(small_file(), &Layout::logits_row, SectionKind::logits_row,
                                 [](uint8_t *data) { data[0] ^= 1; }));
}

TEST_CASE("Snapshot::open: settings that the sampler would refuse are refused at opening") {
    for (const BadSetting &bad : bad_settings()) {
        CAPTURE(bad.message);
        const Bytes file =
            forged(small_file(), [&](State &s, Layout &) { bad.change(s.samplings[1]); });
        CHECK(!opens(file));
        CHECK(refusal(file).starts_with("6: memory: " + bad.message));
    }
}

TEST_CASE("Snapshot::open: a denormal counts as zero, on threads that keep denormals too") {
    constexpr float kTiny = 0x1p-149F;
    const auto takes = [](float smallest, float Sampling::*member) {
        return opens(
            forged(small_file(), [&](State &s, Layout &) { s.samplings[1].*member = smallest; }));
    };
    for (float Sampling::*member : {&Sampling::temperature, &Sampling::min_p}) {
        CHECK(takes(-kTiny, member));
        CHECK(!takes(-FLT_MIN, member));
    }
    for (float Sampling::*member : {&Sampling::top_p, &Sampling::repetition_penalty}) {
        CHECK(!takes(kTiny, member));
        CHECK(takes(FLT_MIN, member));
    }
    const auto top = [](uint32_t first, float logit, uint32_t second, float next) {
        return opens(forged(small_file(), [&](State &s, Layout &) {
            s.top = {{first, logit}, {second, next}};
        }));
    };
    CHECK(top(3, -kTiny, 4, kTiny));
    CHECK(!top(4, kTiny, 3, -kTiny));
    CHECK(top(4, FLT_MIN, 3, -kTiny));
}

TEST_CASE(
    "Snapshot::open: released pages come first, and the last token can run again: at opening") {
    const Bytes bytes = saved(sample_state({.position = 150, .window_retain = 1000}));
    // The file whose entries say that pages of group 1 were released.
    const auto without = [](const Bytes &file, const std::vector<uint64_t> &pages_of_group_1) {
        return refusal(forged_pages(file, 1, 0, [&](std::span<PageRecord> entries) {
            for (const uint64_t index : pages_of_group_1) {
                entries[index].runs.clear();
            }
        }));
    };
    CHECK(without(bytes, {1})
              .find("page 1 of layer group 1 is not stored, but the page before it is") !=
          std::string::npos);
    CHECK(without(bytes, {0, 2})
              .find("page 2 of layer group 1 is not stored, but the page before it is") !=
          std::string::npos);
    CHECK(without(bytes, {0, 1, 2, 3})
              .find("page 3 of layer group 1 is not stored, window 40 at position 150 needs it") !=
          std::string::npos);
    // Position 71: the next token sees 32 to 71, the last one saw 31 to 70.
    const Bytes edge = saved(sample_state({.position = 71}));
    CHECK(without(edge, {0}).find(
              "page 0 of layer group 1 is not stored, window 40 at position 71 needs it") !=
          std::string::npos);
}

TEST_CASE(
    "Snapshot::open: a hidden state that is not finite is refused at opening, its digests right") {
    for (uint16_t bits : {0x7F80, 0xFF80, 0x7FC0, 0xFFFF}) {
        State bad = sample_state(kSmall);
        bad.hidden[3] = bits;
        seal(bad);
        Bytes changed = small_file();
        const Bytes bytes = forged(changed, [&](State &s, Layout &l) {
            uint8_t *data = changed.data() + l.hidden.offset + kFrameBytes;
            std::memcpy(data, bad.hidden.data(), l.hidden.bytes);
            reframe(changed, l.hidden.offset, SectionKind::hidden, l.hidden.bytes);
            l.hidden.digest = Sha256().bytes(data, l.hidden.bytes).finish();
            s.digest = bad.digest;
        });
        CHECK(!opens(bytes));
        CHECK(refusal(bytes).find("at index 3 are not a finite number") != std::string::npos);
    }
}

TEST_CASE("Snapshot::open: keys and values that are not finite are refused when read, their "
          "digests right") {
    const Shape shape{.position = 150};
    const Bytes good = saved(sample_state(shape));
    const auto forged_number = [&](uint64_t position, size_t row, uint16_t bits) {
        const uint64_t index = position / 32;
        State bad = sample_state(shape);
        Page &page = bad.pages[1][index];
        const size_t slot = position % 32;
        const_cast<uint16_t *>(page.data)[(row * 32 + slot) * 4 + 3] = bits;
        seal(bad);
        const Bytes bytes = forged_run(good, 1, index, [&](uint8_t *data) {
            reinterpret_cast<uint16_t *>(data)[(row * page.valid + slot) * 4 + 3] = bits;
        });
        return forged_page(
            bytes, 1, index, [&](PageRecord &entry) { entry.digest = page.digest; },
            [&](State &s, Layout &) { s.digest = bad.digest; });
    };
    CHECK(refusal(forged_number(120, 0, 0x7F7F)) == ""); // the largest finite number
    const auto not_finite = [&](uint64_t position, size_t row, uint16_t bits, const char *why) {
        const Bytes bytes = forged_number(position, row, bits);
        CHECK(opens(bytes));
        CHECK(refusal(bytes) == why);
    };
    not_finite(96, 0, 0x7F80,
               "6: memory: page 3 of layer group 1: the bf16 bits 7f80 at position 96 are not a "
               "finite number");
    not_finite(127, 3, 0xFFC1,
               "6: memory: page 3 of layer group 1: the bf16 bits ffc1 at position 127 are not a "
               "finite number");
    not_finite(149, 3, 0xFF80,
               "6: memory: page 4 of layer group 1: the bf16 bits ff80 at position 149 are not a "
               "finite number");
}

TEST_CASE("Snapshot::open: an empty state with leftovers of a full one is refused") {
    const Bytes bytes = saved(sample_state({.position = 0}));
    REQUIRE(refusal(bytes) == "");
    CHECK(refusal(forged(bytes, [](State &s, Layout &) { s.top = {{1, 2.0F}}; })) != "");
    CHECK(refusal(forged(bytes, [](State &s, Layout &) { s.logits.bytes[0] = 1; })) != "");
}

TEST_CASE(
    "Snapshot::open: many names for one string cannot unfold a small manifest into gigabytes") {
    // Every offset of a vector of pairs is bent to the same pair, which holds a long text.
    State state = sample_state({.position = 0, .layers = 1});
    state.model.config.assign(2000, {"n", "v"});
    state.model.config.back() = {"long", std::string(200000, 'x')};
    const Bytes whole = saved(state);
    Bytes bytes = whole;
    // A vector of offsets begins with its count; each offset counts from its own place.
    const uint32_t count = 2000;
    size_t vector = 0;
    for (size_t at = kSectionsBegin; at + 4 <= bytes.size(); at += 4) {
        uint32_t value = 0;
        std::memcpy(&value, bytes.data() + at, 4);
        if (value == count) {
            vector = at;
            break;
        }
    }
    REQUIRE(vector != 0);
    const size_t last = vector + 4 * count;
    uint32_t offset = 0;
    std::memcpy(&offset, bytes.data() + last, 4);
    const size_t pair = last + offset;
    for (size_t at = vector + 4; at < last; at += 4) {
        const auto bent = static_cast<uint32_t>(pair - at);
        std::memcpy(bytes.data() + at, &bent, 4);
    }
    // The identity's checksum and digest, then the manifest's.
    const auto snapshot_of = Snapshot::open("memory", memory_files(whole));
    Layout layout = snapshot_of->layout();
    reframe(bytes, layout.identity.offset, SectionKind::identity, layout.identity.bytes);
    layout.identity.digest =
        Sha256()
            .bytes(bytes.data() + layout.identity.offset + kFrameBytes, layout.identity.bytes)
            .finish();
    Root root = read_root(bytes);
    const Bytes manifest = build_manifest(snapshot_of->state(), layout);
    bytes.resize(root.manifest_offset);
    root.manifest_offset = append_section(bytes, SectionKind::manifest, manifest);
    root.manifest_bytes = manifest.size();
    write_root(bytes, root);
    check_refused("add up to more than its size", bytes);
}
