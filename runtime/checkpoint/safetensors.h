// Tensors of a Hugging Face checkpoint: safetensors files, single or sharded, mapped read-only.
// Format: https://github.com/huggingface/safetensors (README, "Format"). Knows no architecture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/kernels/quantized.h"

namespace stasis {

// The last eight are integers in blocks (runtime/kernels/quantized.h), which only GGUF files have.
enum class DataType { bf16, f16, f32, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };

struct Tensor {
    DataType type = DataType::bf16;
    std::vector<uint64_t> shape;
    const uint8_t *data = nullptr; // into the mapping
    size_t size_bytes = 0;
    std::string file; // name within the directory, for messages
};

// The blocks of a type that has any.
std::optional<kernels::Quant> quant_of(DataType type);

// A read-only mapping of one file, unmapped when the last holder lets go.
class Mapping;

struct Checkpoint {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::string> refused; // name and dtype of tensors of any other type
    std::vector<std::shared_ptr<Mapping>> files;
    // For messages: what describes the model, and what the files call a tensor of the plan, where
    // that is another name.
    const char *description = "config.json";
    std::function<std::string(const std::string &)> name_in_file;

    // Throws Error(io) if a mapped file was written to or cut short since it was opened. (One that
    // was deleted or replaced under its name is still there in full behind the mapping.)
    void check_unchanged() const;
};

// Opens model.safetensors, or else the shards that model.safetensors.index.json lists. Checks every
// size, offset, count, overlap and type before use. Throws Error: not_found, io, corrupt.
Checkpoint open_checkpoint(const std::string &directory);

// Adds the tensors of one file's bytes (header and payload) to `checkpoint`; they point into
// `data`. Throws Error(corrupt).
void parse_safetensors(const uint8_t *data, size_t size_bytes, const std::string &file,
                       Checkpoint &checkpoint);

} // namespace stasis
