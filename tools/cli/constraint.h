// Options that constrain what is drawn, and constraints in snapshots' JSON. Must not know what a
// notation means.
#pragma once

#include <string>

#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {

struct ConstraintChoice {
    bool given = false; // else a session keeps the one that it has
    uint32_t kind = STASIS_CONSTRAINT_NONE;
    std::string value; // the text, or the file that holds it
    bool in_file = false;
};

// Adds --json-schema, --grammar, --regex, --json-text and --unconstrained.
void add_constraint_options(CLI::App &app, ConstraintChoice &choice);
// Sets the constraint that was chosen, if any was.
void apply_constraint(stasis_session *session, const ConstraintChoice &choice,
                      stasis_cancel *cancel);
// The sets of tokens in the JSON of sampling settings, each told by itself or by what it differs in
// from one before.
class StoredSets {
  public:
    StoredSets(const Json &samplings, uint32_t vocabulary)
        : samplings_(samplings), vocabulary_(vocabulary) {}
    // Returns a bit for each token that the settings allow; none: they allow all.
    const std::vector<uint32_t> &bits(size_t index);

  private:
    const Json &samplings_;
    const uint32_t vocabulary_;
    std::vector<std::vector<uint32_t>> known_; // of the first settings
};

// Sets what the JSON of sampling settings says: its constraint, or none, and its set of tokens.
// `config` is the element that holds them.
void apply_stored_constraint(stasis_session *session, const Json &config, size_t index,
                             StoredSets &sets);
bool is_constrained(const Json &settings);

} // namespace command
