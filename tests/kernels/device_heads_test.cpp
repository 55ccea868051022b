// Queries, keys and values on the device, against the reference's norm, RoPE and rounding; keys and
// values in the slots of their pages and nowhere else.
#include "runtime/kernels/environment.h"
#include "tests/device/fenced.h"
#include "tests/kernels/edges.h"

using stasis::kernels::DeviceHeads;
using stasis::kernels::DevicePages;
using stasis::kernels::DeviceRow;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::kPagePositions;
using stasis::kernels::reference_table;
using stasis::kernels::Table;
using under_test::Fenced;
using under_test::Opened;
using under_test::There;

namespace {

constexpr size_t kGroups = 2, kLayers = 2; // of a group
constexpr uint32_t kHeadsLayer = 7;        // of the model
constexpr uint32_t kNever = 0xFFFFFFFFU;
constexpr float kEps = 1e-5F;

struct Shape {
    size_t heads, kv_heads, head_dim;
    bool interleaved, query_norm, key_norm;
};

// Sequences side by side: where each begins and how many rows it has.
struct Run {
    uint64_t position;
    size_t rows;
    uint32_t first; // of its pages
};
constexpr Run kRuns[] = {{62, 4, 0}, {0, 1, 0}, {190, 2, 2}, {129, 1, 1}};
constexpr uint64_t kPositions = 192;

// Everything a call reads, and what must be there afterwards.
struct HeadsCase {
    Shape shape;
    size_t group, layer; // the layer's place
    std::vector<DeviceRow> rows;
    std::vector<DevicePages> sequences; // [group][sequence]
    std::vector<size_t> pages;          // index of each in `memory`; 0: there is none
    std::vector<uint16_t> memory;       // all pages
    std::vector<float> query, key, value, query_norm, key_norm, cosine, sine;
    std::vector<uint32_t> failed;
    std::vector<uint16_t> rounded;

