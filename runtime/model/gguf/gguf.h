// GGUF files, versions 2 and 3, little-endian: metadata and a table of tensors.
// Format: ggml's docs/gguf.md. Knows no architecture and no arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/gguf/types.h"
#include "runtime/model/model_folder.h"

namespace stasis {

// The numbers of value types in files (enum gguf_metadata_value_type).
enum class GgufValueType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

// The position of a value in the head of the file. Values were checked when the file was read;
// readers still check every step.
struct GgufValue {
    GgufValueType type = GgufValueType::u8;
    GgufValueType element = GgufValueType::u8; // of an array
    uint64_t count = 1;                        // elements of an array
    const uint8_t *data = nullptr;             // the first element; of a string, its length
    size_t size_bytes = 0;
};

struct GgufTensor {
    std::string name;
    GgufType type = GgufType::f32;
    // In the file's order: the first dimension varies fastest in memory.
    std::vector<uint64_t> shape;
    uint64_t offset_bytes = 0; // of the data in its file
    uint64_t size_bytes = 0;   // 0: a type that is not supported
    size_t file = 0;           // index into names and files
};

struct GgufFile {
    GgufFile() = default;
    GgufFile(GgufFile &&) = default; // a copy's metadata would point into what it was copied from
    GgufFile &operator=(GgufFile &&) = default;

    std::map<std::string, GgufValue, std::less<>> metadata;
    std::map<std::string, GgufTensor, std::less<>> tensors;
    uint32_t version = 0;
    std::vector<std::string> names; // names of the file and of the others that it was split into
    std::vector<std::shared_ptr<ModelFile>> files;
    std::vector<uint8_t> head; // first bytes of the first file, which `metadata` points into

    // Return values by key; empty if the file has no such key. Throw Error(corrupt) naming key and
    // types if a value is of another kind; integers may be stored in any width.
    std::optional<uint64_t> integer(std::string_view key) const; // not negative
    std::optional<int64_t> signed_integer(std::string_view key) const;
    std::optional<double> number(std::string_view key) const; // F32, F64
    std::optional<bool> boolean(std::string_view key) const;
    std::optional<std::string> text(std::string_view key) const; // UTF-8
    // Return arrays. The texts point into the file and may be any bytes.
    std::optional<std::vector<int64_t>> integers(std::string_view key) const;
    std::optional<std::vector<float>> numbers(std::string_view key) const; // F32
    std::optional<std::vector<bool>> booleans(std::string_view key) const;
    std::optional<std::vector<std::string_view>> texts(std::string_view key) const;

    bool is_array(std::string_view key) const; // false if there is no such key

    // Returns a tensor whose data can be read. Throws Error naming it: corrupt (it does not exist),
    // unsupported (its type).
    const GgufTensor &tensor(std::string_view name) const;

    // Throws Error(io) if a file was written to or cut short since it was opened.
    void check_unchanged() const;
};

// Opens a file, and all files of the model if it is the first of several
// (NAME-00001-of-0000N.gguf). Checks every size, offset, count, type, length and name before use.
// Throws Error: not_found, io, corrupt, unsupported (another version, big-endian).
GgufFile open_gguf(const std::string &path);
// Opens the same in a folder, by the name of its (first) file.
GgufFile open_gguf(const ModelFolder &folder, const std::string &first);
// Opens a file that has no name: `name` is for messages. Throws also Error(unsupported): a model
// that is split over several files.
GgufFile open_gguf(std::shared_ptr<ModelFile> file, const std::string &name);

// Thrown by parse_gguf if metadata and table of tensors do not end within the given bytes.
struct GgufHeadEnds {
    uint64_t wanted_bytes; // at least
};

// Parses one file, alone or one of several: `data` are its first bytes, and `rest_bytes` more
// follow; `file` is its name for messages. The metadata returned points into `data`.
GgufFile parse_gguf(const uint8_t *data, size_t size_bytes, const std::string &file,
                    uint64_t rest_bytes = 0);

} // namespace stasis
