// Parses header, metadata and tensor table of one GGUF file (gguf.h): finds everything and checks
// it for consistency. A count is accepted only if its items could fit into the rest of the file.
#include <algorithm>
#include <cinttypes>
#include <limits>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/model/gguf/cursor.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/gguf/values.h"

namespace stasis {

namespace {

constexpr uint64_t kAlignmentDefault = 32; // alignment of tensors without general.alignment
constexpr size_t kKeyMax = 65535, kNameMax = 64, kRankMax = 4; // limits of the specification
constexpr size_t kNestingMax = 4;                    // of arrays in arrays; this reader's limit
constexpr size_t kPairMin = 8 + 1 + 4 + 1;           // bytes: key, type of value, value
constexpr size_t kTensorMin = 8 + 1 + 4 + 8 + 4 + 8; // name, rank, a dimension, type, offset

struct Counts {
    uint64_t tensors = 0, pairs = 0;
};

Counts read_header(GgufCursor &cursor, uint32_t &version) {
    const std::string &file = cursor.file();
    if (cursor.rest_bytes() < 4 || cursor.number<uint32_t>() != 0x46554747) { // "GGUF"
        fail(Status::corrupt, "%s is no GGUF file: it does not begin with GGUF", file.c_str());
    }
    version = cursor.number<uint32_t>();
    if (version != 0 && (version & 0xFFFF) == 0) { // version 3 then reads as 0x03000000
        fail(Status::unsupported, "%s is a big-endian GGUF file; little-endian ones are supported",
             file.c_str());
    }
    if (version != 2 && version != 3) {
        fail(Status::unsupported, "%s is of GGUF version %u; supported are 2 and 3", file.c_str(),
             version);
    }
    Counts counts;
    counts.tensors = cursor.number<uint64_t>();
    counts.pairs = cursor.number<uint64_t>();
    if (counts.pairs > cursor.rest_bytes() / kPairMin ||
        counts.tensors > (cursor.rest_bytes() - counts.pairs * kPairMin) / kTensorMin) {
        fail(Status::corrupt,
             "%s says it has %" PRIu64 " metadata values and %" PRIu64
             " tensors, more than fit into its %" PRIu64 " bytes",
             file.c_str(), counts.pairs, counts.tensors, cursor.rest_bytes() + cursor.at());
    }
    return counts;
}

GgufValueType read_type(GgufCursor &cursor, const std::string &key) {
    const auto number = cursor.number<uint32_t>();
    if (number > static_cast<uint32_t>(GgufValueType::f64)) {
        cursor.corrupt("metadata " + key + ": unknown type of value " + std::to_string(number));
    }
    return static_cast<GgufValueType>(number);
}

void skip_booleans(GgufCursor &cursor, uint64_t count, const std::string &key) {
    const uint8_t *bytes = cursor.skip(count);
    if (std::any_of(bytes, bytes + count, [](uint8_t byte) { return byte > 1; })) {
        cursor.corrupt("metadata " + key + ": a boolean is neither 0 nor 1");
    }
}

// Skips `count` values of a type.
void skip_values(GgufCursor &cursor, GgufValueType type, uint64_t count, const std::string &key,
                 size_t nesting) {
    if (type == GgufValueType::string) {
        for (uint64_t i = 0; i < count; ++i) {
            cursor.text();
        }
    } else if (type == GgufValueType::array) {
        if (nesting == kNestingMax) {
            cursor.corrupt("metadata " + key + ": arrays are nested deeper than " +
                           std::to_string(kNestingMax));
        }
        for (uint64_t i = 0; i < count; ++i) {
            const GgufValueType element = read_type(cursor, key);
            const auto elements = cursor.number<uint64_t>();
            skip_values(cursor, element, elements, key, nesting + 1);
        }
    } else if (type == GgufValueType::boolean) {
        skip_booleans(cursor, count, key);
    } else {
        const size_t size = gguf_value_size(type);
        if (count > cursor.rest_bytes() / size) {
            cursor.corrupt("metadata " + key + ": " + std::to_string(count) +
                           " values reach beyond the file");
        }
        cursor.skip(count * size);
    }
}

void read_pair(GgufCursor &cursor, GgufFile &out) {
    const std::string_view key_bytes = cursor.text();
    const bool plain = std::all_of(key_bytes.begin(), key_bytes.end(),
                                   [](char c) { return c > ' ' && c < '\x7F'; });
    if (key_bytes.empty() || key_bytes.size() > kKeyMax || !plain) {
        cursor.corrupt("a metadata key is empty, too long or not plain ASCII");
    }
    const std::string key(key_bytes);
    GgufValue value;
    value.type = read_type(cursor, key);
    if (value.type == GgufValueType::array) {
        value.element = read_type(cursor, key);
        value.count = cursor.number<uint64_t>();
    }
    // Walking over the value checks it and finds its end.
    const size_t begin = cursor.at();
    value.data = cursor.skip(0);
    const bool array = value.type == GgufValueType::array;
    skip_values(cursor, array ? value.element : value.type, value.count, key, array ? 1 : 0);
    value.size_bytes = cursor.at() - begin;
    if (!out.metadata.emplace(key, value).second) {
        cursor.corrupt("metadata " + key + " is there twice");
    }
}

uint64_t read_alignment(const GgufFile &gguf) {
    constexpr char kKey[] = "general.alignment";
    const uint64_t alignment = gguf.integer(kKey).value_or(kAlignmentDefault);
    if (alignment < 8 || (alignment & (alignment - 1)) != 0) {
        fail(Status::corrupt, "%s: %s is %" PRIu64 "; expected a power of two of at least 8",
             gguf.names[0].c_str(), kKey, alignment);
    }
    return alignment;
}

[[noreturn]] void refuse(const GgufTensor &tensor, const std::string &file, const char *what) {
    fail(Status::corrupt, "tensor %s in %s: %s", tensor.name.c_str(), file.c_str(), what);
}

// Returns the bytes of a tensor; 0 for a type that is not supported.
uint64_t checked_size_bytes(const GgufTensor &tensor, const std::string &file) {
    uint64_t elements = 1;
    for (const uint64_t dimension : tensor.shape) {
        if (dimension == 0) {
            refuse(tensor, file, "one of its dimensions is 0");
        }
        if (elements > std::numeric_limits<int64_t>::max() / dimension) {
            refuse(tensor, file, "the product of its dimensions overflows");
        }
        elements *= dimension;
    }
    const GgufBlock block = gguf_block(tensor.type);
    if (block.elements == 0) {
        return 0;
    }
    if (tensor.shape[0] % block.elements != 0) {
        fail(Status::corrupt,
             "tensor %s in %s: rows of %" PRIu64 " elements are no whole blocks of %u (%s)",
             tensor.name.c_str(), file.c_str(), tensor.shape[0], block.elements,
             gguf_type_name(tensor.type).c_str());
    }
    const uint64_t blocks = elements / block.elements;
    if (blocks > std::numeric_limits<uint64_t>::max() / block.size_bytes) {
        refuse(tensor, file, "its size in bytes overflows");
    }
    return blocks * block.size_bytes;
}

GgufTensor read_tensor(GgufCursor &cursor) {
    GgufTensor tensor;
    const std::string_view name = cursor.text();
    if (name.empty() || name.size() > kNameMax || name.find('\0') != std::string_view::npos ||
        invalid_utf8(name) != name.size()) {
        cursor.corrupt("a tensor's name is empty, longer than 64 bytes or no text");
    }
    tensor.name = name;
    const auto rank = cursor.number<uint32_t>();
    if (rank == 0 || rank > kRankMax) {
        cursor.corrupt("tensor " + tensor.name + " has " + std::to_string(rank) +
                       " dimensions; expected 1 to 4");
    }
    for (uint32_t i = 0; i < rank; ++i) {
        tensor.shape.push_back(cursor.number<uint64_t>());
    }
    tensor.type = static_cast<GgufType>(cursor.number<uint32_t>());
    tensor.offset_bytes = cursor.number<uint64_t>();
    tensor.size_bytes = checked_size_bytes(tensor, cursor.file());
    return tensor;
}

// Converts offsets within the data, which begins at `begin`, to offsets in the file. Checks
// alignment, ends and overlap.
void place_tensors(GgufFile &gguf, uint64_t file_bytes, uint64_t begin, uint64_t alignment) {
    const std::string &file = gguf.names[0];
    std::vector<const GgufTensor *> order;
    for (auto &[name, tensor] : gguf.tensors) {
        if (tensor.offset_bytes % alignment != 0) {
            fail(Status::corrupt,
                 "tensor %s in %s: its offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                 name.c_str(), file.c_str(), tensor.offset_bytes, alignment);
        }
        if (begin > file_bytes || tensor.offset_bytes > file_bytes - begin ||
            tensor.size_bytes > file_bytes - begin - tensor.offset_bytes) {
            fail(Status::corrupt,
                 "tensor %s in %s: its %" PRIu64 " bytes at offset %" PRIu64
                 " of the data reach beyond the file of %" PRIu64 " bytes (is it cut short?)",
                 name.c_str(), file.c_str(), tensor.size_bytes, tensor.offset_bytes, file_bytes);
        }
        tensor.offset_bytes += begin;
        order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor *a, const GgufTensor *b) {
        return a->offset_bytes < b->offset_bytes;
    });
    for (size_t i = 1; i < order.size(); ++i) {
        // A tensor of an unsupported type has at least one byte.
        const uint64_t size = std::max<uint64_t>(order[i - 1]->size_bytes, 1);
        if (order[i]->offset_bytes < order[i - 1]->offset_bytes + size) {
            fail(Status::corrupt, "%s: tensors %s and %s overlap", file.c_str(),
                 order[i - 1]->name.c_str(), order[i]->name.c_str());
        }
    }
}

} // namespace

GgufFile parse_gguf(const uint8_t *data, size_t size_bytes, const std::string &file,
                    uint64_t rest_bytes) {
    GgufFile out;
    out.names.push_back(file);
    GgufCursor cursor(data, size_bytes, file, rest_bytes);
    const Counts counts = read_header(cursor, out.version);
    for (uint64_t i = 0; i < counts.pairs; ++i) {
        read_pair(cursor, out);
    }
    const uint64_t alignment = read_alignment(out);
    for (uint64_t i = 0; i < counts.tensors; ++i) {
        GgufTensor tensor = read_tensor(cursor);
        const std::string name = tensor.name;
        if (!out.tensors.emplace(name, std::move(tensor)).second) {
            cursor.corrupt("tensor " + name + " is there twice");
        }
    }
    const uint64_t padding = (alignment - cursor.at() % alignment) % alignment;
    place_tensors(out, size_bytes + rest_bytes, cursor.at() + padding, alignment);
    return out;
}

} // namespace stasis
