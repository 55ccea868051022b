// A device's attention that finishes the heads itself: the bits, pages and marks are those of
// `heads` and `attend_blocks`, which other tests hold against the reference.
#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/device/fenced.h"
#include "tests/kernels/inputs.h"

using stasis::kernels::DeviceAttention;
using stasis::kernels::DeviceEvicted;
using stasis::kernels::DeviceHeads;
using stasis::kernels::DevicePages;
using stasis::kernels::DeviceRow;
using stasis::kernels::kPagePositions;
using under_test::Fenced;
using under_test::Opened;
using under_test::There;

namespace {

constexpr uint32_t kRowLayer = 3;

struct RowsCase {
    size_t heads, kv_heads, head_dim;
    uint32_t window;
    std::vector<uint64_t> positions;            // of each sequence's row
    std::vector<std::vector<uint64_t>> evicted; // [sequence] masks of its first blocks
    bool interleaved, query_norm, key_norm;
    float softcap;
    Kind kind; // of queries, keys and values
    float scale = 0.3F;

    size_t rows() const { return positions.size(); }
    size_t page_elements() const { return 2 * kv_heads * kPagePositions * head_dim; }
    size_t blocks() const {
        uint64_t last = 0;
        for (const uint64_t position : positions) {
            last = std::max(last, position);
        }
        return last / kPagePositions + 2;
    }
};

// What a way leaves behind.
struct Left {
    std::vector<uint16_t> pages, output; // output: rounded queries, then what attention gives
    std::vector<uint32_t> failed;
};

std::vector<float> floats(Numbers &numbers, size_t count, Kind kind) {
    std::vector<float> made = numbers.floats(count, kind);
    if (numbers.below(4) == 0) {
        made[numbers.below(count)] = INFINITY;
    }
    return made;
}

// One case's inputs, the same for both ways.
struct Inputs {
    std::vector<uint16_t> pages;
    std::vector<float> query, key, value, query_norm, key_norm, cosine, sine;
    std::vector<DeviceRow> rows;
    std::vector<DevicePages> sequences;
    std::vector<DeviceEvicted> evictions;
    std::vector<size_t> page_of; // indices of pages; 0: none
    std::vector<uint64_t> masks{0x77};

