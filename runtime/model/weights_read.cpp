// See weights_read.h. A piece of one MiB is the unit of work and a leaf of its tensor's digest.
#include "runtime/model/weights_read.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cinttypes>
#include <cstring>
#include <exception>
#include <limits>

#include "format/state/bf16.h"
#include "format/state/error.h"
#include "format/state/sha256_lanes.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/environment.h"
#include "runtime/kernels/math.h"
#include "runtime/model/f16.h"
#include "runtime/model/model_file.h"
#include "runtime/model/weights_coded.h"
#include "runtime/model/weights_strips.h"

namespace stasis {

namespace {

constexpr size_t kPieceBytes = 1U << 20;
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// Where the values of one tensor go; all null: a mapping is used, or strips (weights_strips.h,
// weights_coded.h).
struct Destination {
    uint8_t *stored = nullptr; // as they are
    uint16_t *bf16 = nullptr;
    float *f32 = nullptr;

    bool goes_nowhere() const { return stored == nullptr && bf16 == nullptr && f32 == nullptr; }
};

struct Piece {
    const PlannedTensor *planned = nullptr;
    Destination destination; // of the whole tensor
    size_t offset_bytes = 0; // in the tensor
    size_t size_bytes = 0;
    size_t checked_bytes = 0; // of numbers that stay as they are: they were finite
    // Results.
    Digest digest;
    size_t nonfinite = kNone; // index in the tensor of the first value that is not finite
    std::exception_ptr error;

