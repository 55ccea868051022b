// The stasis command: finds the subcommand, turns what went wrong into one line on stderr and an
// exit code (0 success, 1 a check failed, 2 usage or error). Uses abi/stasis.h and nothing below.
#include <cstdio>
#include <exception>
#include <string>

#include "tools/commands.h"
#include "tools/handles.h"

namespace {

constexpr int kError = 2;

int fail(const std::string &message) {
    std::fprintf(stderr, "stasis: %s\n", message.c_str());
    return kError;
}

std::string version_text() {
    const uint32_t version = stasis_version();
    return "stasis " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) +
           "." + std::to_string(version & 255);
}

} // namespace

int main(int argc, char **argv) {
    int exit_code = 0;
    CLI::App app(
        "Language-model sessions that can be frozen, copied, moved and proven, bit for bit",
        "stasis");
    app.set_version_flag("--version", version_text);
    app.require_subcommand(1);
    command::add_run(app, exit_code);
    command::add_chat(app, exit_code);
    command::add_logits(app, exit_code);
    command::add_tokenize(app, exit_code);
    command::add_info(app, exit_code);
    command::add_inspect(app, exit_code);
    command::add_diff(app, exit_code);
    command::add_verify(app, exit_code);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success &help) { // --help, --version
        return app.exit(help);
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
