// The figures of snapshots: saving, loading and committing beside the plain calls of the system
// that move as many bytes with the same syncs, and what a token takes in a file.
#pragma once

#include "tools/bench/tasks.h"

namespace command::bench {

// Positions that a commit's repetitions need beyond its depth.
inline constexpr uint64_t kTurns = 600;

void snapshot_save(Bench &bench, const std::string &name, uint64_t depth);
void snapshot_load(Bench &bench, const std::string &name, uint64_t depth);
void snapshot_save_zstd(Bench &bench, const std::string &name, uint64_t depth);
void snapshot_load_zstd(Bench &bench, const std::string &name, uint64_t depth);
void snapshot_commit(Bench &bench, const std::string &name, uint64_t depth);
void snapshot_bytes(Bench &bench, const std::string &name, uint64_t depth);

} // namespace command::bench
