// What a model's own files say of how its tokens are drawn best. Knows no session.
#pragma once

#include <string>

#include "format/state/state.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/json.h"

namespace stasis {

struct RecommendedSampling {
    Sampling sampling;
    std::string refusal; // what cannot be used of what the file says, and why; "": all can
};

// What is meant where the files say nothing: variety enough that a small model does not fall into a
// loop, as it does when greedy, and too little for nonsense.
Sampling default_recommendation();

// Of a generation_config.json (`object`; no members where there is none), or of GGUF metadata.
// Neither throws for a value that cannot be used: that is the refusal.
RecommendedSampling recommended_sampling(const Json &object);
RecommendedSampling recommended_sampling(const GgufFile &file);

} // namespace stasis
