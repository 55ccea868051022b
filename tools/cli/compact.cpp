// stasis compact: writes a snapshot file anew with nothing but its state.
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct CompactChoice {
    std::string path;
    uint32_t codec = STASIS_CODEC_DEFAULT;
    bool json = false;
};

stasis_snapshot_info info_of(const std::string &path) {
    return snapshot_info(open_snapshot(path).get(), path);
}

int run_compact(const CompactChoice &choice) {
    check_target("compact", choice.path, Special::refused);
    Interrupt interrupt;
    const stasis_snapshot_info info = info_of(choice.path);
    if (warn_if_older(info, choice.path)) {
        say(choice.path + ": not compacted, for that would remove what is left of the last commit");
        return 1;
    }

    const uint64_t before = info.file_bytes;
    Progress progress("compacting " + choice.path);
    stasis_save_options options;
    stasis_save_options_init(&options, sizeof options);
    options.codec = choice.codec;
    options.cancel = interrupt.handle();
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_error error{};
    check(stasis_snapshot_compact(choice.path.c_str(), &options, &error), error, choice.path);

    const uint64_t after = info_of(choice.path).file_bytes;
    if (choice.json) {
        print_json({{"before_bytes", before}, {"after_bytes", after}});
    } else {
        print(visible(choice.path) + ": " + std::to_string(before) + " bytes, now " +
              std::to_string(after) + "\n");
    }
    return 0;
}

} // namespace

void add_compact(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<CompactChoice>();
    CLI::App *compact_app = app.add_subcommand(
        "compact", "write a snapshot file anew with nothing but its state; what was rewound, and "
                   "what older saves left, is gone then");
    compact_app->add_option("FILE", choice->path, "a snapshot")->required();
    add_codec(*compact_app, choice->codec, "for all keys and values; without it, as they are");
    compact_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    compact_app->callback([=, &exit_code] { exit_code = run_compact(*choice); });
}

} // namespace command
