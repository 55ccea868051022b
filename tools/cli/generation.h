// Options and functions that `run` and `chat` share: sampling, generating with the text written as
// it is generated, loading and saving a session. Must not know prompts or chat templates.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/cli/constraint.h"
#include "tools/cli/model.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"

namespace command {

struct GenerationChoice {
    uint64_t tokens_max = 0;
    uint32_t chunk = 0;
    bool ignore_end = false;
    std::vector<std::string> stop;
    stasis_sampling sampling{}; // values of the options; `given` copies the fields that were set
    std::vector<std::function<void(const stasis_sampling &from, stasis_sampling &to)>> given;
    std::vector<stasis_token> dry_breakers;
    ConstraintChoice constraint;
    uint32_t log_probabilities = 0;
    std::string draft; // a model's path
    bool draft_lookup = false;
    bool draft_mtp = false;

    bool drafts() const { return draft_lookup || draft_mtp || !draft.empty(); }
};

// How a session is saved.
struct SaveChoice {
    bool replace = false; // false: only over the state that was resumed or saved last
    uint32_t codec = STASIS_CODEC_RAW, keep = STASIS_KEEP_FULL;
};

void add_save_options(CLI::App &app, SaveChoice &choice);
void add_generation_options(CLI::App &app, GenerationChoice &choice);

// The log-probability of a token, and of the most likely tokens at its position.
struct Likelihood {
    float log_probability = 0;
    std::vector<stasis_token> best_tokens;
    std::vector<float> best;
};

struct Reply {
    std::vector<stasis_token> tokens;
    std::vector<Likelihood> likelihoods; // of the tokens, if asked for
    std::string text;
    uint32_t stop_reason = STASIS_STOP_LENGTH;
    uint64_t drafted = 0, accepted = 0, passes = 0, draft_failures = 0;
};

const char *stop_reason_name(uint32_t reason);

// Returns the settings that `recommending` recommends (null: greedy), overwritten by each field
// that an option gave. What it refers to is the model's or the choice's.
stasis_sampling chosen_sampling(const GenerationChoice &choice, const stasis_model *recommending);
void apply_sampling(stasis_session *session, const GenerationChoice &choice,
                    const stasis_model *recommending);

// Sets the drafter that --draft, --draft-lookup or --draft-mtp asks for; `opened` is the session's
// model. A draft model computes as `model` does.
void apply_draft(stasis_session *session, const GenerationChoice &choice, const ModelChoice &model,
                 stasis_model *opened, stasis_cancel *cancel);
// Adds the numbers of drafting to a JSON object; nothing if no draft was asked for.
void add_drafted(Json &object, const GenerationChoice &choice, const Reply &reply);

// Generates a reply; returns an empty one if tokens_max is 0. A request on `cancel` ends it early
// and is no failure. `stream`: text is written to stdout while it is generated.
Reply generate(stasis_session *session, const GenerationChoice &choice, stasis_cancel *cancel,
               bool stream);

Session create_session(stasis_model *model, uint64_t domain = STASIS_DOMAIN_COMMON,
                       uint64_t capacity = 0);
// How a session is resumed.
struct LoadChoice {
    bool alone = false; // shares no page, and reads all of them
    bool any_profile = false, accept_older = false;
    const stasis_trace_options *trace = nullptr;
};
// Loads a session from a file, or from standard input if `path` is "-".
Session load_session(stasis_model *model, const std::string &path, stasis_cancel *cancel,
                     const LoadChoice &choice);
// Adds --any-profile and --accept-older.
void add_load_options(CLI::App &app, LoadChoice &choice);
void save_session(stasis_session *session, const std::string &path, const SaveChoice &choice);
// Writes a session to standard output.
void write_session(stasis_session *session, OutputForSnapshot &output, const SaveChoice &choice);

uint64_t position_of(const stasis_session *session);
std::string digest_of(const stasis_session *session);

} // namespace command
