// What a GGUF file says of its tensors and sizes. Knows the header's layout, and nothing of blocks:
// a tensor is as large as the next one lets it be.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace command::bench {

struct GgufTensor {
    std::string name;
    uint64_t dimensions = 0, elements = 1;
    uint32_t type = 0;
    uint64_t offset = 0, bytes = 0; // with what fills it up to the alignment
};

struct GgufHeader {
    std::vector<GgufTensor> tensors;
    std::map<std::string, uint64_t> counts; // values of u32, by key without the architecture
};

// Of all files where `path` is the first of several. The library has opened them: they are sound.
// Throws Failure.
GgufHeader read_gguf_header(const std::string &path);

} // namespace command::bench