    Inputs(const RowsCase &made, Numbers &numbers) {
        const size_t n = made.head_dim, rows_count = made.rows();
        query = floats(numbers, rows_count * made.heads * n, made.kind);
        key = floats(numbers, rows_count * made.kv_heads * n, made.kind);
        value = floats(numbers, rows_count * made.kv_heads * n, made.kind);
        query_norm = numbers.floats(n, Kind::plain), key_norm = numbers.floats(n, Kind::plain);
        const size_t angles = (made.blocks() * kPagePositions) * (n / 2);
        cosine = numbers.floats(angles, Kind::plain), sine = numbers.floats(angles, Kind::plain);
        size_t next = 1;
        for (uint32_t s = 0; s < rows_count; ++s) {
            const uint64_t position = made.positions[s];
            const uint64_t low =
                made.window == 0 || position < made.window ? 0 : position - made.window + 1;
            const uint64_t first = low / kPagePositions;
            rows.push_back({position, 0, s});
            sequences.push_back(
                {static_cast<uint32_t>(first), static_cast<uint32_t>(page_of.size())});
            const std::vector<uint64_t> &own = made.evicted[s];
            for (uint64_t block = first; block <= position / kPagePositions; ++block) {
                const bool whole = block < own.size() && own[block] == ~uint64_t{0};
                page_of.push_back(whole ? 0 : next++);
            }
            evictions.push_back(
                {static_cast<uint32_t>(masks.size()), static_cast<uint32_t>(own.size())});
            masks.insert(masks.end(), own.begin(), own.end());
        }
        pages = numbers.bf16(next * made.page_elements(),
                             made.kind == Kind::huge ? Kind::boundary : made.kind);
    }
};

Left left_by(const Opened &on, const RowsCase &made, const Inputs &in, bool together) {
    const size_t partials = made.rows() * made.heads * made.blocks();
    const Fenced<uint16_t> pages(on, in.pages);
    const Fenced<uint16_t> rounded(on, std::vector<uint16_t>(in.query.size()));
    const Fenced<uint16_t> output(on, std::vector<uint16_t>(in.query.size()));
    const Fenced<float> maximum(on, std::vector<float>(partials, NAN));
    const Fenced<float> sum(on, std::vector<float>(partials, NAN));
    const Fenced<float> partial(on, std::vector<float>(partials * made.head_dim, NAN));
    const Fenced<uint32_t> failed(on, std::vector<uint32_t>(made.rows(), UINT32_MAX));
    const Fenced<uint32_t> arrived(on, std::vector<uint32_t>(made.rows() * made.kv_heads));
    std::vector<uint16_t *> list;
    for (const size_t page : in.page_of) {
        list.push_back(page == 0 ? nullptr : pages.get() + page * made.page_elements());
    }
    const There<uint16_t *> page_list(on, list);
    const There<DeviceRow> rows(on, in.rows);
    const There<DevicePages> sequences(on, in.sequences);
    const There<DeviceEvicted> evictions(on, in.evictions);
    const There<uint64_t> masks(on, in.masks);
    const There<float> query(on, in.query), key(on, in.key), value(on, in.value);
    const There<float> query_norm(on, in.query_norm), key_norm(on, in.key_norm);
    const There<float> cosine(on, in.cosine), sine(on, in.sine);

    DeviceHeads heads;
    heads.pass = {made.rows(),     made.rows(),     rows.get(),  sequences.get(),
                  evictions.get(), page_list.get(), masks.get(), failed.get()};
    heads.layer = kRowLayer;
    heads.values_at = made.page_elements() / 2;
    heads.heads = made.heads, heads.kv_heads = made.kv_heads, heads.head_dim = made.head_dim;
    heads.interleaved = made.interleaved, heads.eps = 1e-6F;
    heads.query = query.get(), heads.key = key.get(), heads.value = value.get();
    heads.query_norm = made.query_norm ? query_norm.get() : nullptr;
    heads.key_norm = made.key_norm ? key_norm.get() : nullptr;
    heads.cosine = cosine.get(), heads.sine = sine.get(), heads.rounded = rounded.get();
    DeviceAttention task;
    task.pass = heads.pass, task.values_at = heads.values_at;
    task.heads = made.heads, task.kv_heads = made.kv_heads, task.head_dim = made.head_dim;
    task.window = made.window, task.scale = made.scale, task.softcap = made.softcap;
    task.query = rounded.get(), task.output = output.get();
    task.blocks = made.blocks();
    task.maximum = maximum.get(), task.sum = sum.get(), task.partial = partial.get();
    task.arrived = together ? arrived.get() : nullptr;
    if (together) {
        on.table.attend_rows(on.queue, heads, task);
        on.table.attend_rows(on.queue, heads, task); // as the next layer finds the workspace
    } else {
        on.table.heads(on.queue, heads);
        on.table.attend_blocks(on.queue, task);
    }
    on.finish();

    CHECK(arrived.values() == std::vector<uint32_t>(made.rows() * made.kv_heads));
    maximum.values(), sum.values(), partial.values();
    std::vector<uint16_t> all = rounded.values(), outputs = output.values();
    all.insert(all.end(), outputs.begin(), outputs.end());
    return {pages.values(), all, failed.values()};
}

// Returns the number of rows that were marked.
size_t check_rows(const Opened &on, const RowsCase &made, Numbers &numbers) {
    INFO("heads ", made.heads, "/", made.kv_heads, " of ", made.head_dim, ", window ", made.window,
         ", kind ", static_cast<int>(made.kind));
    const Inputs inputs(made, numbers);
    const Left apart = left_by(on, made, inputs, false), together = left_by(on, made, inputs, true);
    CHECK(first_difference(together.pages, apart.pages) == -1);
    CHECK(first_difference(together.output, apart.output) == -1);
    CHECK(together.failed == apart.failed);
    return static_cast<size_t>(std::count(apart.failed.begin(), apart.failed.end(), kRowLayer));
}

} // namespace

