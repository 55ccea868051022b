// The stasis command: finds the subcommand, converts a failure to one line on stderr and an exit
// code (0 success, 1 a check failed, 2 usage or error). Uses abi/stasis.h and no internal header.
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include <csignal>
#include <fcntl.h>

#include "tools/cli/commands.h"
#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace {

constexpr int kError = 2;

int fail(const std::string &message) {
    command::say("stasis: " + message);
    return kError;
}

std::string version_text() {
    return std::string("stasis ") + stasis_build();
}

// Closed standard streams would give their numbers to the model's files, so /dev/null is opened in
// their place, for reading only: output that cannot be shown is then an error. A file-size limit
// must fail the write, not end the process with temporary files left over.
void prepare_process() {
    for (int descriptor = 0; descriptor <= 2; ++descriptor) {
        if (fcntl(descriptor, F_GETFD) < 0) {
            open("/dev/null", O_RDONLY); // takes the lowest free number: this one
        }
    }
    std::signal(SIGXFSZ, SIG_IGN);
}

// Refuses "--name=" without a value: the parser would take the next argument for it.
void check_values(const CLI::App &app, int argc, char **argv) {
    const auto named = app.get_subcommands(
        [&](const CLI::App *subcommand) { return argc > 1 && subcommand->check_name(argv[1]); });
    for (int i = 2; i < argc && !named.empty() && std::string(argv[i]) != "--"; ++i) {
        std::string name = argv[i];
        if (name.ends_with('=') && name.starts_with("--")) {
            name.pop_back();
            if (named[0]->get_option_no_throw(name) != nullptr) {
                throw command::Failure(name + "=: the value is missing");
            }
        }
    }
}

// Runs the subcommand, or prints the text of --help or --version.
void run(CLI::App &app, int argc, char **argv) {
    check_values(app, argc, argv);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success &help) { // --help, --version
        std::ostringstream text;
        app.exit(help, text);
        command::print(text.str());
    }
}

} // namespace

int main(int argc, char **argv) {
    prepare_process();
    int exit_code = 0;
    CLI::App app(
        "Language-model sessions that can be frozen, copied, moved and proven, bit for bit",
        "stasis");
    app.set_version_flag("--version", version_text);
    app.require_subcommand(1);

    command::add_run(app, exit_code);
    command::add_chat(app, exit_code);
    command::add_score(app, exit_code);
    command::add_logits(app, exit_code);
    command::add_embed(app, exit_code);
    command::add_tokenize(app, exit_code);
    command::add_info(app, exit_code);
    command::add_inspect(app, exit_code);
    command::add_diff(app, exit_code);
    command::add_compact(app, exit_code);
    command::add_store(app, exit_code);
    command::add_serve(app, exit_code);
    command::add_verify(app, exit_code);
    command::add_replay(app, exit_code);
    command::add_report(app, exit_code);
    command::add_quantize(app, exit_code);
    command::add_synth(app, exit_code);
    command::add_bench(app, exit_code);

    try {
        run(app, argc, argv);
    } catch (const CLI::ParseError &error) {
        if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
            return fail(std::string("there is no subcommand '") + argv[1] +
                        "' (see stasis --help)");
        }
        return fail(std::string(error.what()) + " (see stasis --help)");
    } catch (const std::exception &error) {
        return fail(error.what());
    }
    return exit_code;
}
