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

namespace stasis {

class ModelFile;

// Numbers as files have them (enum gguf_metadata_value_type).
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

// A value where it lies in the file's beginning. It was checked when the file was read; who reads
// it again still checks every step.
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
    std::vector<uint64_t> shape; // as in the file: neighbours in memory differ in the first
    uint64_t offset_bytes = 0;   // of the data in its file
    uint64_t size_bytes = 0;     // 0: a type that is not supported
    size_t file = 0;             // index into names and files
};

struct GgufFile {
    GgufFile() = default;
    GgufFile(GgufFile &&) = default; // a copy's metadata would point into what it was copied from
    GgufFile &operator=(GgufFile &&) = default;

    std::map<std::string, GgufValue, std::less<>> metadata;
    std::map<std::string, GgufTensor, std::less<>> tensors;
    uint32_t version = 0;
    std::vector<std::string> names; // of the file and the others that it was split into
    std::vector<std::shared_ptr<ModelFile>> files;
    std::vector<uint8_t> head; // of the first file: what `metadata` points into

    // Values by key, absent where the file has no such key. Throw Error(corrupt), naming key and
    // types, where a value is of another kind; integers may be stored in any width.
    std::optional<uint64_t> integer(std::string_view key) const; // not negative
    std::optional<int64_t> signed_integer(std::string_view key) const;
    std::optional<double> number(std::string_view key) const; // F32, F64
    std::optional<bool> boolean(std::string_view key) const;
    std::optional<std::string> text(std::string_view key) const; // UTF-8
    // Arrays. The texts lie in the file and may be any bytes.
    std::optional<std::vector<int64_t>> integers(std::string_view key) const;
    std::optional<std::vector<float>> numbers(std::string_view key) const; // F32
    std::optional<std::vector<bool>> booleans(std::string_view key) const;
    std::optional<std::vector<std::string_view>> texts(std::string_view key) const;

    bool is_array(std::string_view key) const; // false where there is no such key

    // A tensor whose data can be read. Throws Error: corrupt (there is none), unsupported
    // (its type); named.
    const GgufTensor &tensor(std::string_view name) const;

    // Throws Error(io) if a file was written to or cut short since it was opened.
    void check_unchanged() const;
};

// Opens a file, and where it is the first of several (NAME-00001-of-0000N.gguf) all of them. Checks
// every size, offset, count, type, length and name before use. Throws Error: not_found, io,
// corrupt, unsupported (another version, big-endian).
GgufFile open_gguf(const std::string &path);

// What parse_gguf throws where metadata and table of tensors end beyond what it was given.
struct GgufHeadEnds {
    uint64_t wanted_bytes; // at least
};

// The same for one file, which is one of several or not, of which `data` are the first bytes and
// `rest_bytes` follow; `file` is its name for messages. The metadata returned points into `data`.
GgufFile parse_gguf(const uint8_t *data, size_t size_bytes, const std::string &file,
                    uint64_t rest_bytes = 0);

} // namespace stasis
