// Tensors of a Hugging Face checkpoint: their positions in safetensors files, single or sharded.
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
#include "runtime/model/model_folder.h"

namespace stasis {

// From q8_0 on they are integers in blocks (runtime/kernels/quantized.h), as GGUF files have them.
// Bytes are parts of blocks, whose other parts are another tensor.
enum class DataType {
    bf16,
    f16,
    f32,
    bytes,
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q4_k,
    q5_k,
    q6_k,
    q2_k,
    q3_k,
    iq4_nl,
    iq4_xs,
    mxfp4
};

struct Tensor {
    DataType type = DataType::bf16;
    std::vector<uint64_t> shape;
    uint64_t offset_bytes = 0; // offset in its file
    size_t size_bytes = 0;
    std::string file;            // name within the directory, for messages
    ModelFile *source = nullptr; // one of the checkpoint's files
    // Not 0: the file has the values in another order than row after row. That of row r and column
    // c is r * row_step + c * column_step values after the first one, which is at the offset.
    uint64_t row_step = 0, column_step = 0;
    // Of MXFP4 in safetensors: the scales of the blocks, which are apart from their other bytes.
    // Both have rows one after the other, of which every row_step-th belongs to the matrix.
    ModelFile *scales = nullptr;
    uint64_t scales_bytes = 0; // offset in that file

    // Copies bytes of the values, row after row: `count_bytes` from `from_bytes` on, whole values
    // if they are by column. Thread-safe. Throws Error(io).
    void read(void *to, size_t count_bytes, uint64_t from_bytes) const;
    // Returns the same in the file's mapping, as ModelFile::populated; null also if the values are
    // in another order.
    const uint8_t *populated(size_t count_bytes, uint64_t from_bytes) const;
};

// Returns the block type of a data type with blocks; nothing for others.
std::optional<kernels::Quant> quant_of(DataType type);
const char *name_of(DataType type); // "Q4_K"

struct Checkpoint {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, std::string> refused; // name and dtype of tensors of other types
    std::vector<std::shared_ptr<ModelFile>> files;
    // For messages: the file that describes the model, and the file's name of a tensor of the plan,
    // if it is another name.
    const char *description = "config.json";
    std::function<std::string(const std::string &)> name_in_file;

    // Throws Error(io) if a file was written to or cut short since it was opened.
    void check_unchanged() const;
};

// Opens model.safetensors, or else the shards that model.safetensors.index.json lists. Checks every
// size, offset, count, overlap and type before use. Throws Error: not_found, io, corrupt.
Checkpoint open_checkpoint(const ModelFolder &folder);
// The same for one file of any name.
Checkpoint open_checkpoint_file(const ModelFolder &folder, const std::string &name);

// Returns the bytes of a file before its payload, from its first eight bytes. Throws
// Error(corrupt).
uint64_t safetensors_head_bytes(const uint8_t *head, uint64_t file_bytes, const std::string &file);

// Adds the tensors of a file to `checkpoint`; `head` holds the bytes before the payload. Throws
// Error(corrupt).
void parse_safetensors(const uint8_t *head, uint64_t file_bytes, const std::string &file,
                       ModelFile *source, Checkpoint &checkpoint);

} // namespace stasis
