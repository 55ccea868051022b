// Reads safetensors files; see safetensors.h. One file is: u64 little-endian size of the header,
// the header (a JSON object of name -> {dtype, shape, data_offsets}, and an optional
// "__metadata__"), the payload. As in the reference implementation, the tensors must cover the
// payload without overlap, hole or remainder.
#include "runtime/model/safetensors.h"

#include <algorithm>
#include <cinttypes>
#include <limits>

#include "format/state/error.h"
#include "runtime/model/json_file.h"

namespace stasis {

namespace {

constexpr uint64_t kHeaderLimitBytes = 100'000'000; // the reference implementation's limit
constexpr size_t kRankMax = 8;

// The bytes of the payload that one tensor claims.
struct Span {
    uint64_t begin = 0;
    uint64_t end = 0;
    const std::string *name = nullptr;
};

// The file of a tensor, and its name for messages.
struct Place {
    const std::string &name;
    const std::string &file;
    ModelFile *source;
    uint64_t payload_offset; // offset of the payload in the file

    [[noreturn]] void refuse(const char *reason) const {
        fail(Status::corrupt, "tensor %s in %s: %s", name.c_str(), file.c_str(), reason);
    }
};

[[noreturn]] void refuse_member(const char *key, const char *type, const Json *found,
                                const Place &place) {
    fail(Status::corrupt, "tensor %s in %s: expected \"%s\" as %s, found %s", place.name.c_str(),
         place.file.c_str(), key, type, found == nullptr ? "nothing" : found->type_name());
}

std::vector<uint64_t> integers(const Json &entry, const char *key, size_t count_max,
                               const Place &place) {
    const Json *found = entry.find(key);
    const Json::Array *array = found != nullptr ? found->array() : nullptr;
    if (array == nullptr) {
        refuse_member(key, "array", found, place);
    }
    std::vector<uint64_t> result;
    if (array->size() > count_max) {
        place.refuse("too many dimensions or offsets");
    }
    for (const Json &value : *array) {
        if (value.count() == nullptr) {
            place.refuse("expected non-negative integers as shape and offsets");
        }
        result.push_back(*value.count());
    }
    return result;
}

Span claimed_span(const Json &entry, uint64_t payload_bytes, const Place &place) {
    const std::vector<uint64_t> offsets = integers(entry, "data_offsets", 2, place);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > payload_bytes) {
        fail(Status::corrupt,
             "tensor %s in %s: expected data_offsets [begin, end] within the payload of %" PRIu64
             " bytes",
             place.name.c_str(), place.file.c_str(), payload_bytes);
    }
    return {offsets[0], offsets[1], &place.name};
}

uint64_t checked_size_bytes(const std::vector<uint64_t> &shape, uint64_t element_bytes,
                            const Place &place) {
    uint64_t size_bytes = element_bytes;
    for (const uint64_t dimension : shape) {
        if (dimension != 0 && size_bytes > std::numeric_limits<uint64_t>::max() / dimension) {
            place.refuse("the product of its dimensions overflows");
        }
        size_bytes *= dimension;
    }
    return size_bytes;
}

// Adds one entry of the header to the checkpoint. A tensor of another dtype is recorded as refused.
void add_tensor(const Json &entry, const Span &span, const Place &place, Checkpoint &checkpoint) {
    if (checkpoint.tensors.count(place.name) != 0 || checkpoint.refused.count(place.name) != 0) {
        place.refuse("another file of the checkpoint has a tensor of that name");
    }
    const Json *type = entry.find("dtype");
    if (type == nullptr || type->text() == nullptr) {
        refuse_member("dtype", "string", type, place);
    }
    const std::string &dtype = *type->text();
    Tensor tensor;
    tensor.shape = integers(entry, "shape", kRankMax, place);
    if (dtype == "BF16") {
        tensor.type = DataType::bf16;
    } else if (dtype == "F16") {
        tensor.type = DataType::f16;
    } else if (dtype == "F32") {
        tensor.type = DataType::f32;
    } else if (dtype == "U8") {
        tensor.type = DataType::bytes;
    } else {
        checkpoint.refused.emplace(place.name, dtype);
        return;
    }

    // The dtype and the shape must agree with the claimed bytes.
    const uint64_t element_bytes = tensor.type == DataType::bytes ? 1
                                   : tensor.type == DataType::f32 ? 4
                                                                  : 2;
    const uint64_t size_bytes = checked_size_bytes(tensor.shape, element_bytes, place);
    if (size_bytes != span.end - span.begin) {
        fail(Status::corrupt,
             "tensor %s in %s: its dtype %s and shape ask for %" PRIu64
             " bytes, its data_offsets hold %" PRIu64,
             place.name.c_str(), place.file.c_str(), dtype.c_str(), size_bytes,
             span.end - span.begin);
    }
    tensor.offset_bytes = place.payload_offset + span.begin;
    tensor.size_bytes = static_cast<size_t>(size_bytes);
    tensor.file = place.file;
    tensor.source = place.source;
    checkpoint.tensors.emplace(place.name, std::move(tensor));
}

void check_coverage(std::vector<Span> spans, uint64_t payload_bytes, const std::string &file) {
    std::sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    // In order, each tensor must begin where the one before it ends.
    uint64_t covered = 0;
    for (const Span &span : spans) {
        if (span.begin != covered) {
            fail(Status::corrupt,
                 "tensor %s in %s: expected it to begin at byte %" PRIu64
                 " of the payload, where the one before it ends; found %" PRIu64,
                 span.name->c_str(), file.c_str(), covered, span.begin);
        }
        covered = span.end;
    }
    if (covered != payload_bytes) {
        fail(Status::corrupt,
             "%s: its tensors cover %" PRIu64 " bytes, its payload has %" PRIu64
             " (is it cut short "
             "or too long?)",
             file.c_str(), covered, payload_bytes);
    }
}

// Both enumerations list the types with blocks in the same order.
constexpr int kFirstQuant = static_cast<int>(DataType::q8_0);
constexpr bool ordered(DataType type, kernels::Quant quant) {
    return static_cast<int>(type) - kFirstQuant == static_cast<int>(quant);
}
static_assert(ordered(DataType::q8_0, kernels::Quant::q8_0) &&
              ordered(DataType::q4_0, kernels::Quant::q4_0) &&
              ordered(DataType::q4_1, kernels::Quant::q4_1) &&
              ordered(DataType::q5_0, kernels::Quant::q5_0) &&
              ordered(DataType::q5_1, kernels::Quant::q5_1) &&
              ordered(DataType::q4_k, kernels::Quant::q4_k) &&
              ordered(DataType::q5_k, kernels::Quant::q5_k) &&
              ordered(DataType::q6_k, kernels::Quant::q6_k) &&
              ordered(DataType::q2_k, kernels::Quant::q2_k) &&
              ordered(DataType::q3_k, kernels::Quant::q3_k) &&
              ordered(DataType::iq4_nl, kernels::Quant::iq4_nl) &&
              ordered(DataType::iq4_xs, kernels::Quant::iq4_xs) &&
              ordered(DataType::mxfp4, kernels::Quant::mxfp4));

} // namespace

