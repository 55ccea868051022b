// No damaged byte gets through: flips, truncations, and files whose checksums are right but whose
// contents contradict themselves.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "format/pages.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// One partial page in each group, and padding after most sections.
const Shape kSmall{.position = 37, .layers = 2, .kv_heads = 1, .head_dim = 3};

const Bytes &small_file() {
    static const std::vector<float> row = sample_row(kSmall);
    static const Bytes bytes = saved(sample_state(kSmall), {.logits_row = row});
    return bytes;
}

// Opens only: what opening promises to check is refused before a page is read.
bool opens(const Bytes &bytes) {
    try {
        Snapshot::open("memory", memory_files(bytes));
        return true;
    } catch (const Error &error) {
        CHECK((error.status() == Status::corrupt || error.status() == Status::version));
        return false;
    }
}

std::vector<Section> sections_of(const Bytes &bytes) {
    return Snapshot::open("memory", memory_files(bytes))->sections();
}

} // namespace

TEST_CASE(
    "every flipped byte is refused: header, slots, manifest and padding at opening, all by load") {
    Bytes bytes = small_file();
    REQUIRE(refusal(bytes) == "");
    std::vector<bool> in_page(bytes.size(), false);
    for (const Section &section : sections_of(bytes)) {
        if (section.kind == SectionKind::page) {
            std::fill_n(in_page.begin() + static_cast<ptrdiff_t>(section.offset),
                        section.stored_bytes, true);
        }
    }
    size_t accepted = 0;
    for (size_t at = 0; at < bytes.size(); ++at) {
        for (uint8_t flip : {0x01, 0x80, 0xFF}) {
            bytes[at] ^= flip;
            const bool refused = in_page[at] ? !refusal(bytes).empty() : !opens(bytes);
            bytes[at] ^= flip;
            if (!refused) {
                ++accepted;
                MESSAGE("flip of byte " << at << " was not noticed");
            }
        }
    }
    CHECK(accepted == 0);
    CHECK(refusal(bytes) == "");
}

TEST_CASE("a flipped byte of a page is refused with group and page named") {
    Bytes bytes = saved(sample_state({}));
    for (const Section &section : sections_of(bytes)) {
        bytes[section.offset + section.stored_bytes / 2] ^= 0x10;
        CHECK(refusal(bytes).starts_with("6: memory: section at byte "));
        bytes[section.offset + section.stored_bytes / 2] ^= 0x10;
    }
    // The checksum mended, the digest still tells.
    const size_t last = sections_of(bytes).size() - 1;
    const Bytes mended = forged_section(bytes, last, [](uint8_t *data) { data[0] ^= 1; });
    CHECK(refusal(mended).find("page 4 of layer group 1: its digest is") != std::string::npos);
}

