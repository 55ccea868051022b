// Features of a state; see features.h.
#include "format/features.h"

#include "format/pages.h"
#include "format/state/error.h"

namespace stasis::format {

void set_features(const State &state, const Layout &layout, Root &root) {
    root.features_refuse = (layout.evictions == SectionRef() ? 0 : kFeatureEvictions) |
                           (state.profile == Profile() ? 0 : kFeatureProfile) |
                           (state.recurrent.layers.empty() ? 0 : kFeatureRecurrent) |
                           (state.contract.experts == 0 ? 0 : kFeatureExperts) |
                           (layers_differ(state) ? kFeatureLayers : 0) |
                           (layout.settings == NodeRef() ? 0 : kFeatureSettings);
    root.features_read =
        (uses_v2(state.samplings) ? kFeatureSamplingV2 : 0) |
        (uses_v3(state.samplings) || layout.settings != NodeRef() ? kFeatureSamplingV3 : 0) |
        (layout.host_data == SectionRef() ? 0 : kFeatureHostData);
}

void check_features(const State &state, const Layout &layout, const Root &root) {
    Root right;
    set_features(state, layout, right);
    const auto check_settings = [&](int version, uint64_t feature) {
        if (((root.features_read ^ right.features_read) & feature) != 0) {
            fail(Status::corrupt, "manifest: sampling settings of version %d %s", version,
                 (right.features_read & feature) != 0 ? "are there, which the root does not tell"
                                                      : "are missing");
        }
    };
    check_settings(2, kFeatureSamplingV2);
    check_settings(3, kFeatureSamplingV3);
    const auto check = [&](const char *what, uint64_t feature, uint64_t Root::*word) {
        if (((root.*word ^ right.*word) & feature) != 0) {
            fail(Status::corrupt, "%s: the root's features and the manifest disagree", what);
        }
    };
    check("data of hosts", kFeatureHostData, &Root::features_read);
    check("evictions", kFeatureEvictions, &Root::features_refuse);
    check("device profile", kFeatureProfile, &Root::features_refuse);
    check("recurrent layers", kFeatureRecurrent, &Root::features_refuse);
    check("contract for experts", kFeatureExperts, &Root::features_refuse);
    check("layers that differ", kFeatureLayers, &Root::features_refuse);
    check("settings with sets", kFeatureSettings, &Root::features_refuse);
}

} // namespace stasis::format
