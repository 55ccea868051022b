// Writes a shape's weights as safetensors, in one file or in shards with an index. Knows no config
// and no tokenizer.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tools/cli/synth/shapes.h"

namespace command::synth {

// A published checkpoint goes into shards of at most this, never cutting a tensor.
inline constexpr uint64_t kShardBytes = 5'000'000'000;

// Into the existing `folder`, on all cores; returns the bytes of weights. Throws Failure if the
// disk does, or once `stop` is set.
uint64_t write_weights(const Shape &shape, const std::string &folder,
                       const std::atomic<bool> &stop);

// A new file with this content. Throws Failure.
void write_file(const std::string &path, const std::string &content);

} // namespace command::synth
