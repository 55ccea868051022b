// Tensors of a Hugging Face checkpoint: safetensors files, single or sharded, mapped read-only.
// Format: https://github.com/huggingface/safetensors (README, "Format"). Knows no architecture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace stasis {

enum class DataType { bf16, f16, f32 };

struct Tensor {
    DataType type = DataType::bf16;
    std::vector<uint64_t> shape;
    const uint8_t *data = nullptr; // into the mapping
    size_t size_bytes = 0;
    std::string file; // name within the directory, for messages
};

// A read-only mapping of one file, unmapped when the last holder lets go. Remembers size and
// modification time; `check` throws Error(io) if the file on disk is no longer the one mapped.
class Mapping;

struct Checkpoint {
    std::map<std::string, Tensor> tensors; // tensors of types other than the three are left out,
                                           // with their name and dtype in `refused`
    std::map<std::string, std::string> refused;
    std::vector<std::shared_ptr<Mapping>> files;

    void check_unchanged() const;
};

// Opens model.safetensors, or the shards that model.safetensors.index.json lists. Checks every
// size, offset, count, overlap and type before use. Throws Error: not_found, io, corrupt.
Checkpoint open_checkpoint(const std::string &directory);

// Parses one file's bytes (header and payload) into `checkpoint`, for tests and fuzzing.
void parse_safetensors(const uint8_t *data, size_t size_bytes, const std::string &file,
                       Checkpoint &checkpoint);

} // namespace stasis
