// The subcommands, one file each. `add_x` describes x's options to the parser. When the command
// line names x, it runs x and stores the exit code (0 success, 1 a check failed) in `exit_code`; it
// throws Failure for errors.
#pragma once

#include <CLI/CLI.hpp>

namespace command {

void add_run(CLI::App &app, int &exit_code);
void add_chat(CLI::App &app, int &exit_code);
void add_score(CLI::App &app, int &exit_code);
void add_logits(CLI::App &app, int &exit_code);
void add_embed(CLI::App &app, int &exit_code);
void add_tokenize(CLI::App &app, int &exit_code); // tokenize, detokenize, template
void add_info(CLI::App &app, int &exit_code);
void add_inspect(CLI::App &app, int &exit_code);
void add_diff(CLI::App &app, int &exit_code);
void add_compact(CLI::App &app, int &exit_code);
void add_store(CLI::App &app, int &exit_code);
void add_serve(CLI::App &app, int &exit_code);
void add_verify(CLI::App &app, int &exit_code);
void add_replay(CLI::App &app, int &exit_code);
void add_report(CLI::App &app, int &exit_code);
void add_quantize(CLI::App &app, int &exit_code);
void add_synth(CLI::App &app, int &exit_code);
void add_bench(CLI::App &app, int &exit_code);

} // namespace command
