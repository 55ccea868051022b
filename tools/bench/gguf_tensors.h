// What a GGUF file says of its tensors. Knows the header's layout, and nothing of blocks: a tensor
// is as large as the next one lets it be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace command::bench {

struct GgufTensor {
    std::string name;
    uint64_t dimensions = 0, elements = 1;
    uint32_t type = 0;
    uint64_t offset = 0, bytes = 0; // with what fills it up to the alignment
};

// Of all files where `path` is the first of several. The library has opened them: they are sound.
// Throws Failure.
std::vector<GgufTensor> read_gguf_tensors(const std::string &path);

} // namespace command::bench
