// Every number of a file, falsified in every way with all checksums and digests above it right: in
// frames, roots, references, nodes, page entries and runs.
#include <doctest/doctest.h>

#include <cstring>

#include "format/pages.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// A file of several commits: runs of some slots, used in part; nodes of an earlier commit.
const Bytes &commits() {
    static const Bytes bytes = [] {
        const ScratchFolder folder;
        const std::vector<float> row = sample_row(kSmall);
        for (const uint64_t position : {33, 40, 37}) {
            Shape shape = kSmall;
            shape.position = position;
            save(sample_state(shape), folder.path("s"), {.logits_row = row});
        }
        return read_bytes(folder.path("s"));
    }();
    return bytes;
}

// The log under an inner node, and page tables of two leaves.
const Bytes &deep() {
    static const Bytes bytes = saved(sample_state({.position = 300, .layers = 2, .head_dim = 1}));
    return bytes;
}

std::vector<uint64_t> lies(const Bytes &bytes, uint64_t truth) {
    std::vector<uint64_t> numbers = {
        0,          1,          truth - 1,      truth + 1,         truth - 64,   truth + 64,
        2 * truth,  kSlotA,     kSectionsBegin, bytes.size() - 64, bytes.size(), 0xFFFF,
        UINT32_MAX, 1ULL << 40, 1ULL << 63,     UINT64_MAX - 63,   UINT64_MAX};
    const auto snapshot = Snapshot::open("memory", memory_files(bytes));
    for (const Section &section : snapshot->sections()) {
        numbers.push_back(section.offset); // that of another section, or its own
    }
    return numbers;
}

// Calls `with` for each false value that fits into the `width` bytes at `at`.
void each_lie(const Bytes &bytes, const uint8_t *at, size_t width,
              const std::function<void(const void *lie)> &with) {
    uint64_t truth = 0;
    std::memcpy(&truth, at, width);
    for (const uint64_t number : lies(bytes, truth)) {
        if (std::memcmp(&number, at, width) != 0) {
            CAPTURE(truth);
            CAPTURE(number);
            with(&number);
        }
    }
}

void seal_frame(Bytes &bytes, uint64_t offset) {
    const uint64_t sum = checksum64(bytes.data() + offset, 56);
    std::memcpy(bytes.data() + offset + 56, &sum, 8);
}

struct Field {
    size_t at;
    size_t width;
};

} // namespace

TEST_CASE(
    "Snapshot::open: every field of every frame: a lie is refused, or of no meaning to the state") {
    const auto snapshot = Snapshot::open("memory", memory_files(commits()));
    const std::vector<Section> sections = snapshot->sections();
    const uint64_t last = snapshot->root().sequence;
    for (const Section &section : sections) {
        CAPTURE(section_name(section.frame.kind));
        for (const Field field : {Field{4, 4}, Field{8, 4}, Field{12, 4}, Field{16, 8},
                                  Field{24, 8}, Field{32, 8}, Field{40, 8}, Field{48, 8}}) {
            CAPTURE(field.at);
            const uint8_t *at = commits().data() + section.offset + field.at;
            each_lie(commits(), at, field.width, [&](const void *lie) {
                Bytes bytes = commits();
                std::memcpy(bytes.data() + section.offset + field.at, lie, field.width);
                seal_frame(bytes, section.offset);
                uint64_t number = 0;
                std::memcpy(&number, lie, field.width);
                const bool nodes = section.frame.kind == SectionKind::nodes;
                // A reader holds nodes to their SHA-256, not to the checksum of all together; and
                // which of the commits so far wrote a section says nothing of the state.
                if ((nodes && (field.at == 32 || field.at == 40)) ||
                    (field.at == 48 && number > 0 && number <= last)) {
                    CHECK(refusal(bytes) == "");
                } else {
                    check_refused("", bytes);
                }
            });
        }
        Bytes bytes = commits();
        bytes[section.offset] ^= 1; // SECT
        check_refused("", bytes);
    }
}

TEST_CASE("Snapshot::open: every number of a root, in a slot and in a trailer") {
    const auto snapshot = Snapshot::open("memory", memory_files(commits()));
    // As if of a first save: no frame may be of a later commit than the trailer.
    const Bytes first = saved(sample_state(kSmall));
    const Root once = read_root(first);
    for (const uint64_t slot : {snapshot->slot(), uint64_t{0}}) {
        CAPTURE(slot);
        const Bytes &bytes = slot != 0 ? commits() : first;
        Root root = slot != 0 ? snapshot->root() : once;
        root.file_bytes += slot != 0 ? 0 : kTrailerBytes;
        REQUIRE(refusal(with_root(bytes, root, slot)) == "");
        const RootBytes truth = encode_root(root);
        for (const size_t at : {32, 40, 48}) { // length, manifest
            CAPTURE(at);
            each_lie(bytes, truth.data() + at, 8, [&](const void *lie) {
                uint64_t fields[7];
                std::memcpy(fields, truth.data(), sizeof fields);
                std::memcpy(&fields[at / 8], lie, 8);
                check_refused(
                    "", with_root(bytes, {fields[0], 0, 0, 0, fields[4], fields[5], fields[6], {}},
                                  slot));
            });
        }
    }
    for (size_t byte = 0; byte < 32; ++byte) {
        Root root = snapshot->root();
        root.digest.bytes[byte] ^= 0x80;
        Bytes bytes = commits();
        write_block(bytes, snapshot->slot(), encode_slot(root));
        check_refused("root digest is", bytes);
    }
    Bytes alone = commits(); // the other slot has a state that could be used instead
    write_block(alone, snapshot->slot() == kSlotA ? kSlotB : kSlotA, {});
    for (const uint64_t sequence : {0, 1}) { // never, and before the commits of its sections
        Root root = snapshot->root();
        root.sequence = sequence;
        check_refused("", with_root(alone, root, snapshot->slot()));
    }
}

