// What `run` and `chat` share: sampling options, generating with the text streamed as it comes,
// loading and saving a session's file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/cli/model.h"
#include "tools/cli/snapshot.h"
#include "tools/cli/terminal.h"

namespace command {

struct GenerationChoice {
    uint64_t tokens_max = 0;
    uint32_t chunk = 0;
    bool ignore_end = false;
    std::vector<std::string> stop;
    stasis_sampling sampling{}; // what options gave; `given` copies each such field
    std::vector<std::function<void(const stasis_sampling &from, stasis_sampling &to)>> given;
    std::vector<stasis_token> dry_breakers;
    uint32_t log_probabilities = 0;
    std::string draft; // a model's path
    bool draft_lookup = false;

    bool drafts() const { return draft_lookup || !draft.empty(); }
};

// How a session is saved.
struct SaveChoice {
    bool replace = false; // without it, only over what was resumed or saved last
    uint32_t codec = STASIS_CODEC_RAW, keep = STASIS_KEEP_FULL;
};

void add_save_options(CLI::App &app, SaveChoice &choice);
void add_generation_options(CLI::App &app, GenerationChoice &choice);

// How likely a token was, and the most likely ones in its place.
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

// Draws as the files of `recommending` say (null: greedily) but for what options gave.
void apply_sampling(stasis_session *session, const GenerationChoice &choice,
                    const stasis_model *recommending);

// What --draft or --draft-lookup asked for; a draft model computes as `model` does.
void apply_draft(stasis_session *session, const GenerationChoice &choice, const ModelChoice &model,
                 stasis_cancel *cancel);
// What came of it, for a JSON object; nothing if neither was asked for.
void add_drafted(Json &object, const GenerationChoice &choice, const Reply &reply);

// Generates, nothing if tokens_max is 0; a request on `cancel` ends it early and is no failure.
// `stream`: text goes to stdout.
Reply generate(stasis_session *session, const GenerationChoice &choice, stasis_cancel *cancel,
               bool stream);

Session create_session(stasis_model *model, uint64_t domain = STASIS_DOMAIN_COMMON);
// How a session is resumed.
struct LoadChoice {
    bool alone = false; // shares no page, and reads all of them
    bool any_profile = false, accept_older = false;
    const stasis_trace_options *trace = nullptr;
};
// "-" for standard input.
Session load_session(stasis_model *model, const std::string &path, stasis_cancel *cancel,
                     const LoadChoice &choice);
// --any-profile, --accept-older.
void add_load_options(CLI::App &app, LoadChoice &choice);
void save_session(stasis_session *session, const std::string &path, const SaveChoice &choice);
// To standard output.
void write_session(stasis_session *session, OutputForSnapshot &output, const SaveChoice &choice);

uint64_t position_of(const stasis_session *session);
std::string digest_of(const stasis_session *session);

} // namespace command
