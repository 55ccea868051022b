// Passes to test a device's attention with: sequences over pages, what the reference's kernels make
// of them block by block, and the same in a device's memory.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/kernels/environment.h"
#include "tests/device/under_test.h"
#include "tests/kernels/inputs.h"

namespace attention_case {

using namespace stasis::kernels;
using under_test::There;

struct SequenceCase {
    uint64_t begin; // position of its first row
    size_t rows;
    std::vector<uint64_t> evicted; // masks of its first blocks
    std::vector<int> pages;        // of its first blocks: 0 those of sequence 0, -1 none
};

struct Case {
    size_t kv_heads = 1, group_heads = 1, head_dim = 16;
    uint32_t window = 0;
    float scale = 1.0F, softcap = 0.0F;
    Kind query = Kind::plain, keys = Kind::plain, values = Kind::plain;
    float values_times = 1.0F;
    uint64_t seed = 0;
    std::vector<SequenceCase> sequences;
    std::function<void(Case &)> change; // of what was drawn

    // Drawn: [row][heads][head_dim]; [sequence][block] index or -1; [page][layer][2][kv_heads][64].
    std::vector<uint16_t> queries;
    std::vector<std::vector<int>> page_of;
    std::vector<std::vector<uint16_t>> pages;

    size_t heads() const { return kv_heads * group_heads; }
    size_t row_count() const;
    size_t keys_at() const { return 2 * kv_heads * kPagePositions * head_dim; } // of layer 1 of 2
    size_t values_at() const { return 3 * kv_heads * kPagePositions * head_dim; }
    size_t page_elements() const { return 2 * keys_at(); }
    uint16_t *query_at(size_t row, size_t head) {
        return queries.data() + (row * heads() + head) * head_dim;
    }
    uint16_t *slot(size_t at, size_t sequence, size_t kv_head, uint64_t position);
    uint16_t *key_at(size_t sequence, size_t kv_head, uint64_t position) {
        return slot(keys_at(), sequence, kv_head, position);
    }
    uint16_t *value_at(size_t sequence, size_t kv_head, uint64_t position) {
        return slot(values_at(), sequence, kv_head, position);
    }
    bool sees(size_t sequence, uint64_t query_position, uint64_t position) const;
    // Draws it all; what no row sees is garbage.
    void draw();
};

// Of ordinary numbers and scale, its sequences to be added.
Case ordinary(uint64_t seed, size_t kv_heads, size_t group_heads, size_t head_dim);

struct Expected {
    std::vector<uint16_t> output;                // [row][heads][head_dim]
    size_t blocks = 0;                           // most that a row sees
    std::vector<uint64_t> counts;                // [row] blocks seen
    std::vector<float> maximum, sum, partial;    // [row][heads][blocks] ...; sum 0: nothing seen
    std::vector<std::vector<uint64_t>> received; // [sequence]: [block][heads][64] (C10)
};

// Draws the case, and computes it with the reference.
Expected expected_of(const Case &made);

// A case in a device's memory.
class Placed {
  public:
    Placed(const under_test::Opened &on, const Case &made, size_t blocks);
    void attend_blocks() const;
    void attend_tiles(size_t tile_rows) const;
    // Adds what rows `row` .. of a sequence give, so many at once, to sums of a row for each head
    // or, if `in_total`, of one, which it gives back.
    std::vector<uint64_t> received(size_t sequence, size_t together, bool in_total) const;
    std::vector<uint16_t> output() const;
    void clear_output() const;
    bool outside_is_untouched() const; // behind the output
    std::vector<float> maximum() const { return maximum_.values(); }
    std::vector<float> sum() const { return sum_.values(); }
    std::vector<float> partial() const { return partial_.values(); }
    size_t blocks() const { return blocks_; }
    const Case &made() const { return made_; }

  private:
    const under_test::Opened &on_;
    Case made_;
    size_t blocks_;
    There<uint16_t> pages_, query_, output_;
    There<float> maximum_, sum_, partial_;
    std::unique_ptr<There<DeviceRow>> rows_;
    std::unique_ptr<There<DevicePages>> sequences_;
    std::unique_ptr<There<DeviceEvicted>> evictions_;
    std::unique_ptr<There<uint16_t *>> page_list_;
    std::unique_ptr<There<uint64_t>> evicted_;
    DeviceAttention task_;
};

// The partial results of attend_blocks.
void check_partials(const Placed &placed, const Expected &expected);

} // namespace attention_case
