// Options and results of a generation, as plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/watch.h"
#include "runtime/sampling/likelihood.h"

namespace stasis {

enum class StopReason : uint32_t {
    length = 0,
    end_token,
    stop_string,
    callback,
    cancelled,
    no_token, // the constraint allows none
    timeout,
};

struct Generated {
    uint32_t token;
    uint64_t position;
    std::string_view text;
    bool last;
    const LogProbabilities *likely; // of the token; null: not asked for, or last
};

struct GenerateOptions {
    uint64_t tokens_max = 0; // 0: until full
    bool ignore_end = false;
    std::vector<uint32_t> stop_tokens;
    std::vector<std::string> stop_strings;
    bool (*callback)(void *user, const Generated &generated) = nullptr; // false: stop
    void *callback_user = nullptr;
    size_t log_probabilities = 0; // best tokens reported with each token; 0: none, nor its own
    Watch watch;
};

struct GenerateResult {
    StopReason reason = StopReason::length;
    uint64_t begin = 0, count = 0;
    // Tokens proposed, and how many of them were drawn; passes; failures of a drafter.
    uint64_t drafted = 0, accepted = 0, passes = 0, draft_failures = 0;
};

} // namespace stasis
