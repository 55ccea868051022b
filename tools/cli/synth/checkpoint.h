// Writing a shape's weights as safetensors, in one file or in shards with an index. Must not know
// configs or tokenizers.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tools/cli/synth/shapes.h"

namespace command::synth {

// A published checkpoint is cut into shards of at most this many bytes, between tensors.
inline constexpr uint64_t kShardBytes = 5'000'000'000;

// Writes the weights into the existing `folder`, on all cores, and returns their bytes. Throws
// Failure if a write fails, or after `stop` was set.
uint64_t write_weights(const Shape &shape, const std::string &folder,
                       const std::atomic<bool> &stop);

// Creates a file with this content. Throws Failure.
void write_file(const std::string &path, const std::string &content);

} // namespace command::synth
