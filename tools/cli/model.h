// Opening a model as the command line asks for it, and the text it reads and writes.
// Shared by every subcommand that takes MODEL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/handles.h"

namespace command {

struct ModelChoice {
    std::string path;
    uint32_t threads = 0;
    std::string kernels, device, profile, chat_template;
    bool copy_weights = false;
};

// The positional MODEL.
void add_model(CLI::App &app, ModelChoice &choice);
// --threads, --kernels, --device, --profile, --copy-weights.
void add_compute_options(CLI::App &app, ModelChoice &choice);
// --chat-template.
void add_template_option(CLI::App &app, ModelChoice &choice);

Model open_model(const ModelChoice &choice, stasis_cancel *cancel);
stasis_model_info model_info(const stasis_model *model);
// "0.0.0": core, KV, sampling.
std::string contract_text(const uint32_t contract[3]);

// `flags`: STASIS_DETOKENIZE_...
std::string detokenize(const stasis_model *model, const std::vector<stasis_token> &tokens,
                       uint32_t flags);

// Ids separated by commas or white space. `origin` (an option, a file) opens the error message.
std::vector<stasis_token> parse_tokens(const std::string &list, const std::string &origin);
std::string join_tokens(const std::vector<stasis_token> &tokens);
// The whole file; directories and unreadable files are refused with the reason.
std::string read_file(const std::string &path);
// Of --tokens or --tokens-file, whichever was given.
std::vector<stasis_token> given_tokens(const std::string &list, const std::string &file);

} // namespace command
