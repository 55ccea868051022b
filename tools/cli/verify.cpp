// stasis verify: computes a snapshot's whole state again from its token log and compares every
// stored bit with the result. An audit does so for a random share of the pages and reports the
// probability with which it finds a change.
#include <memory>
#include <random>

#include "tools/cli/commands.h"
#include "tools/cli/model.h"
#include "tools/cli/options.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"
#include "tools/cli/verification.h"

namespace command {
namespace {

struct VerifyChoice {
    std::string path;
    ModelChoice model;
    double audit_percent = 0; // 0: no audit
    uint64_t audit_seed = 0;
    bool audit_seed_given = false;
    bool strict = false, json = false;
};

std::string number(uint64_t value) {
    return std::to_string(value);
}

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g %%", 100 * share);
    return text;
}

// Returns the probability that an audit finds a change in `changed` of its pages; see
// stasis_verify_report.
double found_probability(const stasis_verify_report &report, uint64_t changed) {
    const uint64_t pages = report.audit_pages, drawn = report.audit_drawn;
    double unnoticed = 1;
    for (uint64_t i = 0; i < drawn; ++i) {
        unnoticed *= pages - changed <= i ? 0
                                          : static_cast<double>(pages - changed - i) /
                                                static_cast<double>(pages - i);
    }
    return 1 - unnoticed;
}

// Returns the smallest number of changed pages that is found with a probability of 99 %.
uint64_t pages_found_surely(const stasis_verify_report &report) {
    uint64_t changed = 1;
    while (changed < report.audit_pages && found_probability(report, changed) < 0.99) {
        ++changed;
    }
    return changed;
}

Json audit_json(const VerifyChoice &choice, const stasis_verify_report &report) {
    const bool some = report.audit_pages > 0;
    return {{"percent", choice.audit_percent},
            {"seed", choice.audit_seed},
            {"pages", report.audit_pages},
            {"drawn", report.audit_drawn},
            {"one_page_found", some ? Json(found_probability(report, 1)) : Json()},
            {"pages_found_99", some ? Json(pages_found_surely(report)) : Json()},
            {"unreachable", {report.unreachable_begin, report.unreachable_end}}};
}

// Describes an audit. `positions` is the length of the whole log.
std::string audit_text(const VerifyChoice &choice, const stasis_verify_report &report,
                       uint64_t positions) {
    std::string text = "  seed " + number(choice.audit_seed) + ": drew " +
                       number(report.audit_drawn) + " of " + number(report.audit_pages) + " pages";
    if (report.verified == 0) {
        return text + ", and computed no further than to this difference\n";
    }
    text += report.unreachable_end < positions
                ? "; with the last one, hidden state and logits were computed too\n"
                : "; hidden state and logits are out of reach as well\n";
    if (report.audit_pages > 0) {
        text += "  a change in one of these pages is found with a probability of " +
                percent(found_probability(report, 1));
        const uint64_t surely = pages_found_surely(report);
        text += surely > 1 ? "; in " + number(surely) + " of them, with " +
                                 percent(found_probability(report, surely)) + "\n"
                           : "\n";
    }
    if (report.unreachable_end > report.unreachable_begin) {
        text += "  out of reach: positions " + number(report.unreachable_begin) + " to " +
                number(report.unreachable_end - 1) +
                ", for the keys and values before them are not in the file\n"
                "  (without --audit they are computed)\n";
    }
    return text;
}

void print_report(const VerifyChoice &choice, const stasis_verify_report &report,
                  uint64_t positions, double seconds) {
    const bool verified = report.verified != 0;
    const bool audit = choice.audit_percent > 0;
    if (choice.json) {
        Json object = {{"verified", verified},
                       {"positions", report.positions},
                       {"older", report.older != 0},
                       {"sections", choice.strict ? Json(report.sections) : Json()}};
        if (!verified) {
            add_divergence(report, object);
        }
        if (audit) {
            object["audit"] = audit_json(choice, report);
        }
        object["seconds"] = seconds;
        print_json(object);
        return;
    }

    char line[400];
    if (verified) {
        std::snprintf(line, sizeof line,
                      "%s: %llu positions computed again in %.3f s, every stored bit %sthe same",
                      audit ? "audited" : "verified",
                      static_cast<unsigned long long>(report.positions), seconds,
                      audit ? "of them " : "");
    } else {
        std::snprintf(line, sizeof line, "DIVERGED: %s", report.message);
    }
    if (choice.strict) {
        print("checksums: all " + number(report.sections) +
              " sections and both root slots are right\n");
    }
    print(visible(line) + "\n" + (audit ? audit_text(choice, report, positions) : ""));
}

int run_verify(VerifyChoice &choice) {
    if (choice.audit_percent == 0 && choice.audit_seed_given) {
        throw Failure("--audit-seed: there is no --audit");
    }
    if (choice.audit_percent > 0 && !choice.audit_seed_given) {
        // The author of the file cannot have known a random seed. The report shows it, so that the
        // audit can be repeated.
        choice.audit_seed = std::random_device()();
    }

    Interrupt interrupt;
    const Snapshot snapshot = open_snapshot(choice.path);
    const Model model = open_verified(choice.model, interrupt.handle());
    stasis_verify_options options;
    stasis_verify_options_init(&options, sizeof options);
    options.cancel = interrupt.handle();
    options.audit_percent = choice.audit_percent;
    options.audit_seed = choice.audit_seed;
    options.flags = choice.strict ? STASIS_VERIFY_STRICT : 0;

    const Stopwatch watch;
    const stasis_verify_report report =
        verify_snapshot(snapshot.get(), model.get(), options, choice.path);
    const stasis_snapshot_info info = snapshot_info(snapshot.get(), choice.path);
    print_report(choice, report, info.position, watch.seconds());
    const bool older = warn_if_older(info, choice.path);
    return report.verified != 0 && !older ? 0 : 1;
}

} // namespace

void add_verify(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<VerifyChoice>();
    CLI::App *verify_app = app.add_subcommand(
        "verify",
        "compute a snapshot's state again from its tokens; exit code 0 if every stored "
        "bit is the same, 1 if not, or if the last commit is damaged; 2 if the file or the model "
        "cannot be read");
    verify_app->add_option("FILE", choice->path, "a snapshot; -: from standard input")->required();
    add_model(*verify_app, choice->model);
    add_number<double>(
        *verify_app, "--audit", choice->audit_percent,
        "only N percent of the pages, each from the keys and values stored before "
        "it",
        {std::numeric_limits<double>::denorm_min(), 100, "a number above 0 and at most 100"});
    CLI::Option *seed = add_count(*verify_app, "--audit-seed", choice->audit_seed,
                                  "decides which pages (default: random)");
    verify_app->add_flag("--strict", choice->strict,
                         "first check all that has a checksum, also what the state no longer "
                         "refers to");
    add_compute_options(*verify_app, choice->model);
    verify_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    verify_app->callback([=, &exit_code] {
        choice->audit_seed_given = seed->count() > 0;
        exit_code = run_verify(*choice);
    });
}

} // namespace command
