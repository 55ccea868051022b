// Figures of speculative decoding: tokens a second with and without, in turn, on text that repeats
// itself and on text that does not.
#pragma once

#include <string>

#include "tools/bench/tasks.h"

namespace command::bench {

// `repeats`: 1: a text of a few tokens over and over; 0: tokens drawn at temperature 1.
void drafts_by_lookup(Bench &bench, const std::string &name, uint64_t repeats);
// By the model of --draft.
void drafts_by_model(Bench &bench, const std::string &name, uint64_t repeats);

inline constexpr uint64_t kDraftPrompt = 64, kDraftTokens = 192;

} // namespace command::bench
