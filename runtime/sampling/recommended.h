// Recommended sampling settings from a model's own files. Knows no session.
#pragma once

#include <string>

#include "format/state/state.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/json.h"

namespace stasis {

struct RecommendedSampling {
    Sampling sampling;
    std::string refusal; // why the file's settings cannot be used; "": they can
};

// Returns the settings for files that recommend none. They give enough variety that a small model
// does not fall into a loop, as it does when greedy, and too little for nonsense.
Sampling default_recommendation();

// Return the settings of a generation_config.json (`object`; no members if there is no file) or of
// GGUF metadata. Tokens that the file suppresses have a bias of -infinity. For a value that cannot
// be used they set `refusal` instead of throwing.
RecommendedSampling recommended_sampling(const Json &object, uint32_t vocabulary);
RecommendedSampling recommended_sampling(const GgufFile &file, uint32_t vocabulary);

} // namespace stasis