    size_t page_elements() const {
        return kLayers * 2 * shape.kv_heads * kPagePositions * shape.head_dim;
    }
    size_t offset(size_t is_value, size_t head) const { // runtime/kv/page_pool.h, PageShape
        return ((layer * 2 + is_value) * shape.kv_heads + head) * kPagePositions * shape.head_dim;
    }
    uint16_t *page_of(const DeviceRow &row) {
        const DevicePages own = sequences[group * std::size(kRuns) + row.sequence];
        return memory.data() +
               pages[own.at + row.position / kPagePositions - own.first] * page_elements();
    }
};

HeadsCase make_case(const Shape &shape, Kind kind, Numbers &numbers) {
    HeadsCase x;
    x.shape = shape, x.group = numbers.below(kGroups), x.layer = numbers.below(kLayers);
    uint32_t sequence = 0;
    for (const Run &run : kRuns) {
        for (size_t i = 0; i < run.rows; ++i) {
            x.rows.push_back({run.position + i, 0, sequence});
        }
        ++sequence;
    }
    size_t count = 1; // the first page of the memory is nobody's
    for (size_t group = 0; group < kGroups; ++group) {
        for (const Run &run : kRuns) {
            x.sequences.push_back({run.first, static_cast<uint32_t>(x.pages.size())});
            const uint64_t end = (run.position + run.rows - 1) / kPagePositions + 1;
            for (uint64_t block = run.first; block < end; ++block) {
                x.pages.push_back(block < run.position / kPagePositions ? 0 : count++);
            }
        }
    }
    x.memory.resize(count * x.page_elements());
    for (uint16_t &element : x.memory) {
        element = static_cast<uint16_t>(numbers.bits());
    }
    const size_t n = shape.head_dim, rows = x.rows.size();
    x.query = numbers.floats(rows * shape.heads * n, kind);
    x.key = numbers.floats(rows * shape.kv_heads * n, kind);
    x.value = numbers.floats(rows * shape.kv_heads * n, kind);
    x.query_norm = numbers.floats(n, kKinds[numbers.below(6)]);
    x.key_norm = numbers.floats(n, kKinds[numbers.below(6)]);
    const Kind turns = numbers.below(2) == 0 ? Kind::plain : kind;
    x.cosine = numbers.floats(kPositions * n / 2, turns);
    x.sine = numbers.floats(kPositions * n / 2, turns);
    x.failed.assign(rows, kNever);
    x.failed[0] = kHeadsLayer - 1, x.failed[1] = kHeadsLayer + 1;
    for (std::vector<float> *some : {&x.query, &x.key, &x.value}) { // of different rows
        if (numbers.below(2) == 0) {
            const uint32_t bits = 0x7F7FFFFFU + static_cast<uint32_t>(numbers.below(3));
            (*some)[numbers.below(some->size())] = std::bit_cast<float>(bits); // or rounds to it
        }
    }
    return x;
}

// Puts the same head everywhere.
void fill(const Shape &shape, const std::vector<float> &head, std::vector<float> &all) {
    const size_t n = shape.head_dim;
    for (size_t i = 0; i < all.size(); ++i) {
        const size_t at = i % n;
        all[i] = head[shape.interleaved ? at / 2 + at % 2 * (n / 2) : at];
    }
}

// Heads on the edges of flushing: in their norm, whose result is seen as it is, or in RoPE, where
// one half of each pair is zero and the other lies on the edge with cosine and sine.
void put_edges(HeadsCase &x, Numbers &numbers) {
    const Shape &shape = x.shape;
    const size_t n = shape.head_dim, half = n / 2;
    std::vector<float> head(n);
    for (size_t i = 0; i < half; ++i) {
        const float edge = edge_factor(numbers, -30);
        head[i % 2 == 0 ? i : i + half] = edge;
        for (size_t at = i; at < x.cosine.size(); at += half) {
            x.cosine[at] = x.sine[at] = partner(edge);
        }
    }
    fill(shape, head, x.query);
    fill(shape, head, x.key);
    if ((shape.query_norm || shape.key_norm) && n >= 16) {
        const EdgeNorm edges = edge_norm(numbers, n, kEps);
        x.query_norm = x.key_norm = edges.weight;
        fill(shape, edges.x, shape.query_norm ? x.query : x.key);
        fill(shape, edges.x, shape.key_norm ? x.key : x.query);
        x.cosine.assign(x.cosine.size(), 1.0F);
        x.sine.assign(x.sine.size(), 0.0F);
    }
}

// As runtime/compute/forward.cpp has it: finish_head, and store_heads below.
void finish_head(const HeadsCase &x, const float *from, const std::vector<float> *norm,
                 uint64_t position, uint16_t *rounded) {
    const Table &reference = reference_table();
    const size_t n = x.shape.head_dim;
    std::vector<float> head(from, from + n);
    if (x.shape.interleaved) {
        for (size_t i = 0; i < n / 2; ++i) {
            head[i] = from[2 * i];
            head[n / 2 + i] = from[2 * i + 1];
        }
    }
    if (norm != nullptr) {
        reference.rms_norm(head.data(), norm->data(), n, kEps, head.data());
    }
    reference.rope(head.data(), &x.cosine[position * n / 2], &x.sine[position * n / 2], n);
    reference.round_bf16(head.data(), n, rounded);
}

bool is_finite(const uint16_t *x, size_t n) {
    return std::all_of(x, x + n, [](uint16_t value) { return (value & 0x7F80U) != 0x7F80U; });
}

void store_heads(HeadsCase &x) {
    const Shape &shape = x.shape;
    const size_t n = shape.head_dim;
    const FloatEnvironment environment;
    x.rounded.resize(x.query.size());
    for (size_t r = 0; r < x.rows.size(); ++r) {
        const uint64_t position = x.rows[r].position;
        const size_t slot = position % kPagePositions;
        for (size_t head = 0; head < shape.heads; ++head) {
            const size_t at = (r * shape.heads + head) * n;
            finish_head(x, &x.query[at], shape.query_norm ? &x.query_norm : nullptr, position,
                        &x.rounded[at]);
        }
        for (size_t head = 0; head < shape.kv_heads; ++head) {
            const size_t at = (r * shape.kv_heads + head) * n;
            uint16_t *key = x.page_of(x.rows[r]) + x.offset(0, head) + slot * n;
            uint16_t *value = x.page_of(x.rows[r]) + x.offset(1, head) + slot * n;
            finish_head(x, &x.key[at], shape.key_norm ? &x.key_norm : nullptr, position, key);
            reference_table().round_bf16(&x.value[at], n, value);
            if (!is_finite(key, n) || !is_finite(value, n)) {
                x.failed[r] = std::min(x.failed[r], kHeadsLayer);
            }
        }
    }
}

// Runs it there and here. Returns how many rows were marked.
size_t check_case(const Opened &on, HeadsCase x) {
    const Shape &shape = x.shape;
    const Fenced<uint16_t> memory(on, x.memory);
    const Fenced<uint16_t> rounded(on, std::vector<uint16_t>(x.query.size()));
    const Fenced<uint32_t> failed(on, x.failed);
    std::vector<uint16_t *> pages;
    for (const size_t page : x.pages) {
        pages.push_back(page == 0 ? nullptr : memory.get() + page * x.page_elements());
    }
    const There<uint16_t *> there_pages(on, pages);
    const There<DeviceRow> rows(on, x.rows);
    const There<DevicePages> sequences(on, x.sequences);
    const There<float> query(on, x.query), key(on, x.key), value(on, x.value);
    const There<float> query_norm(on, x.query_norm), key_norm(on, x.key_norm);
    const There<float> cosine(on, x.cosine), sine(on, x.sine);
    DeviceHeads task;
    task.pass.row_count = x.rows.size(), task.pass.sequence_count = std::size(kRuns);
    task.pass.rows = rows.get(), task.pass.sequences = sequences.get();
    task.pass.pages = there_pages.get(), task.pass.failed = failed.get();
    task.layer = kHeadsLayer, task.group = static_cast<uint32_t>(x.group);
    task.keys_at = x.offset(0, 0), task.values_at = x.offset(1, 0);
    task.heads = shape.heads, task.kv_heads = shape.kv_heads, task.head_dim = shape.head_dim;
    task.interleaved = shape.interleaved, task.eps = kEps;
    task.query = query.get(), task.key = key.get(), task.value = value.get();
    task.query_norm = shape.query_norm ? query_norm.get() : nullptr;
    task.key_norm = shape.key_norm ? key_norm.get() : nullptr;
    task.cosine = cosine.get(), task.sine = sine.get(), task.rounded = rounded.get();
    on.table.heads(on.queue, task);
    on.finish();

    const std::vector<uint32_t> before = x.failed;
    store_heads(x);
    CHECK(first_difference(rounded.values(), x.rounded) == -1);
    CHECK(first_difference(memory.values(), x.memory) == -1); // slots that are not theirs included
    CHECK(failed.values() == x.failed);
    return static_cast<size_t>(std::count(x.failed.begin(), x.failed.end(), kHeadsLayer));
}

} // namespace

TEST_CASE("device: queries, keys and values equal the reference, in their slots and no others") {
    const Shape shapes[] = {
        {1, 1, 2, false, false, false}, {2, 1, 6, true, true, false},
        {3, 3, 34, true, false, false}, {6, 2, 64, false, true, true},
        {9, 3, 66, false, false, true}, {8, 2, 128, false, true, true},
        {4, 1, 256, true, true, true},  {4, 4, 256, false, false, false},
    };
    Numbers numbers(4);
    size_t marked = 0;
    under_test::for_each_device([&](const Opened &on) {
        for (const Shape &shape : shapes) {
            for (const Kind kind : kKinds) {
                INFO("heads ", shape.heads, " of ", shape.head_dim, ", kind ",
                     static_cast<int>(kind));
                marked += check_case(on, make_case(shape, kind, numbers));
            }
            HeadsCase edges = make_case(shape, Kind::plain, numbers);
            put_edges(edges, numbers);
            marked += check_case(on, edges);
        }
    });
    CHECK(marked > 20);
}
