// Sampling settings that version 1 of the contract's sampling does not have: what of them is in a
// file, and how older builds are kept from misreading it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "format/constants.h"
#include "format/manifest.h"
#include "format/reader.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

State with(const std::function<void(SamplingV2 &v2)> &change) {
    State state = sample_state(kSmall);
    change(state.samplings[1].v2);
    return state;
}

State full() {
    return with([](SamplingV2 &v2) {
        v2 = {0.25F, 1.5F, 0.5F, 0.125F, 0.75F, 2.0F, 3, 77, 5, {0, 4, 49}};
    });
}

std::vector<Sampling> settings_in(const Bytes &file) {
    return Snapshot::open("memory", memory_files(file))->state().samplings;
}

} // namespace

TEST_CASE("save: settings of version 2 come back, alone and beside others") {
    CHECK(settings_in(saved(full())) == full().samplings);
    const std::vector<std::function<void(SamplingV2 & v2)>> changes{
        [](SamplingV2 &v2) { v2.typical_p = 0.5F; },
        [](SamplingV2 &v2) { v2.top_n_sigma = 1; },
        [](SamplingV2 &v2) { v2.xtc_probability = 1; },
        [](SamplingV2 &v2) { v2.xtc_threshold = 0.2F; },
        [](SamplingV2 &v2) { v2.dry_multiplier = 1; },
        [](SamplingV2 &v2) { v2.dry_base = 2; },
        [](SamplingV2 &v2) { v2.dry_allowed_length = 1; },
        [](SamplingV2 &v2) { v2.dry_range = 1; },
        [](SamplingV2 &v2) { v2.min_keep = 2; },
        [](SamplingV2 &v2) { v2.dry_breakers = {7}; },
    };
    for (const auto &change : changes) {
        const State state = with(change);
        CHECK(sampling_version(state.samplings) == 2);
        const Bytes file = saved(state);
        CHECK(read_root(file).features_read == kFeatureSamplingV2);
        CHECK(settings_in(file) == state.samplings);
    }
}

TEST_CASE("save: without them nothing in a file tells of version 2") {
    const State state = sample_state(kSmall);
    CHECK(sampling_version(state.samplings) == 1);
    const Bytes plain = saved(state);
    CHECK(read_root(plain).features_read == 0);
    // A file of the others, committed to again without them, has the feature no more.
    const ScratchFolder folder;
    save(full(), folder.path("s"), {});
    CHECK(Snapshot::open(folder.path("s"))->root().features_read == kFeatureSamplingV2);
    save(state, folder.path("s"), {});
    CHECK(Snapshot::open(folder.path("s"))->root().features_read == 0);
    save(full(), folder.path("s"), {});
    compact(folder.path("s"), {});
    const auto compacted = Snapshot::open(folder.path("s"));
    CHECK(compacted->root().features_read == kFeatureSamplingV2);
    CHECK(compacted->state().samplings == full().samplings);
}

TEST_CASE("Snapshot::open: a root that tells otherwise than the settings is refused") {
    for (const bool used : {false, true}) {
        const Bytes file = saved(used ? full() : sample_state(kSmall));
        Root root = read_root(file);
        root.features_read ^= kFeatureSamplingV2;
        check_refused(used ? "are there, which the root does not tell" : "are missing",
                      with_root(file, root, kSlotA));
    }
}

TEST_CASE("save: settings of version 2 out of range are refused by name, written and read") {
    struct Bad {
        const char *name;
        std::function<void(SamplingV2 &v2)> change;
    };
    const std::vector<Bad> all{
        {"typical_p", [](SamplingV2 &v2) { v2.typical_p = 0; }},
        {"typical_p", [](SamplingV2 &v2) { v2.typical_p = 1.5F; }},
        {"top_n_sigma", [](SamplingV2 &v2) { v2.top_n_sigma = -1; }},
        {"top_n_sigma", [](SamplingV2 &v2) { v2.top_n_sigma = NAN; }},
        {"xtc_probability", [](SamplingV2 &v2) { v2.xtc_probability = 1.5F; }},
        {"xtc_threshold", [](SamplingV2 &v2) { v2.xtc_threshold = 0; }},
        {"xtc_threshold", [](SamplingV2 &v2) { v2.xtc_threshold = 0.75F; }},
        {"dry_multiplier", [](SamplingV2 &v2) { v2.dry_multiplier = INFINITY; }},
        {"dry_base", [](SamplingV2 &v2) { v2.dry_base = 0.5F; }},
        {"dry_allowed_length", [](SamplingV2 &v2) { v2.dry_allowed_length = 0; }},
        {"min_keep", [](SamplingV2 &v2) { v2.min_keep = 0; }},
        {"dry_breakers: token 50",
         [](SamplingV2 &v2) {
             v2.dry_breakers = {3, 50};
         }},
        {"dry_breakers: token 3",
         [](SamplingV2 &v2) {
             v2.dry_breakers = {3, 3};
         }},
    };
    const Bytes file = saved(full());
    for (const Bad &bad : all) {
        CAPTURE(bad.name);
        CHECK_THROWS_WITH_AS(saved(with(bad.change)), doctest::Contains(bad.name), Error);
        check_refused(bad.name,
                      forged(file, [&](State &s, Layout &) { bad.change(s.samplings[1].v2); }));
    }
}

TEST_CASE("save: a denormal of version 2 counts as zero, on threads that keep denormals too") {
    constexpr float kTiny = 0x1p-149F;
    for (float SamplingV2::*member :
         {&SamplingV2::top_n_sigma, &SamplingV2::xtc_probability, &SamplingV2::dry_multiplier}) {
        CHECK(opens(saved(with([&](SamplingV2 &v2) { v2.*member = -kTiny; }))));
        CHECK_THROWS_AS(saved(with([&](SamplingV2 &v2) { v2.*member = -FLT_MIN; })), Error);
    }
    for (float SamplingV2::*member : {&SamplingV2::typical_p, &SamplingV2::xtc_threshold}) {
        CHECK_THROWS_AS(saved(with([&](SamplingV2 &v2) { v2.*member = kTiny; })), Error);
        CHECK(opens(saved(with([&](SamplingV2 &v2) { v2.*member = FLT_MIN; }))));
    }
}
