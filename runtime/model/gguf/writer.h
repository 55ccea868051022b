// Builds the head of a GGUF file of version 3: metadata and the table of tensors, as ggml's
// docs/gguf.md describes them; gguf.h reads it. Knows no architecture and no arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/gguf/gguf.h"

namespace stasis {

// Key and value pairs in the order of the calls; no key may be given twice.
class GgufMetadata {
  public:
    void text(std::string_view key, std::string_view value);
    void integer(std::string_view key, uint32_t value);
    void number(std::string_view key, float value);
    void boolean(std::string_view key, bool value);
    void texts(std::string_view key, const std::vector<std::string> &values);
    void numbers(std::string_view key, const std::vector<float> &values);
    void integers(std::string_view key, const std::vector<int32_t> &values);
    void booleans(std::string_view key, const std::vector<bool> &values);

    const std::string &bytes() const { return bytes_; }
    uint64_t count() const { return count_; }

  private:
    void key(std::string_view key, GgufValueType type);
    void array(std::string_view key, GgufValueType element, uint64_t count);

    std::string bytes_;
    uint64_t count_ = 0;
};

struct GgufEntry {
    std::string name;
    GgufType type = GgufType::f32;
    std::vector<uint64_t> shape; // rows before columns, unlike in the file
    uint64_t size_bytes = 0;     // set by gguf_head
    uint64_t offset_bytes = 0;   // offset of the data in the file, set by gguf_head
};

// Returns everything before the data. Sets sizes and offsets in `entries`, in their order.
std::string gguf_head(const GgufMetadata &metadata, std::vector<GgufEntry> &entries);

// Returns the next offset where data may begin; the file ends at such an offset.
uint64_t gguf_aligned(uint64_t offset);

} // namespace stasis
