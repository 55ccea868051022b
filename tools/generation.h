// What `run` and `chat` share: sampling options, generating with the text streamed as it comes,
// loading and saving a session's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/model.h"
#include "tools/snapshot.h"

namespace command {

struct GenerationChoice {
    uint64_t tokens_max = 0;
    uint32_t chunk = 0;
    bool ignore_end = false;
    std::vector<std::string> stop;
    stasis_sampling sampling{};
    bool sampling_given = false; // some sampling option was on the command line
};

// How a session is saved.
struct SaveChoice {
    bool replace = false;
    uint32_t codec = STASIS_CODEC_RAW, keep = STASIS_KEEP_FULL;
};

void add_save_options(CLI::App &app, SaveChoice &choice);
void add_generation_options(CLI::App &app, GenerationChoice &choice);

struct Reply {
    std::vector<stasis_token> tokens;
    std::string text;
    uint32_t stop_reason = STASIS_STOP_LENGTH;
};

const char *stop_reason_name(uint32_t reason);

// Sampling settings stay as the session has them (greedy if it is new, those of the file if it was
// resumed) unless the command line gives any.
void apply_sampling(stasis_session *session, const GenerationChoice &choice);

// Generates, nothing if tokens_max is 0; a request on `cancel` ends it early and is no failure.
// `stream`: text goes to stdout.
Reply generate(stasis_session *session, const GenerationChoice &choice, stasis_cancel *cancel,
               bool stream);

Session create_session(stasis_model *model, uint64_t domain = STASIS_DOMAIN_COMMON);
// "-" for standard input. `alone`: shares no page, and reads all of them.
Session load_session(stasis_model *model, const std::string &path, stasis_cancel *cancel,
                     bool alone = false);
void save_session(stasis_session *session, const std::string &path, const SaveChoice &choice);
// To standard output.
void write_session(stasis_session *session, OutputForSnapshot &output, const SaveChoice &choice);

uint64_t position_of(const stasis_session *session);
std::string digest_of(const stasis_session *session);

} // namespace command
