// stasis replay: runs a snapshot's token log again and reports every difference: the first number
// of the keys and values, every token that is drawn differently, logits, and the text that the
// model would generate instead. Walks only a log for which verification reports a difference; see
// replay/walk.h.
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/model.h"
#include "tools/cli/options.h"
#include "tools/cli/replay/walk.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"
#include "tools/cli/verification.h"

namespace command {
namespace {

constexpr size_t kDifferencesMax = 10;

struct ReplayChoice {
    std::string path;
    ModelChoice model;
    uint64_t tokens_max = 32;
    bool json = false;
};

// Pages of the file to compare with.
struct Pages {
    uint64_t all = 0, stored = 0;
};

Pages count_pages(const Json &kv_cache) {
    Pages pages;
    for (const Json &group : kv_cache["groups"]) {
        pages.all += group["pages"].get<uint64_t>();
        pages.stored += group["stored"].get<uint64_t>();
    }
    return pages;
}

std::string count_text(uint64_t count, const char *what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string quoted(const std::string &text) {
    return visible(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json side_json(const replay::Words &words) {
    return {{"tokens", words.tokens}, {"text", words.text}};
}

Json logits_json(const replay::Logits &logits) {
    const auto best_json = [](const replay::Best &best) -> Json {
        return {{"token", best.token}, {"text", best.text}, {"logit", best.logit}};
    };
    return {{"differ", logits.differ},
            {"compared", logits.compared},
            {"largest_difference", logits.largest},
            {"stored", best_json(logits.stored)},
            {"computed", best_json(logits.computed)}};
}

Json otherwise_json(const std::vector<replay::Otherwise> &otherwise) {
    Json list = Json::array();
    for (const replay::Otherwise &each : otherwise) {
        list.push_back(
            {{"position", each.position}, {"recorded", each.recorded}, {"drawn", each.drawn}});
    }
    return list;
}

void print_as_json(const stasis_verify_report &report, const Pages &pages, const replay::Walk &walk,
                   double seconds) {
    const bool verified = report.verified != 0;
    Json object = {{"verified", verified},      {"positions", report.positions},
                   {"pages", pages.all},        {"pages_stored", pages.stored},
                   {"drawn", report.drawn},     {"drawn_otherwise", otherwise_json(walk.otherwise)},
                   {"older", report.older != 0}};
    if (!verified) {
        add_divergence(report, object);
        object["logits"] = logits_json(walk.logits);
        object["from"] = walk.otherwise.empty() ? Json() : Json(walk.otherwise[0].position);
        object["recorded"] = side_json(walk.recorded);
        object["instead"] = side_json(walk.instead);
    }
    object["seconds"] = seconds;
    print_json(object);
}

std::string same_text(const stasis_verify_report &report, const Pages &pages, double seconds) {
    char time[40];
    std::snprintf(time, sizeof time, " (%.3f s)\n", seconds);
    std::string text = "the same, bit for bit" + std::string(time) + "  " +
                       count_text(report.positions, "position") +
                       " computed again, with hidden state and logits\n  " +
                       count_text(report.drawn, "token") + " drawn again\n  " +
                       count_text(pages.all, "page") + " of keys and values";
    if (pages.stored < pages.all) {
        text += pages.stored == 0 ? ", by digest: the file does not keep them"
                                  : ", " + std::to_string(pages.all - pages.stored) +
                                        " of them by digest: they are not in the file";
    }
    return text + "\n";
}

std::string otherwise_text(const stasis_verify_report &report, const replay::Walk &walk) {
    std::string text = "drawn     " + std::to_string(report.drawn_otherwise) + " of " +
                       count_text(report.drawn, "token") + " come out otherwise\n";
    for (size_t i = 0; i < std::min(walk.otherwise.size(), kDifferencesMax); ++i) {
        const replay::Otherwise &each = walk.otherwise[i];
        char line[80];
        std::snprintf(line, sizeof line, "  %8llu  ",
                      static_cast<unsigned long long>(each.position));
        text += line + std::to_string(each.recorded) + " " + quoted(each.recorded_text) +
                " recorded, " + std::to_string(each.drawn) + " " + quoted(each.drawn_text) +
                " drawn\n";
    }
    if (walk.otherwise.size() > kDifferencesMax) {
        text += "            and " + std::to_string(walk.otherwise.size() - kDifferencesMax) +
                " more (--json shows all)\n";
    }
    return text;
}

std::string logits_text(const replay::Logits &logits) {
    if (logits.differ == 0) {
        return "logits    the " + std::to_string(logits.compared) + " best are the same\n";
    }
    const auto best_text = [](const replay::Best &best) {
        char logit[40];
        std::snprintf(logit, sizeof logit, " %.6g", static_cast<double>(best.logit));
        return std::to_string(best.token) + " " + quoted(best.text) + logit;
    };
    char differ[120];
    std::snprintf(differ, sizeof differ, "logits    %zu of the %zu best differ, by up to %.6g\n",
                  logits.differ, logits.compared, logits.largest);
    return std::string(differ) + "  best in the file: " + best_text(logits.stored) +
           "; computed: " + best_text(logits.computed) + "\n";
}

std::string differences_text(const stasis_verify_report &report, const replay::Walk &walk) {
    std::string text = "DIVERGED: " + visible(report.message) + "\n";
    text += otherwise_text(report, walk) + logits_text(walk.logits);
    if (!walk.otherwise.empty()) {
        text += "from position " + std::to_string(walk.otherwise[0].position) + "\n  recorded  " +
                quoted(walk.recorded.text) + "\n  instead   " + quoted(walk.instead.text) + "\n";
    }
    return text;
}

int run_replay(const ReplayChoice &choice) {
    Interrupt interrupt;
    const Snapshot snapshot = open_snapshot(choice.path);
    const Model model = open_verified(choice.model, interrupt.handle());
    stasis_verify_options options;
    stasis_verify_options_init(&options, sizeof options);
    options.cancel = interrupt.handle();
    const Stopwatch watch;
    const stasis_verify_report report =
        verify_snapshot(snapshot.get(), model.get(), options, choice.path);
    const bool verified = report.verified != 0;
    const replay::Walk walk =
        verified ? replay::Walk()
                 : replay::walk(snapshot.get(), model.get(), report.drawn_otherwise > 0,
                                choice.tokens_max, interrupt.handle());
    const Pages pages = count_pages(snapshot_element(snapshot.get(), 1));
    if (choice.json) {
        print_as_json(report, pages, walk, watch.seconds());
    } else {
        print(verified ? same_text(report, pages, watch.seconds())
                       : differences_text(report, walk));
    }
    const bool older = warn_if_older(snapshot_info(snapshot.get(), choice.path), choice.path);
    return verified && !older ? 0 : 1;
}

} // namespace

void add_replay(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ReplayChoice>();
    CLI::App *replay_app = app.add_subcommand(
        "replay", "run a snapshot's tokens again and tell where and how the model differs from "
                  "it; exit code 0 if nowhere, 1 if it does, or if the last commit is damaged");
    replay_app->add_option("FILE", choice->path, "a snapshot; -: from standard input")->required();
    add_model(*replay_app, choice->model);
    add_count(*replay_app, "-n", choice->tokens_max,
              "where a token was drawn otherwise, show N that the model says instead")
        ->default_str(std::to_string(choice->tokens_max));
    add_compute_options(*replay_app, choice->model);
    replay_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    replay_app->callback([=, &exit_code] { exit_code = run_replay(*choice); });
}

} // namespace command
