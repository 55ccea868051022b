// stasis verify: computes a snapshot's whole state again from its token log and compares every
// stored bit with the result.
#include <memory>

#include "tools/commands.h"
#include "tools/model.h"
#include "tools/snapshot.h"
#include "tools/terminal.h"

namespace command {
namespace {

struct VerifyChoice {
    std::string path;
    ModelChoice model;
    bool json = false;
};

void print_report(const stasis_verify_report &report, bool json, double seconds) {
    const bool verified = report.verified != 0;
    if (json) {
        Json object = {{"verified", verified}, {"positions", report.positions}};
        if (!verified) {
            object["position"] = report.position != UINT64_MAX ? Json(report.position) : Json();
            object["layer"] = report.layer != STASIS_NOWHERE ? Json(report.layer) : Json();
            object["element"] = element_name(report.element);
        }
        object["seconds"] = seconds;
        print_json(object);
        return;
    }
    char line[400];
    if (verified) {
        std::snprintf(
            line, sizeof line,
            "verified: %llu positions computed again in %.3f s, every stored bit the same",
            static_cast<unsigned long long>(report.positions), seconds);
    } else {
        std::snprintf(line, sizeof line, "DIVERGED: %s", report.message);
    }
    print(std::string(line) + "\n");
}

stasis_verify_report verify(const VerifyChoice &choice, double &seconds) {
    Interrupt interrupt;
    const Snapshot snapshot = open_snapshot(choice.path);
    const Model model = open_model(choice.model, interrupt.handle());
    Progress progress("verifying " + choice.path);
    stasis_verify_options options;
    stasis_verify_options_init(&options, sizeof options);
    options.cancel = interrupt.handle();
    options.progress = Progress::report;
    options.progress_user = &progress;
    auto report = sized<stasis_verify_report>();
    stasis_error error{};
    const Stopwatch watch;
    const stasis_status status =
        stasis_snapshot_verify(snapshot.get(), model.get(), &options, &report, &error);
    if (status != STASIS_DIVERGED) {
        check(status, error, choice.path);
    }
    seconds = watch.seconds();
    return report;
}

int run_verify(const VerifyChoice &choice) {
    double seconds = 0;
    const stasis_verify_report report = verify(choice, seconds);
    print_report(report, choice.json, seconds);
    return report.verified != 0 ? 0 : 1;
}

} // namespace

void add_verify(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<VerifyChoice>();
    CLI::App *verify_app = app.add_subcommand(
        "verify", "compute a snapshot's state again from its tokens; exit code 0 if every stored "
                  "bit is the same, 1 if not");
    verify_app->add_option("FILE", choice->path, "a snapshot; -: from standard input")->required();
    add_model(*verify_app, choice->model);
    add_compute_options(*verify_app, choice->model);
    verify_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    verify_app->callback([=, &exit_code] { exit_code = run_verify(*choice); });
}

} // namespace command