TEST_CASE("Snapshot::open: every number of every reference in the manifest") {
    for (const auto which : {&Layout::identity, &Layout::hidden, &Layout::logits_row}) {
        const auto snapshot = Snapshot::open("memory", memory_files(commits()));
        const SectionRef truth = snapshot->layout().*which;
        for (const auto field : {&SectionRef::offset, &SectionRef::bytes}) {
            each_lie(commits(), reinterpret_cast<const uint8_t *>(&(truth.*field)), 8,
                     [&](const void *lie) {
                         check_refused("", forged(commits(), [&](State &, Layout &layout) {
                                           std::memcpy(&(layout.*which.*field), lie, 8);
                                       }));
                     });
        }
    }
    const std::function<NodeRef &(Layout &)> roots[] = {
        [](Layout &l) -> NodeRef & { return l.log; },
        [](Layout &l) -> NodeRef & { return l.texts; },
        [](Layout &l) -> NodeRef & { return l.pages[0]; },
        [](Layout &l) -> NodeRef & { return l.pages[1]; }};
    for (const auto &root : roots) {
        Layout truth = Snapshot::open("memory", memory_files(commits()))->layout();
        for (const Field field : {Field{0, 8}, Field{8, 4}, Field{12, 4}}) {
            CAPTURE(field.at);
            const auto *at = reinterpret_cast<const uint8_t *>(&root(truth)) + field.at;
            each_lie(commits(), at, field.width, [&](const void *lie) {
                check_refused("", forged(commits(), [&](State &, Layout &layout) {
                                  std::memcpy(reinterpret_cast<uint8_t *>(&root(layout)) + field.at,
                                              lie, field.width);
                              }));
            });
        }
    }
}

TEST_CASE("Snapshot::open: every number of every child of an inner node") {
    const auto snapshot = Snapshot::open("memory", memory_files(deep()));
    for (const TreeKind kind : {TreeKind::log, TreeKind::pages}) {
        const StoredTree &tree =
            kind == TreeKind::log ? snapshot->trees().log : snapshot->trees().pages[1];
        REQUIRE(tree.levels.size() == 2);
        for (size_t child = 0; child < tree.levels[0].size(); ++child) {
            const auto *truth = reinterpret_cast<const uint8_t *>(&tree.levels[0][child]);
            for (const Field field : {Field{0, 8}, Field{8, 4}, Field{12, 4}, Field{16, 8}}) {
                CAPTURE(field.at);
                const size_t at = kNodeHeaderBytes + child * sizeof(NodeRef) + field.at;
                each_lie(deep(), truth + field.at, field.width, [&](const void *lie) {
                    check_refused("", forged_node(deep(), kind, 1, 1, 0, [&](Bytes &node) {
                                      std::memcpy(node.data() + at, lie, field.width);
                                  }));
                });
            }
        }
    }
}

TEST_CASE("Snapshot::open: every number of every page entry and run") {
    for (const size_t group : {0, 1}) {
        const auto snapshot = Snapshot::open("memory", memory_files(commits()));
        REQUIRE(snapshot->page(group, 1).runs.size() == 2); // slot 0; of 7 slots the first four
        size_t entry = kNodeHeaderBytes;
        for (const uint64_t index : {0, 1}) {
            const size_t runs = snapshot->page(group, index).runs.size();
            std::vector<Field> fields = {{0, 8}, {32, 4}, {36, 4}, {40, 4}, {44, 4}};
            for (size_t run = 0; run < runs; ++run) {
                for (const Field field : {Field{0, 8}, Field{8, 8}, Field{16, 2}, Field{18, 2},
                                          Field{20, 2}, Field{22, 2}}) {
                    fields.push_back({48 + 24 * run + field.at, field.width});
                }
            }
            const NodeRef &leaf = snapshot->trees().pages[group].levels[0][0];
            const uint8_t *node = commits().data() + leaf.section + kFrameBytes + leaf.begin;
            for (const Field field : fields) {
                CAPTURE(index);
                CAPTURE(field.at);
                each_lie(commits(), node + entry + field.at, field.width, [&](const void *lie) {
                    check_refused(
                        "",
                        forged_node(commits(), TreeKind::pages, group, 0, 0, [&](Bytes &changed) {
                            std::memcpy(changed.data() + entry + field.at, lie, field.width);
                        }));
                });
            }
            entry += 48 + 24 * runs;
        }
    }
}
