// The first difference between two snapshots. Parts that determine results come first: identity,
// tokens, keys, values and recurrent states by position, final hidden state and logits; then the
// sources of tokens and the settings. Knows files only through Snapshot.
#pragma once

#include <cstdint>
#include <string>

#include "format/reader.h"
#include "format/state/watch.h"

namespace stasis::format {

inline constexpr uint32_t kNowhere = UINT32_MAX;    // no layer or head applies
inline constexpr uint64_t kNoPosition = UINT64_MAX; // no position applies

struct Difference {
    bool equal = true;
    uint32_t element = 0; // 1 to 12, element_json.h
    uint64_t position = kNoPosition;
    uint32_t layer = kNowhere;
    uint32_t head = kNowhere; // KV head
    std::string message;      // both values
};

// Returns the first difference, or an equal one. Reads only pages whose digests differ, one of each
// file for each group, and the first recurrent state. Reports progress in pages.
Difference compare(const Snapshot &a, const Snapshot &b, const Watch &watch);

} // namespace stasis::format
