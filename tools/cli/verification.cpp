// Verifying a snapshot; see verification.h. Must not know how a report is printed.
#include "tools/cli/verification.h"

namespace command {

stasis_verify_report verify_snapshot(const stasis_snapshot *snapshot, stasis_model *model,
                                     stasis_verify_options options, const std::string &path) {
    Progress progress("verifying " + path);
    options.progress = Progress::report;
    options.progress_user = &progress;
    auto report = sized<stasis_verify_report>();
    stasis_error error{};
    const stasis_status status = stasis_snapshot_verify(snapshot, model, &options, &report, &error);
    if (status != STASIS_DIVERGED) {
        check(status, error, path);
    }
    return report;
}

void add_divergence(const stasis_verify_report &report, Json &object) {
    const auto number = [](uint64_t value, uint64_t none) {
        return value == none ? Json() : Json(value);
    };
    object["position"] = number(report.position, UINT64_MAX);
    object["layer"] = number(report.layer, STASIS_NOWHERE);
    object["head"] = number(report.head, STASIS_NOWHERE);
    object["part"] = report.part == STASIS_NOWHERE ? Json()
                     : report.part == STASIS_KEYS  ? Json("keys")
                                                   : Json("values");
    object["element"] = element_name(report.element);
    object["message"] = report.message;
}

} // namespace command