uint64_t safetensors_head_bytes(const uint8_t *head, uint64_t file_bytes, const std::string &file) {
    uint64_t header_bytes = 0;
    if (file_bytes < sizeof header_bytes) {
        fail(Status::corrupt, "%s: a safetensors file has at least 8 bytes, found %" PRIu64,
             file.c_str(), file_bytes);
    }
    for (size_t i = 0; i < sizeof header_bytes; ++i) {
        header_bytes |= static_cast<uint64_t>(head[i]) << (8 * i);
    }
    if (header_bytes > kHeaderLimitBytes || header_bytes > file_bytes - sizeof header_bytes) {
        fail(Status::corrupt,
             "%s: its header should have %" PRIu64 " bytes, more than the file or the limit of "
             "%" PRIu64 " allows (file: %" PRIu64 ")",
             file.c_str(), header_bytes, kHeaderLimitBytes, file_bytes);
    }
    return sizeof header_bytes + header_bytes;
}

void parse_safetensors(const uint8_t *head, uint64_t file_bytes, const std::string &file,
                       ModelFile *source, Checkpoint &checkpoint) {
    const uint64_t head_bytes = safetensors_head_bytes(head, file_bytes, file);
    const std::string_view text(reinterpret_cast<const char *>(head),
                                static_cast<size_t>(head_bytes));
    const Json header = parse_json(text.substr(sizeof(uint64_t)), "the header of " + file);
    const uint64_t payload_bytes = file_bytes - head_bytes;
    std::vector<Span> spans;
    for (const auto &[name, entry] : *header.object()) {
        if (name == "__metadata__") {
            continue;
        }
        const Place place{name, file, source, head_bytes};
        if (entry.object() == nullptr) {
            place.refuse("expected an object with dtype, shape and data_offsets");
        }
        spans.push_back(claimed_span(entry, payload_bytes, place));
        add_tensor(entry, spans.back(), place, checkpoint);
    }
    check_coverage(std::move(spans), payload_bytes, file);
}

std::optional<kernels::Quant> quant_of(DataType type) {
    if (type < DataType::q8_0) {
        return std::nullopt;
    }
    return static_cast<kernels::Quant>(static_cast<int>(type) - kFirstQuant);
}

const char *name_of(DataType type) {
    constexpr const char *kNames[] = {"BF16", "F16",  "F32",    "U8",     "Q8_0", "Q4_0",
                                      "Q4_1", "Q5_0", "Q5_1",   "Q4_K",   "Q5_K", "Q6_K",
                                      "Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    return kNames[static_cast<size_t>(type)];
}

} // namespace stasis
