// Steps of several sessions of one model: what deciding for many at once is worth.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/tasks.h"

namespace command::bench {

// Tokens a second of 1 to 16 sessions that decode together behind `depth` tokens each, all of them
// different; of forks of one prompt; and how often the speed of one session each is.
void steps(Bench &bench, const std::string &name, uint64_t depth);

// Tokens that every session of a step takes in a repetition.
inline constexpr uint64_t kStepTokens = 24;

} // namespace command::bench
