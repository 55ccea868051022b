// Sizes of groups and sharing layers that contradict the rest, with all checksums right: each
// refused for its reason, as a save refuses them, and nothing allocated by a size that was not
// checked.
#include <doctest/doctest.h>

#include "format/constants.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

using Layers = std::vector<uint32_t>;

// Layers 0 and 2; layer 1 of three KV heads of 10; layers 3 and 4 share.
const Bytes &uneven_file() {
    static const Bytes bytes = saved(sample_state(kUneven));
    return bytes;
}

void refused_uneven(const char *why, const Change &change) {
    check_refused(why, forged(uneven_file(), change));
    // A save refuses the same of a session without pages.
    Shape shape = kUneven;
    shape.position = 0;
    State state = sample_state(shape);
    Layout layout;
    layout.pages.resize(2);
    change(state, layout);
    state.pages.resize(state.groups.size());
    state.digest = state_digest(state);
    CHECK_THROWS_WITH_AS(saved(state), doctest::Contains(why), Error);
}

} // namespace

TEST_CASE("Snapshot::open: impossible sizes of a layer group are refused, and none overflows") {
    REQUIRE(refusal(forged(uneven_file(), [](State &, Layout &) {})) == "");
    for (const uint32_t value : {0U, 65537U, UINT32_MAX}) {
        refused_uneven("number of KV heads of a layer group is",
                       [=](State &s, Layout &) { s.groups[1].kv_heads = value; });
        refused_uneven("head_dim of a layer group is",
                       [=](State &s, Layout &) { s.groups[1].head_dim = value; });
        refused_uneven(value == 0 ? "number of KV heads of a layer group is 0"
                                  : "number of KV heads of a layer group is",
                       [=](State &s, Layout &) { // of a group that has none
                           s.groups[0].kv_heads = value;
                           s.groups[0].head_dim = 7;
                       });
    }
    refused_uneven("layer group 1: its own sizes, 2 KV heads of 4, are those of the state",
                   [](State &s, Layout &) {
                       s.groups[1].kv_heads = 2;
                       s.groups[1].head_dim = 4;
                   });
}

TEST_CASE("Snapshot::open: sizes of a layer group other than those of its pages are refused") {
    const auto refused_read = [](const char *why, uint32_t kv_heads, uint32_t head_dim) {
        check_refused(why, forged(uneven_file(), [=](State &s, Layout &) {
                          s.groups[1].kv_heads = kv_heads;
                          s.groups[1].head_dim = head_dim;
                      }));
    };
    refused_read("a run of 3840 bytes", 65536, 10);
    refused_read("a run of 3840 bytes", 3, 65536);
    refused_read("a run of 3840 bytes", 65536, 65536);
    refused_read("a run of 3840 bytes", 3, 161); // more than 16 times what is stored
    refused_read("expected 61440 in 3840", 3, 160);
    refused_read("expected 1024 in 3840", 0, 0);
    refused_read("expected 5120 in 3840", 4, 10);
    // Sizes of the state are not those of the group.
    check_refused("a run of 2048 bytes",
                  forged(uneven_file(), [](State &s, Layout &) { s.kv_heads = 65536; }));
}

TEST_CASE("Snapshot::open: sharing layers out of range, out of order or elsewhere are refused") {
    for (const Layers &layers :
         {Layers{3, 5}, Layers{UINT32_MAX}, Layers{3, 3}, Layers{4, 3}, Layers{4, 0}}) {
        refused_uneven("is out of range, twice, out of order or recurrent",
                       [&](State &s, Layout &) { s.sharing = layers; });
    }
    refused_uneven("layer 1 is out of range, twice, out of order, recurrent or sharing",
                   [](State &s, Layout &) {
                       s.sharing = {1, 3, 4};
                   });
    refused_uneven("layer groups hold 3 layers of 5, 0 are recurrent, 1 sharing",
                   [](State &s, Layout &) { s.sharing = {4}; });
    refused_uneven("layer groups hold 3 layers of 6, 0 are recurrent, 2 sharing",
                   [](State &s, Layout &) {
                       s.layers = 6;
                       s.model.attention.resize(6);
                       s.model.mlp.resize(6);
                   });
    refused_uneven("sharing layers: 5 of them, but no layer has keys and values",
                   [](State &s, Layout &l) {
                       s.groups.clear();
                       l.pages.clear();
                       s.sharing = {0, 1, 2, 3, 4};
                   });
    Shape hybrid = kUneven;
    hybrid.layers = 7;
    hybrid.checkpoints = 30;
    check_refused("sharing layers: layer 4 is out of range, twice, out of order or recurrent",
                  forged(saved(sample_state(hybrid)), [](State &s, Layout &) {
                      s.sharing = {3, 4, 5};
                  }));
}

TEST_CASE("Snapshot::open: layers that differ and the feature go together, or are refused") {
    const char *const why = "layers that differ: the root's features and the manifest disagree";
    for (const uint64_t features : {uint64_t{0}, kFeatureLayers - 1}) {
        Root root = read_root(uneven_file());
        root.features_refuse = features;
        const std::string message = refusal(with_root(uneven_file(), root, kSlotA));
        CHECK(message.find(features == 0 ? why : "disagree") != std::string::npos);
    }
    check_refused(why, forged(uneven_file(), [](State &s, Layout &) {
                      s.sharing = {};
                      s.groups[0].layers = {0, 2, 3, 4};
                      s.groups[1].kv_heads = s.groups[1].head_dim = 0;
                  }));
    Root root = read_root(small_file());
    root.features_refuse = kFeatureLayers;
    check_refused(why, with_root(small_file(), root, kSlotA));
}
