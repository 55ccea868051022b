// Writes metadata and the table of tensors; see writer.h.
#include "runtime/model/gguf/writer.h"

#include <bit>
#include <cstring>

namespace stasis {

namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32; // the default of the format

template <typename Number> void put(std::string &out, Number value) {
    static_assert(std::endian::native == std::endian::little);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof bytes);
}

void put_text(std::string &out, std::string_view text) {
    put<uint64_t>(out, text.size());
    out += text;
}

uint64_t data_size(const GgufEntry &entry) {
    uint64_t elements = 1;
    for (const uint64_t dimension : entry.shape) {
        elements *= dimension;
    }
    const GgufBlock block = gguf_block(entry.type);
    return elements / block.elements * block.size_bytes;
}

} // namespace

uint64_t gguf_aligned(uint64_t offset) {
    return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

void GgufMetadata::key(std::string_view key, GgufValueType type) {
    put_text(bytes_, key);
    put(bytes_, static_cast<uint32_t>(type));
    ++count_;
}

void GgufMetadata::array(std::string_view name, GgufValueType element, uint64_t count) {
    key(name, GgufValueType::array);
    put(bytes_, static_cast<uint32_t>(element));
    put(bytes_, count);
}

void GgufMetadata::text(std::string_view name, std::string_view value) {
    key(name, GgufValueType::string);
    put_text(bytes_, value);
}

void GgufMetadata::integer(std::string_view name, uint32_t value) {
    key(name, GgufValueType::u32);
    put(bytes_, value);
}

void GgufMetadata::number(std::string_view name, float value) {
    key(name, GgufValueType::f32);
    put(bytes_, value);
}

void GgufMetadata::boolean(std::string_view name, bool value) {
    key(name, GgufValueType::boolean);
    put<uint8_t>(bytes_, value ? 1 : 0);
}

void GgufMetadata::texts(std::string_view name, const std::vector<std::string> &values) {
    array(name, GgufValueType::string, values.size());
    for (const std::string &value : values) {
        put_text(bytes_, value);
    }
}

void GgufMetadata::numbers(std::string_view name, const std::vector<float> &values) {
    array(name, GgufValueType::f32, values.size());
    for (const float value : values) {
        put(bytes_, value);
    }
}

void GgufMetadata::integers(std::string_view name, const std::vector<int32_t> &values) {
    array(name, GgufValueType::i32, values.size());
    for (const int32_t value : values) {
        put(bytes_, value);
    }
}

void GgufMetadata::booleans(std::string_view name, const std::vector<bool> &values) {
    array(name, GgufValueType::boolean, values.size());
    for (const bool value : values) {
        put<uint8_t>(bytes_, value ? 1 : 0);
    }
}

std::string gguf_head(const GgufMetadata &metadata, std::vector<GgufEntry> &entries) {
    std::string out = "GGUF";
    put(out, kVersion);
    put<uint64_t>(out, entries.size());
    put(out, metadata.count());
    out += metadata.bytes();
    uint64_t next = 0; // offset relative to the data
    for (GgufEntry &entry : entries) {
        entry.size_bytes = data_size(entry);
        entry.offset_bytes = gguf_aligned(next);
        next = entry.offset_bytes + entry.size_bytes;
        put_text(out, entry.name);
        put(out, static_cast<uint32_t>(entry.shape.size()));
        for (size_t i = entry.shape.size(); i-- > 0;) {
            put(out, entry.shape[i]);
        }
        put(out, static_cast<uint32_t>(entry.type));
        put(out, entry.offset_bytes);
    }
    // The data begins at the next aligned offset.
    out.resize(gguf_aligned(out.size()), '\0');
    for (GgufEntry &entry : entries) {
        entry.offset_bytes += out.size();
    }
    return out;
}

} // namespace stasis
