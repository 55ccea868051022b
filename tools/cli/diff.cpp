// stasis diff: whether two snapshots hold the same state, and if not, the first difference.
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct DiffChoice {
    std::string a, b;
    bool json = false;
};

// Returns the place of a difference; "" if it has none, as a difference of two models.
std::string place_text(const stasis_difference &difference) {
    std::string text;
    const auto add = [&](bool given, const char *name, uint64_t value) {
        if (given) {
            text += (text.empty() ? " [" : ", ") + std::string(name) + std::to_string(value);
        }
    };
    add(difference.position != UINT64_MAX, "position ", difference.position);
    add(difference.layer != STASIS_NOWHERE, "layer ", difference.layer);
    add(difference.head != STASIS_NOWHERE, "head ", difference.head);
    return text.empty() ? text : text + "]";
}

int run_diff(const DiffChoice &choice) {
    const Snapshot a = open_snapshot(choice.a), b = open_snapshot(choice.b);
    warn_if_older(snapshot_info(a.get(), choice.a), choice.a);
    warn_if_older(snapshot_info(b.get(), choice.b), choice.b);
    auto difference = sized<stasis_difference>();
    stasis_error error{};
    check(stasis_snapshot_compare(a.get(), b.get(), &difference, &error), error,
          choice.a + " and " + choice.b);
    const bool equal = difference.equal != 0;
    if (choice.json) {
        const auto place = [&](bool given, uint64_t value) {
            return !equal && given ? Json(value) : Json();
        };
        print_json({{"equal", equal},
                    {"element", equal ? Json() : Json(element_name(difference.element))},
                    {"position", place(difference.position != UINT64_MAX, difference.position)},
                    {"layer", place(difference.layer != STASIS_NOWHERE, difference.layer)},
                    {"head", place(difference.head != STASIS_NOWHERE, difference.head)}});
    } else {
        print(equal ? "equal\n"
                    : "different: " + visible(difference.message) + place_text(difference) + "\n");
    }
    return equal ? 0 : 1;
}

} // namespace

void add_diff(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<DiffChoice>();
    CLI::App *diff_app = app.add_subcommand(
        "diff", "compare the states in two snapshots; exit code 0 if equal, 1 if different");
    diff_app->add_option("A", choice->a, "a snapshot; -: from standard input")->required();
    diff_app->add_option("B", choice->b, "another")->required();
    diff_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    diff_app->callback([=, &exit_code] { exit_code = run_diff(*choice); });
}

} // namespace command