TEST_CASE("device attention of single rows: the bits of heads and attention apart") {
    struct Shape {
        size_t heads, kv_heads, head_dim;
    };
    constexpr Shape kShapes[] = {{1, 1, 2},   {4, 2, 6},    {6, 2, 20},  {8, 1, 64},
                                 {32, 4, 64}, {16, 1, 128}, {4, 2, 80},  {4, 1, 256},
                                 {16, 1, 34}, {9, 3, 66},   {2, 1, 100}, {3, 3, 96}};
    size_t marked = 0;
    under_test::for_each_device([&](const Opened &on) {
        Numbers numbers(31);
        for (const Shape &shape : kShapes) {
            for (size_t i = 0; i < 2; ++i) {
                const Kind kind = kKinds[numbers.below(6)];
                const RowsCase made = {shape.heads,
                                       shape.kv_heads,
                                       shape.head_dim,
                                       0,
                                       {numbers.below(64), 64 + numbers.below(130)},
                                       {{}, {0x0F0F}},
                                       numbers.below(2) == 0,
                                       numbers.below(2) == 0,
                                       numbers.below(2) == 0,
                                       numbers.below(3) == 0 ? 20.0F : 0.0F,
                                       kind};
                marked += check_rows(on, made, numbers);
            }
        }
    });
    CHECK(marked > 10);
}

TEST_CASE("device attention of single rows: windows, edges of pages, evictions, long contexts") {
    under_test::for_each_device([&](const Opened &on) {
        Numbers numbers(32);
        constexpr uint64_t kAll = ~uint64_t{0};
        for (const uint32_t window : {0, 1, 64, 150}) {
            for (const uint64_t position : {0, 1, 63, 64, 128, 300}) {
                const RowsCase made = {4,
                                       2,
                                       16,
                                       window,
                                       {position, 200, 130, position + 1},
                                       {{}, {kAll, 0x3333, kAll}, {0x8001, kAll}, {}},
                                       false,
                                       false,
                                       true,
                                       0.0F,
                                       Kind::plain};
                check_rows(on, made, numbers);
            }
        }
        // Merged by the last block up to 64 of them, by a kernel of its own from then on.
        for (const uint64_t position : {2047, 4031, 4032, 4200}) {
            const RowsCase made = {4,    2,     32,    0,    {position, 70}, {{}, {}},
                                   true, false, false, 0.0F, Kind::wide};
            check_rows(on, made, numbers);
        }
    });
}

// The sum of query and key of device_attention_tiny_test, 2^-126 - 2^-151, by the row's own key: it
// decides, although it comes last, that plain arithmetic is not enough.
TEST_CASE("device attention of single rows: a tiny sum of the row's own key is rounded") {
    const RowsCase made = {1, 1, 8, 0, {1}, {{}}, false, false, false, 0.0F, Kind::plain, 0x1p126F};
    Numbers numbers(33);
    Inputs inputs(made, numbers);
    std::fill(inputs.cosine.begin(), inputs.cosine.end(), 1.0F);
    std::fill(inputs.sine.begin(), inputs.sine.end(), 0.0F);
    std::fill(inputs.pages.begin(), inputs.pages.end(), uint16_t{0});
    const size_t values_at = made.page_elements() + made.page_elements() / 2; // of page 1
    std::fill_n(&inputs.pages[values_at], 8, uint16_t{0x3F80});               // slot 0
    const float odd = 1.0F + 0x1p-7F;
    inputs.query = {0x1p-63F, 0, 0x1p-63F, 0, odd * 0x1p-63F, 0, 0, 0};
    inputs.key = {0x1p-63F, 0, (1.0F + 0x1p-6F) * 0x1p-74F, 0, -odd * 0x1p-74F, 0, 0, 0};
    inputs.value.assign(8, 0.0F);
    under_test::for_each_device([&](const Opened &on) {
        const Left apart = left_by(on, made, inputs, false);
        const Left together = left_by(on, made, inputs, true);
        CHECK(together.output == apart.output);
        CHECK(together.output[8] == 0x3E8A); // 1 / (1 + exp(1)), not a half
    });
}
