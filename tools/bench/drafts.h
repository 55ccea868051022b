// Figures of speculative decoding: tokens a second with and without, in turn, on text that repeats
// itself and on text that does not.
#pragma once

#include <string>

#include "tools/bench/tasks.h"

namespace command::bench {

// What is generated.
inline constexpr uint64_t kDrawn = 0, // tokens drawn at temperature 1
    kRepeating = 1,                   // a few tokens over and over
    kByChance = 2;                    // a few tokens at random: what came before says nothing
void drafts_by_lookup(Bench &bench, const std::string &name, uint64_t text);
// By the model of --draft.
void drafts_by_model(Bench &bench, const std::string &name, uint64_t text);

inline constexpr uint64_t kDraftPrompt = 64, kDraftTokens = 192;

} // namespace command::bench
