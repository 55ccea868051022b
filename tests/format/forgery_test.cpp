// Files whose checksums and digests are right but whose contents contradict themselves: sizes,
// places, counts, overlaps, shared nodes. Each is refused with its reason, before much is
// allocated.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "format/pages.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// An entry of page 0, or of the partial page 1, of group 0.
void refused_page(const char *why, uint64_t index,
                  const std::function<void(PageRecord &)> &change) {
    check_refused(why, forged_page(small_file(), 0, index, change));
}

} // namespace

TEST_CASE("Snapshot::open: forging itself changes nothing") {
    CHECK(refusal(forged(small_file(), [](State &, Layout &) {})) == "");
    CHECK(refusal(forged_page(small_file(), 0, 1, [](PageRecord &) {})) == "");
    CHECK(refusal(forged_node(small_file(), TreeKind::log, 0, 0, 0, [](Bytes &) {})) == "");
}

TEST_CASE(
    "Snapshot::open: references to sections that are not there, not theirs, or of another size") {
    const auto at = [](SectionRef Layout::*which, uint64_t offset) {
        return [=](State &, Layout &l) { (l.*which).offset = offset; };
    };
    for (const auto which : {&Layout::identity, &Layout::hidden, &Layout::logits_row}) {
        for (const uint64_t offset :
             {UINT64_MAX, UINT64_MAX - 63, uint64_t{4096}, uint64_t{12289}}) {
            refused("the state ends at", at(which, offset));
        }
        refused("SHA-256 is", [=](State &s, Layout &l) {
            (l.*which).digest.bytes[0] ^= 1;
            s.logits = l.logits_row.digest; // which is held to it first
        });
    }
    refused("of kind identity and commit 1, expected hidden",
            [](State &, Layout &l) { l.hidden.offset = l.identity.offset; });
    refused("named at byte 0", at(&Layout::identity, 0));
    refused("bytes under codec 0, expected", [](State &, Layout &l) { l.identity.bytes += 1; });
    refused("hidden state: 22 bytes, expected 20", [](State &, Layout &l) { l.hidden.bytes = 22; });
    refused("row of logits: 204 bytes", [](State &, Layout &l) { l.logits_row.bytes += 4; });
    refused("row of logits", [](State &s, Layout &) { s.logits.bytes[0] ^= 1; });
    refused("hidden state: 0 bytes", [](State &, Layout &l) { l.hidden = {}; });
    refused("what it keeps is 2", [](State &, Layout &l) { l.keep = static_cast<Keep>(2); });
    refused("the file keeps none", [](State &, Layout &l) { l.keep = Keep::none; });
}

TEST_CASE("Snapshot::open: frames with right checksums that lie") {
    const auto with = [](const std::function<void(Frame &)> &change) {
        Bytes bytes = small_file();
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        const uint64_t offset = snapshot->page(0, 0).runs[0].offset;
        Frame frame;
        for (const Section &section : snapshot->sections()) {
            frame = section.offset == offset ? section.frame : frame;
        }
        change(frame);
        const FrameBytes frame_bytes = encode_frame(frame);
        std::copy(frame_bytes.begin(), frame_bytes.end(),
                  bytes.begin() + static_cast<ptrdiff_t>(offset));
        return bytes;
    };
    check_refused("codec 2", with([](Frame &f) { f.codec = static_cast<Codec>(2); }));
    check_refused("in 384 stored", with([](Frame &f) { f.raw_bytes += 1; }));
    check_refused("commit 2, expected run of 1", with([](Frame &f) { f.sequence = 2; }));
    check_refused("of commit 0", with([](Frame &f) { f.sequence = 0; }));
    check_refused("of kind hidden", with([](Frame &f) { f.kind = SectionKind::hidden; }));
    check_refused("of kind unknown", with([](Frame &f) { f.kind = static_cast<SectionKind>(99); }));
    check_refused("the state ends at",
                  with([](Frame &f) { f.raw_bytes = f.stored_bytes = 1ULL << 40; }));
    check_refused("expected 384 in 384",
                  with([](Frame &f) { f.raw_bytes = f.stored_bytes = 128; }));
    check_refused("codec 1", with([](Frame &f) { // more than 16 times what is stored
                      f.codec = Codec::zstd;
                      f.raw_bytes = UINT64_MAX;
                  }));
    check_refused("page 0 of layer group 0: coded run",
                  with([](Frame &f) { f.codec = Codec::zstd; }));
}

