// stasis report: a snapshot as one self-contained HTML page.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/report/data.h"
#include "tools/cli/report/page.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct ReportChoice {
    std::string path, out, against;
};

int run_report(const ReportChoice &choice) {
    const bool to_stdout = choice.out.empty() || is_stream(choice.out);
    if (!to_stdout) {
        check_target("-o", choice.out, Special::allowed);
    }
    // Everything that can fail because of the files' contents comes before anything is written.
    const report::Shown shown = report::open_shown(choice.path);
    std::optional<report::Shown> other;
    std::string difference;
    if (!choice.against.empty()) {
        other = report::open_shown(choice.against);
        difference = report::difference_of(shown, *other);
    }

    using File = std::unique_ptr<std::FILE, Releaser<std::fclose>>;
    const std::string name = to_stdout ? "standard output" : choice.out;
    const auto require = [&](bool done) {
        if (!done) {
            throw Failure(name + ": " + std::strerror(errno));
        }
    };
    File opened(to_stdout ? nullptr : std::fopen(choice.out.c_str(), "wb"));
    std::FILE *file = to_stdout ? stdout : opened.get();
    require(file != nullptr);
    report::write_page(shown, other ? &*other : nullptr, difference, [&](std::string_view text) {
        require(std::fwrite(text.data(), 1, text.size(), file) == text.size());
    });
    require((to_stdout ? std::fflush(file) : std::fclose(opened.release())) == 0);
    return 0;
}

} // namespace

void add_report(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ReportChoice>();
    CLI::App *report_app = app.add_subcommand(
        "report", "a snapshot as one self-contained HTML page; needs no model and no network");
    report_app->add_option("FILE", choice->path, "a snapshot")->required();
    add_path(*report_app, "-o", choice->out, "where to write the page; -: stdout, as without it");
    add_path(*report_app, "--against", choice->against, "another snapshot: where the two part");
    report_app->callback([=, &exit_code] { exit_code = run_report(*choice); });
}

} // namespace command
