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
// Sets what the JSON of sampling settings says: its constraint, or none, and its set of tokens.
// `config` is the element that holds them.
void apply_stored_constraint(stasis_session *session, const Json &config, const Json &settings,
                             uint32_t vocabulary);
bool is_constrained(const Json &settings);

} // namespace command
