// Opening a model as the command line asks for it, and converting its token ids and text. Used by
// every subcommand that takes MODEL. Must not know sessions.
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
    std::string kernels, device, profile, chat_template, date;
    bool copy_weights = false, verify_weights = false;
    uint64_t kv_budget = 0; // bytes; 0: no limit
};

// Adds the positional MODEL.
void add_model(CLI::App &app, ModelChoice &choice);
// Adds --threads, --kernels, --device, --profile, --copy-weights and --verify-weights.
void add_compute_options(CLI::App &app, ModelChoice &choice);
// Adds --chat-template.
void add_template_option(CLI::App &app, ModelChoice &choice);

Model open_model(const ModelChoice &choice, stasis_cancel *cancel);
// The same for a proof, which trusts no digests of an earlier process.
Model open_verified(ModelChoice choice, stasis_cancel *cancel);
stasis_model_info model_info(const stasis_model *model);
// Returns "0.0.0": core, KV, sampling.
std::string contract_text(const uint32_t contract[3]);

// Returns the text, with `flags` of STASIS_DETOKENIZE_.... Throws Failure.
std::string detokenize(const stasis_model *model, const std::vector<stasis_token> &tokens,
                       uint32_t flags);

// Parses ids separated by commas or white space. `origin` (an option, a file) begins the error
// message. Throws Failure.
std::vector<stasis_token> parse_tokens(const std::string &list, const std::string &origin);
std::string join_tokens(const std::vector<stasis_token> &tokens);
// Returns the contents of a file. Throws Failure with the reason for directories and unreadable
// files.
std::string read_file(const std::string &path);
// Returns the tokens of --tokens or of --tokens-file.
std::vector<stasis_token> given_tokens(const std::string &list, const std::string &file);

} // namespace command
