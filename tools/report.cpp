// stasis report: a snapshot as one HTML page that needs nothing but itself. Fills the page's
// template with what report/data.cpp gathers; what is shown, and how, is the page's own business.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tools/commands.h"
#include "tools/options.h"
#include "tools/report/data.h"
#include "tools/report/page.h"
#include "tools/terminal.h"

namespace command {
namespace {

struct ReportChoice {
    std::string path, out, against;
};

// JSON that may stand in a script element: no "<", so that no text can end the element or open a
// comment in it (HTML, "Restrictions for contents of script elements").
std::string inert(const Json &json) {
    std::string text;
    for (const char byte : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
        text += byte == '<' ? "\\u003c" : std::string(1, byte);
    }
    return text;
}

std::string script() {
    std::string text;
    for (const std::string_view part :
         {report::model_js(), report::conversation_js(), report::cache_js(), report::facts_js(),
          report::parting_js(), report::page_js()}) {
        text += part;
    }
    return text;
}

// The template with its marks replaced, in one pass: what is filled in is not looked at again.
std::string page(const Json &data) {
    const std::string_view whole = report::page_html();
    std::string text;
    size_t at = 0;
    for (size_t mark; (mark = whole.find("{{", at)) != std::string_view::npos;) {
        const size_t end = whole.find("}}", mark);
        const std::string_view name = whole.substr(mark + 2, end - mark - 2);
        text += whole.substr(at, mark - at);
        // A text in the file cannot know the root digest that covers it: it is the nonce that
        // scripts need to run.
        text += name == "style"    ? std::string(report::page_css())
                : name == "script" ? script()
                : name == "data"   ? inert(data)
                                   : data["session"]["root"].get<std::string>();
        at = end + 2;
    }
    return text.append(whole.substr(at));
}

void write_file(const std::string &path, const std::string &text) {
    std::unique_ptr<std::FILE, Releaser<std::fclose>> file(std::fopen(path.c_str(), "wb"));
    const bool written =
        file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
    if (!written || std::fclose(file.release()) != 0) {
        throw Failure(path + ": " + std::strerror(errno));
    }
}

int run_report(const ReportChoice &choice) {
    if (!choice.out.empty()) {
        check_target("-o", choice.out, Special::allowed);
    }
    const std::string text = page(report::collect(choice.path, choice.against));
    if (choice.out.empty()) {
        print(text);
    } else {
        write_file(choice.out, text);
    }
    return 0;
}

} // namespace

void add_report(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<ReportChoice>();
    CLI::App *report_app = app.add_subcommand(
        "report", "a snapshot as one self-contained HTML page; needs no model and no network");
    report_app->add_option("FILE", choice->path, "a snapshot")->required();
    add_path(*report_app, "-o", choice->out, "where to write the page (default: stdout)");
    add_path(*report_app, "--against", choice->against, "another snapshot: where the two part");
    report_app->callback([=, &exit_code] { exit_code = run_report(*choice); });
}

} // namespace command