TEST_CASE("Snapshot::open: forged sizes are refused before anything of that size is allocated") {
    refused("tokens in a file of", [](State &, Layout &l) { l.position = UINT64_MAX; });
    refused("tokens in a file of", [](State &, Layout &l) { l.position = 1ULL << 40; });
    refused("37 items, expected 1, 0, 0, 38", [](State &, Layout &l) { l.position = 38; });
    refused("token log, node 0 of level 1", [](State &, Layout &l) { l.position = 257; });
    refused("token log: a root, but nothing in it", [](State &, Layout &l) { l.position = 0; });
    refused("token texts", [](State &, Layout &l) { l.text_count = UINT64_MAX; });
    refused("token texts", [](State &, Layout &l) { l.text_count = 1; });
    refused("number of layers", [](State &s, Layout &) { s.layers = 0; });
    refused("number of layers", [](State &s, Layout &) { s.layers = UINT32_MAX; });
    refused("layer groups hold 2 layers of 3", [](State &s, Layout &) { s.layers = 3; });
    refused("twice", [](State &s, Layout &) { s.groups[0].layers = {1}; });
    refused("out of range", [](State &s, Layout &) { s.groups[0].layers = {2}; });
    refused("no layers", [](State &s, Layout &) { s.groups[0].layers = {}; });
    refused("number of KV heads", [](State &s, Layout &) { s.kv_heads = UINT32_MAX; });
    refused("a run of 384 bytes", [](State &s, Layout &) { s.kv_heads = 1U << 16; });
    refused("head_dim", [](State &s, Layout &) { s.head_dim = 1U << 17; });
    refused("a run of 384 bytes", [](State &s, Layout &) { s.head_dim = 1U << 16; });
    refused("expected 768 in 384", [](State &s, Layout &) { s.kv_heads = 2; });
    refused("hidden state: 20 bytes", [](State &s, Layout &) { s.hidden_size = UINT32_MAX; });
    refused("hidden size", [](State &s, Layout &) { s.hidden_size = 0; });
    refused("row of logits", [](State &s, Layout &) { s.vocabulary = UINT32_MAX; });
    refused("vocabulary", [](State &s, Layout &) { s.vocabulary = 0; });
    refused("positions in a page", [](State &s, Layout &) { s.page_positions = 0; });
    refused("positions in a page", [](State &s, Layout &) { s.page_positions = 1U << 31; });
    refused("multiple of 32", [](State &s, Layout &) { s.page_positions = 33; });
    refused("page table, node 0", [](State &s, Layout &) { s.page_positions = 64; });
    refused("attention and", [](State &s, Layout &) { s.model.attention.pop_back(); });
    refused("attention and", [](State &s, Layout &) { s.model.mlp.push_back({}); });
}

TEST_CASE("Snapshot::open: page entries that lie about their runs") {
    const auto run = [](const char *why, uint64_t index, const std::function<void(Run &)> &change) {
        refused_page(why, index, [&](PageRecord &page) { change(page.runs.at(0)); });
    };
    refused_page("31 valid slots, expected 32", 0, [](PageRecord &p) { p.valid = 31; });
    refused_page("6 valid slots, expected 5", 1, [](PageRecord &p) { p.valid = 6; });
    for (const uint64_t offset :
         {uint64_t{0}, uint64_t{4096}, uint64_t{12289}, UINT64_MAX - 63, uint64_t{1} << 40}) {
        run("a run of 384 bytes", 0, [=](Run &r) { r.offset = offset; });
    }
    run("its frame does not begin with SECT", 0, [](Run &r) { r.offset += 64; });
    run("of kind identity", 0, [](Run &r) { r.offset = kSectionsBegin; });
    run("a run of", 0, [](Run &r) { r.stored_bytes = UINT64_MAX; });
    run("a run of", 0, [](Run &r) { r.stored_bytes = 1ULL << 40; });
    run("a run of 23 bytes", 0, [](Run &r) { r.stored_bytes = 23; }); // 384 / 16 = 24
    run("expected 384 in 383", 0, [](Run &r) { r.stored_bytes = 383; });
    run("a run of", 0, [](Run &r) { r.used = 0; });
    run("a run of", 0, [](Run &r) { r.first = 1; });
    run("a run of", 0, [](Run &r) { r.slots = 31; });
    run("a run of", 0, [](Run &r) { r.slots = 33; });
    run("a run of", 0, [](Run &r) { r.zero = 1; });
    run("its runs hold 31 slots, expected 32", 0, [](Run &r) { r.used = 31; });
    run("a run of", 1, [](Run &r) { r.first = r.used = r.slots = 0xFFFF; });
    refused_page("its runs hold 64 slots", 0, [](PageRecord &p) { p.runs.push_back(p.runs[0]); });
    refused_page("is not stored", 0, [](PageRecord &p) { p.runs.clear(); });
    // Half of the page twice: the slots add up, the digest does not.
    refused_page("page 0 of layer group 0: its digest is", 0, [](PageRecord &p) {
        p.runs[0].used = 16;
        p.runs.push_back(p.runs[0]);
    });
    refused_page("fingerprints and 1 runs", 0, [](PageRecord &p) { p.fingerprints.resize(33); });
    refused_page("state digest is", 0, [](PageRecord &p) { p.digest.bytes[5] ^= 1; });
    // One run named by all slots of a page: together they are larger than the file.
    const Bytes bytes = saved(sample_state({.position = 100, .head_dim = 64}));
    const auto many = [](PageRecord &page) {
        page.runs.assign(32, page.runs[0]);
        for (Run &each : page.runs) {
            each.used = 1;
        }
    };
    check_refused("has fewer bytes than its runs", forged_page(bytes, 0, 0, many));
}