TEST_CASE("every truncation and every longer file is refused") {
    const Bytes &bytes = small_file();
    for (size_t size = 0; size < bytes.size(); ++size) {
        const Bytes shorter(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
        if (opens(shorter)) {
            FAIL_CHECK("opens when cut to " << size << " bytes");
        }
    }
    Bytes longer = bytes;
    longer.push_back(0);
    CHECK(refusal(longer).find("its root slot says") != std::string::npos);
    reseal(longer); // the manifest with a byte behind it is another manifest: it may well open
    refusal(longer);
}

TEST_CASE("files of other versions and with unknown features") {
    const auto with = [](size_t at, uint32_t value, size_t block) {
        Bytes bytes = small_file();
        std::memcpy(bytes.data() + at, &value, 4);
        const Checksum sum = checksum(bytes.data() + block, kBlockBytes - 16);
        std::memcpy(bytes.data() + block + kBlockBytes - 16, &sum, 16);
        return refusal(bytes);
    };
    CHECK(with(8, 7, 0) == "7: memory: the file has format version 7, this build reads version 0");
    CHECK(with(12, 8192, 0).find("block size is 8192") != std::string::npos);
    CHECK(with(16, 1, 0).find("byte 16 is unused") != std::string::npos);
    CHECK(with(kSlotA, 0, kSlotA).find("sequence 0") != std::string::npos);
    CHECK(with(kSlotA + 104, 9, kSlotA).find("byte 104 is unused") != std::string::npos);
    CHECK(with(kSlotA + 24, 2, kSlotA).starts_with("7: memory: the file needs format features"));
    // Features are under the root digest.
    CHECK(with(kSlotA + 8, 1, kSlotA).find("root digest is") != std::string::npos);
    CHECK(with(kSlotA + 16, 1, kSlotA).find("root digest is") != std::string::npos);
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

TEST_CASE("a forged section table is refused") {
    const Bytes &bytes = small_file();
    const auto refused = [&](const char *why, const Change &change) {
        CAPTURE(why);
        const std::string message = refusal(forged(bytes, change));
        CAPTURE(message);
        CHECK(message.starts_with("6: "));
        CHECK(message.find(why) != std::string::npos);
    };
    REQUIRE(refusal(forged(bytes, [](State &, Layout &) {})) == "");
    refused("begins at byte", [](State &, Layout &l) { l.sections[1].offset += 64; });
    refused("begins at byte", [](State &, Layout &l) { l.sections[2].offset = 0; });
    refused("begins at byte", [](State &, Layout &l) { l.sections[2] = l.sections[1]; });
    refused("begins at byte", [](State &, Layout &l) { l.sections[0].offset = UINT64_MAX - 63; });
    refused("bytes from byte", [](State &, Layout &l) { l.sections[0].stored_bytes = 1ULL << 62; });
    refused("bytes from byte", [](State &, Layout &l) { l.sections[0].stored_bytes = 0; });
    refused("codec 1", [](State &, Layout &l) { l.sections[0].codec = static_cast<Codec>(1); });
    refused("codec 0", [](State &, Layout &l) { l.sections[0].raw_bytes = 1ULL << 40; });
    refused("sections end at", [](State &, Layout &l) { l.sections.pop_back(); });
    refused("begins at byte", [](State &, Layout &l) { l.sections.erase(l.sections.begin()); });
    refused("expected a section of kind log",
            [](State &, Layout &l) { l.sections[0].kind = SectionKind::hidden; });
    refused("names section 4, expected 3",
            [](State &, Layout &l) { l.sections[3].kind = static_cast<SectionKind>(99); });
    refused("belongs to the page table",
            [](State &, Layout &l) { l.sections[4].digest.bytes[3] = 1; });
    refused("names section", [](State &, Layout &l) { l.pages[0][1] = 4; });
    refused("names section", [](State &, Layout &l) { l.pages[0][0] = 4000000; });
    refused("is not stored", [](State &, Layout &l) { l.pages[0][0] = kReleased; });
    refused("SHA-256 is", [](State &, Layout &l) { l.sections[1].digest.bytes[0] ^= 1; });
    refused("do not give its checksum",
            [](State &, Layout &l) { l.sections[2].checksum.high ^= 1; });
    refused("row of logits", [](State &s, Layout &) { s.logits.bytes[0] ^= 1; });
}

TEST_CASE("forged sizes are refused before anything of that size is allocated") {
    const Bytes &bytes = small_file();
    const auto refused = [&](const char *why, const Change &change) {
        CAPTURE(why);
        const Bytes file = forged(bytes, change);
        largest_allocation();
        const std::string message = refusal(file);
        CAPTURE(message);
        CHECK(message.find(why) != std::string::npos);
        CHECK(largest_allocation() < 4 * file.size());
    };
    refused("positions take", [](State &, Layout &l) { l.position = UINT64_MAX; });
    refused("positions take", [](State &, Layout &l) { l.position = 1ULL << 61; });
    refused("expected 296", [](State &, Layout &l) {
        l.position = 37;
        l.sections[0].stored_bytes = l.sections[0].raw_bytes = 304;
    });
    refused("expected", [](State &, Layout &l) { l.position = 38; });
    refused("number of layers", [](State &s, Layout &) { s.layers = 0; });
    refused("number of layers", [](State &s, Layout &) { s.layers = UINT32_MAX; });
    refused("layer groups hold 2 layers of 3", [](State &s, Layout &) { s.layers = 3; });
    refused("twice", [](State &s, Layout &) { s.groups[0].layers = {1}; });
    refused("out of range", [](State &s, Layout &) { s.groups[0].layers = {2}; });
    refused("no layers", [](State &s, Layout &) { s.groups[0].layers = {}; });
    refused("number of KV heads", [](State &s, Layout &) { s.kv_heads = UINT32_MAX; });
    refused("expected", [](State &s, Layout &) { s.kv_heads = 1U << 16; });
    refused("head_dim", [](State &s, Layout &) { s.head_dim = 1U << 17; });
    refused("expected", [](State &s, Layout &) { s.head_dim = 1U << 16; });
    refused("expected", [](State &s, Layout &) { s.hidden_size = UINT32_MAX; });
    refused("hidden size", [](State &s, Layout &) { s.hidden_size = 0; });
    refused("expected", [](State &s, Layout &) { s.vocabulary = UINT32_MAX; });
    refused("vocabulary", [](State &s, Layout &) { s.vocabulary = 0; });
    refused("positions in a page", [](State &s, Layout &) { s.page_positions = 0; });
    refused("positions in a page", [](State &s, Layout &) { s.page_positions = 1U << 31; });
    refused("multiple of 32", [](State &s, Layout &) { s.page_positions = 33; });
    refused("positions take", [](State &s, Layout &) { s.page_positions = 64; });
    refused("attention and", [](State &s, Layout &) { s.model.attention.pop_back(); });
    refused("attention and", [](State &s, Layout &) { s.model.mlp.push_back({}); });
}

TEST_CASE("forged contents are refused") {
    const Bytes &bytes = small_file();
    const auto refused = [&](const char *why, const Bytes &file) {
        CAPTURE(why);
        const std::string message = refusal(file);
        CAPTURE(message);
        CHECK(message.find(why) != std::string::npos);
    };
    const auto manifest = [&](const char *why, const Change &change) {
        refused(why, forged(bytes, change));
    };
    manifest("settings in force are 2 of 2", [](State &s, Layout &) { s.sampling = 2; });
    manifest("sampling settings 1 of 1", [](State &s, Layout &) {
        s.samplings.pop_back();
        s.sampling = 0;
    });
    manifest("temperature is nan", [](State &s, Layout &) { s.samplings[0].temperature = NAN; });
    manifest("logit bias: token 50", [](State &s, Layout &) { s.samplings[1].bias[2].first = 50; });
    manifest("logit bias: token 1 is out of order",
             [](State &s, Layout &) { s.samplings[1].bias[0].first = 1; });
    manifest("logit bias", [](State &s, Layout &) { s.samplings[1].bias[0].second = NAN; });
    manifest("capacity is 36", [](State &s, Layout &) { s.capacity = 36; });
    manifest("best logits: token", [](State &s, Layout &) { std::swap(s.top[0], s.top[1]); });
    manifest("best logits: token 50", [](State &s, Layout &) { s.top[0].first = 50; });
    manifest("65 best logits", [](State &s, Layout &) { s.top.resize(65, {0, 0.0F}); });
    manifest("state digest is", [](State &s, Layout &) { s.digest.bytes[31] ^= 1; });
    manifest("state digest is", [](State &s, Layout &) { s.contract.core ^= 1; });
    manifest("state digest is", [](State &s, Layout &) { s.contract.kv ^= 1; });
    manifest("state digest is", [](State &s, Layout &) { s.model.model.bytes[0] ^= 1; });
    manifest("state digest is", [](State &s, Layout &) { s.groups[1].window ^= 64; });
    manifest("state digest is", [](State &s, Layout &) { s.pages[0][0].digest.bytes[0] ^= 1; });

    const auto entry = [&](const char *why, size_t byte, uint8_t value) {
        refused(why, forged_section(bytes, 0, [=](uint8_t *data) { data[byte] = value; }));
    };
    entry("state digest is", 8, 3);                        // another token
    entry("log, position 1: token 50", 8, 50);             // outside the vocabulary
    entry("sampling settings 1 of 2, source 0", 8 + 4, 1); // of a token that was not drawn
    entry("log, position 1: source 4", 8 + 6, 4);
    entry("turn byte 05", 8 + 7, 5);
    entry("turn byte 10", 8 + 7, 0x10);
    const auto text = [&](const char *why, size_t byte, uint8_t value) {
        refused(why, forged_section(bytes, 1, [=](uint8_t *data) { data[byte] = value; }));
    };
    text("token texts: token 3 is out of order", 0, 3);
    text("entry 0 at byte 0 does not end", 7, 0xFF);
    text("does not end", 4, 3);
    refused("state digest is", forged_section(bytes, 2, [](uint8_t *data) { data[0] ^= 1; }));
    refused("row of logits: its SHA-256 is not the one of the logits",
            forged_section(bytes, 3, [](uint8_t *data) { data[0] ^= 1; }));
}

TEST_CASE("settings that the sampler would refuse are refused at opening") {
    for (const BadSetting &bad : bad_settings()) {
        CAPTURE(bad.message);
        const Bytes file =
            forged(small_file(), [&](State &s, Layout &) { bad.change(s.samplings[1]); });
        CHECK(!opens(file));
        CHECK(refusal(file).starts_with("6: memory: " + bad.message));
    }
}

TEST_CASE("released pages come first, and the last token can run again: at opening") {
    const Bytes bytes = saved(sample_state({.position = 150, .window_retain = 1000}));
    // The file with pages of group 1 told released. Pages are judged before the sections that they
    // leave behind.
    const auto without = [&](std::vector<uint64_t> pages_of_group_1) {
        return [=](State &, Layout &layout) {
            for (uint64_t index : pages_of_group_1) {
                layout.pages[1][index] = kReleased;
            }
        };
    };
    CHECK(refusal(forged(bytes, without({1})))
              .find("page 1 of layer group 1 is not stored, but the page before it is") !=
          std::string::npos);
    CHECK(refusal(forged(bytes, without({0, 2})))
              .find("page 2 of layer group 1 is not stored, but the page before it is") !=
          std::string::npos);
    CHECK(refusal(forged(bytes, without({0, 1, 2, 3})))
              .find("page 3 of layer group 1 is not stored, window 40 at position 150 needs it") !=
          std::string::npos);
    // Position 71: the next token sees 32 to 71, the last one saw 31 to 70.
    const Bytes edge = saved(sample_state({.position = 71}));
    CHECK(refusal(forged(edge, without({0})))
              .find("page 0 of layer group 1 is not stored, window 40 at position 71 needs it") !=
          std::string::npos);
}

TEST_CASE("a hidden state that is not finite is refused at opening, its digests right") {
    for (uint16_t bits : {0x7F80, 0xFF80, 0x7FC0, 0xFFFF}) {
        State bad = sample_state(kSmall);
        bad.hidden[3] = bits;
        seal(bad);
        Bytes bytes = forged_section(small_file(), 2, [&](uint8_t *data) {
            std::memcpy(data, bad.hidden.data(), bad.hidden.size() * sizeof(uint16_t));
        });
        bytes = forged(bytes, [&](State &s, Layout &) { s.digest = bad.digest; });
        CHECK(!opens(bytes));
        CHECK(refusal(bytes).find("at index 3 are not a finite number") != std::string::npos);
    }
}

TEST_CASE("keys and values that are not finite are refused when read, their digests right") {
    const Shape shape{.position = 150};
    const Bytes good = saved(sample_state(shape));
    const auto forged_number = [&](uint64_t position, size_t row, uint16_t bits) {
        const uint64_t index = position / 32;
        State bad = sample_state(shape);
        Page &page = bad.pages[1][index];
        const size_t slot = position % 32;
        const_cast<uint16_t *>(page.data)[(row * 32 + slot) * 4 + 3] = bits;
        seal(bad);
        const size_t section = sections_of(good).size() - 5 + index;
        const Bytes bytes = forged_section(good, section, [&](uint8_t *data) {
            reinterpret_cast<uint16_t *>(data)[(row * page.valid + slot) * 4 + 3] = bits;
        });
        return forged(bytes, [&](State &s, Layout &) {
            s.pages[1][index].digest = page.digest;
            s.digest = bad.digest;
        });
    };
    CHECK(refusal(forged_number(120, 0, 0x7F7F)) == ""); // the largest finite number
    const auto refused = [&](uint64_t position, size_t row, uint16_t bits, const char *why) {
        const Bytes bytes = forged_number(position, row, bits);
        CHECK(opens(bytes));
        CHECK(refusal(bytes) == why);
    };
    refused(96, 0, 0x7F80,
            "6: memory: page 3 of layer group 1: the bf16 bits 7f80 at position 96 are not a "
            "finite number");
    refused(127, 3, 0xFFC1,
            "6: memory: page 3 of layer group 1: the bf16 bits ffc1 at position 127 are not a "
            "finite number");
    refused(149, 3, 0xFF80,
            "6: memory: page 4 of layer group 1: the bf16 bits ff80 at position 149 are not a "
            "finite number");
}

TEST_CASE("an empty state with leftovers of a full one is refused") {
    const Bytes bytes = saved(sample_state({.position = 0}));
    REQUIRE(refusal(bytes) == "");
    CHECK(refusal(forged(bytes, [](State &s, Layout &) { s.top = {{1, 2.0F}}; })) != "");
    CHECK(refusal(forged(bytes, [](State &s, Layout &) { s.logits.bytes[0] = 1; })) != "");
}

TEST_CASE("a manifest with any flipped byte and right checksums never does harm") {
    const Bytes &bytes = small_file();
    const size_t manifest = sections_of(bytes).back().offset;
    for (size_t at = align_up(manifest); at < bytes.size(); ++at) {
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

TEST_CASE("many names for one string cannot unfold a small manifest into gigabytes") {
    // Every offset of a vector of pairs is bent to the same pair, which holds a long text.
    State state = sample_state({.position = 0, .layers = 1});
    state.token_texts.clear();
    state.model.config.assign(2000, {"n", "v"});
    state.model.config.back() = {"long", std::string(200000, 'x')};
    Bytes bytes = saved(state);
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
    reseal(bytes);
    CHECK(refusal(bytes).find("add up to more than its size") != std::string::npos);
}