    // Calls work() unless something failed before, and keeps what it throws.
    template <typename Work> void guard(const Work &work) {
        if (error == nullptr) {
            try {
                work();
            } catch (...) {
                error = std::current_exception();
            }
        }
    }
};

bool is_finite(float value) {
    return (std::bit_cast<uint32_t>(value) & 0x7F800000U) != 0x7F800000U;
}

// Stored values may lie at any address.
uint16_t load_16(const uint8_t *data, size_t index) {
    uint16_t value;
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
}

float load_bf16(const uint8_t *data, size_t index) {
    return kernels::bf16_to_f32(load_16(data, index));
}

float load_f16(const uint8_t *data, size_t index) {
    return f16_to_f32(load_16(data, index));
}

float load_f32(const uint8_t *data, size_t index) {
    float value;
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
}

// Stores a value as the forward pass reads it; returns that.
float place_value(const PlannedTensor &planned, float value, size_t index, float *values) {
    switch (planned.stored) {
    case Stored::as_read:
        break;
    case Stored::less_one:
        value = 1.0F + value;
        break;
    case Stored::log_rate:
        value = -kernels::exp_f32(value);
        break;
    case Stored::by_channel: {
        const size_t channels = planned.shape.front(), taps = planned.shape.back();
        index = index % taps * channels + index / taps;
        break;
    }
    }
    return values[index] = value;
}

// Stores the `count` values of `data`, which begins with index `first` of the tensor; returns the
// index of the first that is not finite as stored or as rounded, or kNone.
template <float (*load)(const uint8_t *, size_t)>
size_t convert(const PlannedTensor &planned, const uint8_t *data, const Destination &destination,
               size_t first, size_t count) {
    size_t nonfinite = kNone;
    for (size_t i = first + count; i-- > first;) {
        const float value = load(data, i - first);
        bool finite = is_finite(value);
        if (destination.f32 != nullptr) {
            finite = is_finite(place_value(planned, value, i, destination.f32)) && finite;
        }
        if (destination.bf16 != nullptr) {
            destination.bf16[i] = kernels::f32_to_bf16(value);
            finite = is_finite(kernels::bf16_to_f32(destination.bf16[i]));
        }
        nonfinite = finite ? nonfinite : i;
    }
    return nonfinite;
}

// Of the blocks that begin in a piece, whose last may end beyond it: the index of the first weight
// whose scale is not finite.
size_t find_nonfinite_scale(const uint8_t *data, kernels::Quant quant, const Piece &piece) {
    const kernels::QuantBlock shape = kernels::quant_block(quant);
    const size_t end = piece.offset_bytes + piece.size_bytes;
    for (size_t at = (piece.offset_bytes + shape.bytes - 1) / shape.bytes; at * shape.bytes < end;
         ++at) {
        const uint8_t *block = data + (at * shape.bytes - piece.offset_bytes);
        for (const size_t scale : kernels::quant_scales(quant)) {
            const bool finite = quant == kernels::Quant::mxfp4
                                    ? block[scale] != 0xFF
                                    : (load_16(block + scale, 0) & 0x7C00U) != 0x7C00U;
            if (!finite) {
                return at * shape.elements;
            }
        }
    }
    return kNone;
}

// Returns the bytes of a piece, and those after it of the block that it ends in: from the mapping
// where there is one, else read into `bytes`.
std::span<const uint8_t> read_piece(const Piece &piece, std::vector<uint8_t> &bytes) {
    const Tensor &tensor = *piece.planned->tensor;
    const std::optional<kernels::Quant> quant = quant_of(tensor.type);
    const size_t beyond = quant ? kernels::quant_block(*quant).bytes : 0;
    const size_t count =
        std::min(piece.size_bytes + beyond, tensor.size_bytes - piece.offset_bytes);
    if (const uint8_t *mapped = tensor.populated(count, piece.offset_bytes)) {
        return {mapped, count};
    }
    bytes.resize(count);
    tensor.read(bytes.data(), count, piece.offset_bytes);
    return bytes;
}

bool stays_as_it_is(const Piece &piece) {
    return piece.planned->tensor->type == DataType::bf16 && piece.destination.f32 == nullptr;
}

// Checks numbers up to `bytes` of a piece that was read. One that is not finite ends the checking.
void check_numbers(Piece &piece, const uint8_t *data, size_t bytes) {
    const auto *numbers = reinterpret_cast<const uint16_t *>(data + piece.checked_bytes);
    if (all_finite_bf16(numbers, (bytes - piece.checked_bytes) / sizeof(uint16_t))) {
        piece.checked_bytes = bytes / sizeof(uint16_t) * sizeof(uint16_t);
    }
}

// Checks the values of a piece that was read, and stores them.
void take_piece(Piece &piece, const uint8_t *data) {
    const kernels::FloatEnvironment environment; // for 1 + w and exp
    const Tensor &tensor = *piece.planned->tensor;
    const std::optional<kernels::Quant> quant = quant_of(tensor.type);
    if (piece.destination.stored != nullptr) {
        std::memcpy(piece.destination.stored + piece.offset_bytes, data, piece.size_bytes);
    }
    if (quant) {
        piece.nonfinite = find_nonfinite_scale(data, *quant, piece);
        return;
    }

    const size_t element_bytes = tensor.type == DataType::f32 ? 4 : 2;
    const size_t first = piece.offset_bytes / element_bytes;
    const size_t count = piece.size_bytes / element_bytes;
    const Destination &destination = piece.destination;
    // Usually no value is infinite or NaN, and nothing has to be converted.
    if (stays_as_it_is(piece) && piece.checked_bytes == piece.size_bytes) {
        return;
    }
    switch (tensor.type) {
    case DataType::bf16:
        piece.nonfinite = convert<load_bf16>(*piece.planned, data, destination, first, count);
        break;
    case DataType::f16:
        piece.nonfinite = convert<load_f16>(*piece.planned, data, destination, first, count);
        break;
    case DataType::f32:
        piece.nonfinite = convert<load_f32>(*piece.planned, data, destination, first, count);
        break;
    default: // blocks, above
        break;
    }
}

// Memory of one thread for the bytes of pieces.
using PieceBytes = std::array<std::vector<uint8_t>, kSha256Lanes>;

// Reads up to kSha256Lanes pieces; what fails is kept in the piece.
void read_pieces(std::span<Piece> pieces, PieceBytes &bytes) {
    HashedMessage messages[kSha256Lanes];
    Digest digests[kSha256Lanes];
    for (size_t i = 0; i < pieces.size(); ++i) {
        Piece &piece = pieces[i];
        piece.guard(
            [&] { messages[i].body = read_piece(piece, bytes[i]).first(piece.size_bytes); });
    }
    // Numbers are checked while the cache has them.
    const Hashed check = [&](size_t i, size_t size_bytes) {
        if (stays_as_it_is(pieces[i])) {
            check_numbers(pieces[i], messages[i].body.data(), size_bytes);
        }
    };
    pieces.front().guard([&] { digest_messages({messages, pieces.size()}, digests, check); });
    for (size_t i = 0; i < pieces.size(); ++i) {
        Piece &piece = pieces[i];
        piece.digest = digests[i];
        piece.guard([&] { take_piece(piece, messages[i].body.data()); });
    }
}

template <typename T> T *take_storage(size_t count, const Memory &memory, Weights &weights) {
    weights.storage.push_back(std::make_unique<Buffer>(memory));
    weights.storage.back()->grow(count * sizeof(T));
    return static_cast<T *>(weights.storage.back()->data());
}

// How a tensor is kept, before it has an address.
struct Kept {
    bool mapped = false;        // where the file has it
    uint64_t stored_bytes = 0;  // copied as it is
    uint64_t bf16 = 0, f32 = 0; // numbers that are converted, beside strips
};

// Decides how a tensor is kept; nothing is set for a matrix that is in strips alone, of integers or
// coded. Throws Error(unsupported) for a vector of integers.
Kept kept_as(const PlannedTensor &planned, bool map, bool code, const Weights &weights) {
    const Tensor &tensor = *planned.tensor;
    const bool embeddings = planned.matrix == &weights.embeddings;
    Kept kept;
    if (quant_of(tensor.type) && planned.matrix == nullptr) {
        fail(Status::unsupported, "tensor %s in %s is of type %s, which only matrices may have",
             planned.shown.c_str(), tensor.file.c_str(), name_of(tensor.type));
    }
    const bool as_stored = planned.lookup != nullptr || (quant_of(tensor.type) && embeddings);
    if (as_stored || quant_of(tensor.type)) {
        kept.mapped = as_stored && map;
        kept.stored_bytes = as_stored && !map ? tensor.size_bytes : 0;
        return kept;
    }
    const uint64_t count = tensor.size_bytes / (tensor.type == DataType::f32 ? 4 : 2);
    const bool in_place = tensor.row_step == 0 && tensor.offset_bytes % alignof(uint16_t) == 0;
    if (planned.vector != nullptr) {
        kept.f32 = count;
    } else if (code && can_be_coded(planned) && !embeddings) {
        return kept;
    } else if (tensor.type == DataType::bf16) {
        kept.mapped = in_place && map;
        kept.stored_bytes = kept.mapped ? 0 : tensor.size_bytes;
    } else {
        kept.bf16 = count;
        kept.f32 = embeddings ? count : 0;
    }
    return kept;
}

// Rows that are looked up stay as they are stored.
Destination place_lookup(const PlannedTensor &planned, const WeightsPlace &place,
                         Weights &weights) {
    const Tensor &tensor = *planned.tensor;
    Destination destination;
    const Kept kept = kept_as(planned, place.map, place.code != nullptr, weights);
    if (!kept.mapped) {
        destination.stored = take_storage<uint8_t>(kept.stored_bytes, place.memory, weights);
    }
    const uint8_t *rows =
        kept.mapped ? tensor.source->map() + tensor.offset_bytes : destination.stored;
    *planned.lookup = {rows, tensor.type, tensor.size_bytes / tensor.shape.front()};
    return destination;
}

// Points the forward pass at the mapping, or at new memory; matrices of integers get theirs from
// place_strips.
Destination place_tensor(const PlannedTensor &planned, const WeightsPlace &place,
                         Weights &weights) {
    const Tensor &tensor = *planned.tensor;
    Destination destination;
    if (planned.lookup != nullptr) {
        return place_lookup(planned, place, weights);
    }
    const Kept kept = kept_as(planned, place.map, place.code != nullptr, weights);
    if (planned.vector != nullptr) {
        weights.float_storage.emplace_back(kept.f32);
        destination.f32 = weights.float_storage.back().data();
        *planned.vector = destination.f32;
        return destination;
    }

    // Matrices as they are stored.
    const uint8_t *stored = nullptr;
    if (kept.stored_bytes != 0) {
        destination.stored = take_storage<uint8_t>(kept.stored_bytes, place.memory, weights);
        stored = destination.stored;
    } else if (kept.mapped) {
        stored = tensor.source->map() + tensor.offset_bytes;
    }
    if (const std::optional<kernels::Quant> quant = quant_of(tensor.type)) {
        planned.matrix->quant = *quant;
        if (planned.matrix == &weights.embeddings) {
            weights.embedding_blocks = stored;
        }
        return destination;
    }
    if (stored != nullptr) {
        planned.matrix->data = reinterpret_cast<const uint16_t *>(stored);
        return destination;
    }

    if (kept.bf16 == 0) { // coded
        return destination;
    }

    // Those that are converted.
    destination.bf16 = take_storage<uint16_t>(kept.bf16, place.memory, weights);
    planned.matrix->data = destination.bf16;
    weights.converted = weights.converted || planned.group != WeightGroup::mtp;
    if (kept.f32 != 0) {
        destination.f32 = take_storage<float>(kept.f32, place.memory, weights);
        weights.wide_embeddings = destination.f32;
    }
    return destination;
}

// Cuts the tensors that are hashed into pieces; if their digests are known, those whose values go
// somewhere, or are coded from a second reading.
std::vector<Piece> cut_into_pieces(const std::vector<PlannedTensor> &plan,
                                   const WeightsPlace &place, bool known, Weights &weights) {
    std::vector<Piece> pieces;
    for (const PlannedTensor &planned : plan) {
        const Destination destination = place_tensor(planned, place, weights);
        const bool coded = place.code != nullptr && can_be_coded(planned);
        if (known && destination.goes_nowhere() && !coded) {
            continue;
        }
        const size_t size_bytes = planned.tensor->size_bytes;
        for (size_t offset = 0; offset < size_bytes; offset += kPieceBytes) {
            Piece &piece = pieces.emplace_back();
            piece.planned = &planned;
            piece.destination = destination;
            piece.offset_bytes = offset;
            piece.size_bytes = std::min(kPieceBytes, size_bytes - offset);
        }
    }
    return pieces;
}

void check_piece(const Piece &piece) {
    if (piece.error != nullptr) {
        std::rethrow_exception(piece.error);
    }
    if (piece.nonfinite != kNone) {
        const Tensor &tensor = *piece.planned->tensor;
        fail(Status::nonfinite, "tensor %s in %s: the value at index %zu is not finite%s",
             piece.planned->shown.c_str(), tensor.file.c_str(), piece.nonfinite,
             piece.planned->matrix != nullptr ? ", at least not as bf16" : "");
    }
}

Digest tensor_digest(const PlannedTensor &planned, const Piece *pieces, size_t count) {
    Sha256 hash;
    hash.text("stasis tensor").text(planned.name).text(name_of(planned.tensor->type));
    hash.u64(planned.shape.size());
    for (const uint64_t dimension : planned.shape) {
        hash.u64(dimension);
    }
    hash.u64(count);
    for (size_t i = 0; i < count; ++i) {
        hash.digest(pieces[i].digest);
    }
    return hash.finish();
}

// Returns the digest of each tensor. Of one that was not read it is that of `known`.
std::vector<Digest> tensor_digests(const std::vector<PlannedTensor> &plan,
                                   const std::vector<Piece> &pieces,
                                   const std::optional<std::vector<Digest>> &known) {
    std::vector<Digest> digests;
    size_t first = 0;
    for (const PlannedTensor &planned : plan) {
        size_t last = first;
        while (last < pieces.size() && pieces[last].planned == &planned) {
            ++last;
        }
        const bool skipped = known && first == last;
        digests.push_back(skipped ? (*known)[digests.size()]
                                  : tensor_digest(planned, pieces.data() + first, last - first));
        first = last;
    }
    return digests;
}

} // namespace

void measure_tensors(const std::vector<PlannedTensor> &plan, bool map, bool code,
                     const Weights &weights, WeightSizes &sizes) {
    for (const PlannedTensor &planned : plan) {
        const Kept kept = kept_as(planned, map, code, weights);
        const uint64_t wide_bytes = kept.f32 * sizeof(float);
        const bool vector = planned.vector != nullptr;
        sizes.mapped_bytes += kept.mapped ? planned.tensor->size_bytes : 0;
        sizes.taken_bytes += kept.stored_bytes + kept.bf16 * sizeof(uint16_t);
        (vector ? sizes.heap_bytes : sizes.taken_bytes) += wide_bytes;
    }
    sizes.taken_bytes += strips_size_bytes(plan, code);
}

bool read_tensors(std::vector<PlannedTensor> &plan, const WeightsPlace &place,
                  std::optional<std::vector<Digest>> &digests, Threads &threads, const Watch &watch,
                  Weights &weights) {
    assert(place.code == nullptr || !place.map);
    std::vector<Piece> pieces = cut_into_pieces(plan, place, digests.has_value(), weights);
    std::vector<PieceBytes> bytes(threads.count());
    Progress progress{watch, place_strips(plan, place, weights)};
    for (const Piece &piece : pieces) {
        progress.total_bytes += piece.size_bytes;
    }
    const PlannedTensor *complete = plan.data(); // tensors before it were read to their ends
    const auto complete_until = [&](const PlannedTensor *next) {
        for (; complete < next; ++complete) {
            make_strips(*complete, threads, progress);
            code_matrix(*complete, place, threads, progress, weights);
        }
    };
    for (size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
        progress.step();
        const uint64_t goal_bytes = progress.done_bytes + kBatchBytes;
        while (end < pieces.size() && progress.done_bytes < goal_bytes) {
            progress.done_bytes += pieces[end++].size_bytes;
        }
        const std::span<Piece> batch(pieces.data() + begin, end - begin);
        const size_t grain = messages_at_a_time(batch.size(), threads.count());
        threads.run(batch.size(), grain, [&](size_t first, size_t last, size_t thread) {
            read_pieces(batch.subspan(first, last - first), bytes[thread]);
        });
        std::for_each(pieces.begin() + static_cast<ptrdiff_t>(begin),
                      pieces.begin() + static_cast<ptrdiff_t>(end), check_piece);
        complete_until(end < pieces.size() ? pieces[end].planned : plan.data() + plan.size());
    }
    complete_until(plan.data() + plan.size());
    progress.step();

    std::vector<Digest> found = tensor_digests(plan, pieces, digests);
    if (digests) {
        return found == *digests;
    }
    digests = std::move(found);
    return true;
}

} // namespace stasis