TEST_CASE(
    "Snapshot::open: fingerprints of a file that keeps none are as many as slots and layers") {
    const Bytes bytes = saved(sample_state(kSmall), {.keep = Keep::none});
    REQUIRE(refusal(bytes) == "");
    check_refused("34 fingerprints", forged_page(bytes, 0, 0, [](PageRecord &page) {
                      page.fingerprints.push_back(1);
                  }));
    check_refused("1 fingerprints",
                  forged_page(bytes, 0, 0, [](PageRecord &page) { page.fingerprints.resize(1); }));
}

TEST_CASE("Snapshot::open: nodes that are not what their place asks for, or do not end where they "
          "should") {
    const auto node = [](const char *why, TreeKind kind,
                         const std::function<void(Bytes &)> &change) {
        check_refused(why, forged_node(small_file(), kind, 0, 0, 0, change));
    };
    for (const TreeKind kind : {TreeKind::log, TreeKind::texts, TreeKind::pages}) {
        for (size_t field = 0; field < kNodeHeaderBytes; field += 4) {
            node("it says tree", kind, [=](Bytes &n) { n[field] ^= 4; });
        }
        node("behind its items", kind, [](Bytes &n) { n.push_back(0); });
        node("are left of it", kind, [](Bytes &n) { n.pop_back(); });
        node("it says tree 0", kind, [](Bytes &n) { n.clear(); });
    }
    node("are left of it", TreeKind::texts, [](Bytes &n) { n[kNodeHeaderBytes + 7] = 0xFF; });
    const size_t runs = kNodeHeaderBytes + 32 + 4;
    node("are left of it", TreeKind::pages, [=](Bytes &n) { n[runs + 3] = 0xFF; });
    node("are left of it", TreeKind::pages, [=](Bytes &n) { n[runs + 7] = 0xFF; });
    node("unused bytes", TreeKind::pages, [=](Bytes &n) { n[runs + 8] = 1; });
    refused("SHA-256", [](State &, Layout &l) { l.log.begin += 1; });
    refused("of a section of", [](State &, Layout &l) { l.log.begin = UINT32_MAX; });
    refused("of a section of", [](State &, Layout &l) { l.log.bytes = UINT32_MAX; });
    refused("of kind identity", [](State &, Layout &l) { l.log.section = kSectionsBegin; });
    refused("it says tree 2", [](State &, Layout &l) { l.log = l.texts; });
    refused("page table, node 0 of level 0: it says tree 3, group 1",
            [](State &, Layout &l) { l.pages[0] = l.pages[1]; });
}

TEST_CASE(
    "Snapshot::open: a tree whose nodes name one child many times cannot unfold into gigabytes") {
    const Bytes bytes = saved(sample_state({.position = 256 * 32, .layers = 1, .window = 1}));
    const Bytes file = forged_node(bytes, TreeKind::log, 0, 1, 0, [](Bytes &node) {
        for (size_t child = 1; child < kTreeFan; ++child) { // all children are the first one
            std::copy_n(node.begin() + kNodeHeaderBytes, sizeof(NodeRef),
                        node.begin() +
                            static_cast<ptrdiff_t>(kNodeHeaderBytes + child * sizeof(NodeRef)));
        }
    });
    check_refused("state digest is", file); // 32 leaves are not more than the file holds
    State small = sample_state({.position = 256, .layers = 1, .window = 1});
    Bytes deep = saved(small);
    // One leaf under an inner node of 32 under another of 32: 2 MiB of log from some 5 KiB.
    const auto root = read_root(deep);
    const auto snapshot = Snapshot::open("memory", memory_files(deep));
    NodeRef child = snapshot->layout().log;
    Bytes longer(deep.begin(), deep.begin() + static_cast<ptrdiff_t>(root.manifest_offset));
    for (uint32_t level = 1; level <= 2; ++level) {
        const TreeShape shape{TreeKind::log, 0, 256 * 32 * 32};
        Bytes node = node_header(shape, level, 0);
        add_children(node, std::vector<NodeRef>(kTreeFan, child));
        child = {append_section(longer, SectionKind::nodes, node), 0,
                 static_cast<uint32_t>(node.size()),
                 Sha256().bytes(node.data(), node.size()).finish()};
    }
    Layout layout = snapshot->layout();
    layout.log = child;
    layout.position = 256 * 32 * 32;
    const Bytes manifest = build_manifest(snapshot->state(), layout);
    Root changed = root;
    longer.resize(layout.position * sizeof(TokenEntry)); // so that the position alone could be true
    changed.manifest_offset = append_section(longer, SectionKind::manifest, manifest);
    changed.manifest_bytes = manifest.size();
    write_root(longer, changed);
    CHECK(refusal(longer).find("token log: the nodes of the trees add up to more than the file") !=
          std::string::npos);
}
