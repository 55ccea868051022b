// See attention_case.h. What a row sees is said slot by slot here, apart from the kernels' masks.
#include "tests/kernels/attention_case.h"

#include <cmath>
#include <map>

#include "runtime/kernels/received.h"
#include "tests/device/fenced.h"

namespace attention_case {

Case ordinary(uint64_t seed, size_t kv_heads, size_t group_heads, size_t head_dim) {
    Case made;
    made.kv_heads = kv_heads, made.group_heads = group_heads, made.head_dim = head_dim;
    made.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    made.seed = seed;
    return made;
}

size_t Case::row_count() const {
    size_t count = 0;
    for (const SequenceCase &sequence : sequences) {
        count += sequence.rows;
    }
    return count;
}

uint16_t *Case::slot(size_t at, size_t sequence, size_t kv_head, uint64_t position) {
    const auto page = static_cast<size_t>(page_of[sequence][position / kPagePositions]);
    return pages[page].data() + at +
           (kv_head * kPagePositions + position % kPagePositions) * head_dim;
}

bool Case::sees(size_t sequence, uint64_t query_position, uint64_t position) const {
    const SequenceCase &own = sequences[sequence];
    const uint64_t block = position / kPagePositions;
    const bool evicted =
        block < own.evicted.size() && (own.evicted[block] >> position % kPagePositions & 1U) != 0;
    return position <= query_position && (window == 0 || position + window > query_position) &&
           !evicted && page_of[sequence][block] != -1;
}

void Case::draw() {
    Numbers numbers(seed);
    queries = numbers.bf16(row_count() * heads() * head_dim, query);
    page_of.clear(), pages.clear();
    for (size_t s = 0; s < sequences.size(); ++s) {
        const uint64_t last = sequences[s].begin + sequences[s].rows - 1;
        page_of.emplace_back();
        for (size_t block = 0; block <= last / kPagePositions; ++block) {
            const int named = block < sequences[s].pages.size() ? sequences[s].pages[block] : 1;
            if (named != 1) {
                page_of[s].push_back(named == 0 ? page_of[0][block] : -1);
                continue;
            }
            page_of[s].push_back(static_cast<int>(pages.size()));
            pages.push_back(numbers.bf16(page_elements(), keys));
            std::vector<float> wide = numbers.floats(page_elements() - values_at(), values);
            for (size_t i = 0; i < wide.size(); ++i) {
                pages.back()[values_at() + i] =
                    static_cast<uint16_t>(std::bit_cast<uint32_t>(wide[i] * values_times) >> 16);
            }
        }
    }
    if (change) {
        change(*this);
    }
    std::vector<uint64_t> seen(pages.size(), 0);
    for (size_t s = 0; s < sequences.size(); ++s) {
        for (uint64_t p = 0; p < sequences[s].begin + sequences[s].rows; ++p) {
            for (size_t row = 0; row < sequences[s].rows; ++row) {
                if (sees(s, sequences[s].begin + row, p)) {
                    seen[static_cast<size_t>(page_of[s][p / kPagePositions])] |=
                        uint64_t{1} << p % kPagePositions;
                }
            }
        }
    }
    const uint16_t garbage[] = {0x7FC0, 0xFF81, 0x7F80, 0xFF80, 0x0001, 0x8000, 0xFF7F};
    for (size_t page = 0; page < pages.size(); ++page) {
        for (size_t i = 0; i < page_elements(); ++i) {
            if ((seen[page] >> (i / head_dim) % kPagePositions & 1U) == 0) {
                pages[page][i] = garbage[(i + i / head_dim) % 7];
            }
        }
    }
}

namespace {

// One row and query head over its blocks.
void compute(Case &made, size_t sequence, size_t row, size_t at, size_t head, Expected &expected) {
    const Table &table = reference_table();
    const size_t head_dim = made.head_dim, kv_head = head / made.group_heads;
    const uint64_t position = made.sequences[sequence].begin + row;
    const Aligned query(table.packed_bytes(1, head_dim)), scratch(kScratchBytes);
    table.pack({made.query_at(at, head), head_dim, 1, head_dim, query.data()}, 0, 1);
    const uint64_t first =
        (made.window == 0 || position < made.window ? 0 : position - made.window + 1) /
        kPagePositions;
    float m = 0.0F, l = 0.0F;
    std::vector<float> o(head_dim);
    std::map<uint64_t, std::vector<uint16_t>> weights; // of blocks that are seen
    for (uint64_t block = first; block <= position / kPagePositions; ++block) {
        uint64_t visible = 0;
        for (size_t s = 0; s < kPagePositions; ++s) {
            const bool seen = made.sees(sequence, position, block * kPagePositions + s);
            visible |= seen ? uint64_t{1} << s : 0;
        }
        if (visible == 0) {
            continue;
        }
        const size_t index = (at * made.heads() + head) * expected.blocks + (block - first);
        AttentionBlock task{};
        task.query = query.data(), task.visible = &visible, task.scratch = scratch.data();
        task.keys = made.key_at(sequence, kv_head, block * kPagePositions);
        task.values = made.value_at(sequence, kv_head, block * kPagePositions);
        task.rows = 1, task.head_dim = head_dim;
        task.scale = made.scale, task.softcap = made.softcap;
        task.maximum = &expected.maximum[index], task.sum = &expected.sum[index];
        task.output = &expected.partial[index * head_dim];
        task.weights = weights.try_emplace(block, kPagePositions).first->second.data();
        table.attention_block(task);
        table.attention_merge(
            {1, head_dim, task.visible, &m, &l, o.data(), task.maximum, task.sum, task.output});
    }
    for (const auto &[block, p] : weights) {
        const size_t index = (at * made.heads() + head) * expected.blocks + (block - first);
        add_received(p.data(), expected.maximum[index], m, l,
                     &expected.received[sequence][(block * made.heads() + head) * kPagePositions]);
    }
    table.attention_finish(o.data(), l, head_dim,
                           expected.output.data() + (at * made.heads() + head) * head_dim);
}

std::vector<uint16_t> all_pages(Case &made) {
    made.draw();
    std::vector<uint16_t> all;
    for (const std::vector<uint16_t> &page : made.pages) {
        all.insert(all.end(), page.begin(), page.end());
    }
    return all;
}

constexpr size_t kBehind = 64; // numbers behind the output

} // namespace

Expected expected_of(const Case &given) {
    Case made = given;
    made.draw();
    const FloatEnvironment environment;
    Expected expected;
    for (const SequenceCase &sequence : made.sequences) {
        for (size_t row = 0; row < sequence.rows; ++row) {
            const uint64_t position = sequence.begin + row;
            const uint64_t first =
                made.window == 0 || position < made.window ? 0 : position - made.window + 1;
            expected.counts.push_back(position / kPagePositions - first / kPagePositions + 1);
            expected.blocks = std::max<size_t>(expected.blocks, expected.counts.back());
        }
        const uint64_t end = sequence.begin + sequence.rows;
        expected.received.emplace_back((end + kPagePositions - 1) / kPagePositions * made.heads() *
                                       kPagePositions);
    }
    const size_t partials = made.row_count() * made.heads() * expected.blocks;
    expected.maximum.resize(partials), expected.sum.resize(partials);
    expected.partial.resize(partials * made.head_dim);
    expected.output.resize(made.row_count() * made.heads() * made.head_dim);
    size_t at = 0;
    for (size_t s = 0; s < made.sequences.size(); ++s) {
        for (size_t row = 0; row < made.sequences[s].rows; ++row, ++at) {
            for (size_t head = 0; head < made.heads(); ++head) {
                compute(made, s, row, at, head, expected);
            }
        }
    }
    return expected;
}

Placed::Placed(const under_test::Opened &on, const Case &made, size_t blocks)
    : on_(on), made_(made), blocks_(blocks), pages_(on, all_pages(made_)),
      query_(on, made_.queries), output_(on, made_.queries.size() + kBehind),
      maximum_(on, std::vector<float>(made_.row_count() * made_.heads() * blocks, NAN)),
      sum_(on, std::vector<float>(made_.row_count() * made_.heads() * blocks, NAN)),
      partial_(on, std::vector<float>(made_.queries.size() * blocks, NAN)) {
    std::vector<DeviceRow> rows;
    std::vector<DevicePages> sequences(made_.sequences.size(), {7, 7}); // those of group 0
    std::vector<DeviceEvicted> evictions;
    std::vector<uint16_t *> list{nullptr, nullptr};
    std::vector<uint64_t> evicted{0x123, 0x456}; // of nobody
    for (uint32_t s = 0; s < made_.sequences.size(); ++s) {
        const SequenceCase &own = made_.sequences[s];
        const uint64_t low = made_.window == 0 || own.begin < made_.window
                                 ? 0
                                 : own.begin - made_.window + 1; // pages before it are not named
        const size_t first = low / kPagePositions;
        sequences.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(list.size())});
        for (size_t block = first; block < made_.page_of[s].size(); ++block) {
            const int page = made_.page_of[s][block];
            list.push_back(page == -1
                               ? nullptr
                               : pages_.get() + static_cast<size_t>(page) * made_.page_elements());
        }
        evictions.push_back(
            {static_cast<uint32_t>(evicted.size()), static_cast<uint32_t>(own.evicted.size())});
        evicted.insert(evicted.end(), own.evicted.begin(), own.evicted.end());
        for (size_t row = 0; row < own.rows; ++row) {
            rows.push_back({own.begin + row, 0, s});
        }
    }
    rows_ = std::make_unique<There<DeviceRow>>(on, rows);
    sequences_ = std::make_unique<There<DevicePages>>(on, sequences);
    evictions_ = std::make_unique<There<DeviceEvicted>>(on, evictions);
    page_list_ = std::make_unique<There<uint16_t *>>(on, list);
    evicted_ = std::make_unique<There<uint64_t>>(on, evicted);
    task_.pass.row_count = rows.size();
    task_.pass.sequence_count = made_.sequences.size();
    task_.pass.rows = rows_->get(), task_.pass.sequences = sequences_->get();
    task_.pass.evictions = evictions_->get(), task_.pass.pages = page_list_->get();
    task_.pass.evicted = evicted_->get();
    task_.group = 1;
    task_.keys_at = made_.keys_at(), task_.values_at = made_.values_at();
    task_.heads = made_.heads(), task_.kv_heads = made_.kv_heads;
    task_.head_dim = made_.head_dim, task_.window = made_.window;
    task_.scale = made_.scale, task_.softcap = made_.softcap;
    task_.query = query_.get(), task_.output = output_.get();
    task_.blocks = blocks;
    task_.maximum = maximum_.get(), task_.sum = sum_.get(), task_.partial = partial_.get();
    clear_output();
}

void Placed::attend_blocks() const {
    on_.table.attend_blocks(on_.queue, task_);
    on_.finish();
}

void Placed::attend_tiles(size_t tile_rows) const {
    std::vector<DeviceTile> tiles;
    size_t at = 0;
    for (const SequenceCase &sequence : made_.sequences) {
        for (size_t row = 0; row < sequence.rows; row += tile_rows) {
            tiles.push_back({static_cast<uint32_t>(at + row),
                             static_cast<uint32_t>(std::min(tile_rows, sequence.rows - row))});
        }
        at += sequence.rows;
    }
    const There<DeviceTile> there(on_, tiles);
    on_.table.attend_tiles(on_.queue, task_, there.get(), tiles.size());
    on_.finish();
}

std::vector<uint64_t> Placed::received(size_t sequence, size_t together, bool in_total) const {
    const SequenceCase &own = made_.sequences[sequence];
    const size_t blocks = (own.begin + own.rows + kPagePositions - 1) / kPagePositions;
    const size_t sum_rows = in_total ? 1 : 2 * made_.heads(); // of two layers, this the second
    // What is there already stays, and grows.
    const std::vector<unsigned long long> before(blocks * sum_rows * kPagePositions, 1);
    const under_test::Fenced<unsigned long long> sums(on_, before);
    const std::vector<float> room(together * made_.heads() * blocks_, NAN);
    const under_test::Fenced<float> maximum(on_, room), sum(on_, room);
    const under_test::Fenced<uint16_t> weights(
        on_, std::vector<uint16_t>(room.size() * kPagePositions, 0x3F80));
    DeviceReceive task;
    task.attention = task_;
    task.attention.output = nullptr, task.attention.partial = nullptr;
    task.attention.maximum = maximum.get(), task.attention.sum = sum.get();
    task.weights = weights.get(), task.sums = sums.get();
    task.sum_rows = sum_rows, task.sum_row = made_.heads();
    for (size_t s = 0; s < sequence; ++s) {
        task.row += made_.sequences[s].rows;
    }
    for (size_t done = 0; done < own.rows; done += together, task.row += together) {
        task.rows = std::min(together, own.rows - done);
        on_.table.receive(on_.queue, task);
    }
    on_.finish();
    maximum.values(), sum.values(), weights.values();
    std::vector<uint64_t> result;
    for (const unsigned long long each : sums.values()) {
        result.push_back(each - 1);
    }
    return result;
}

std::vector<uint16_t> Placed::output() const {
    std::vector<uint16_t> all = output_.values();
    all.resize(all.size() - kBehind);
    return all;
}

void Placed::clear_output() const {
    const std::vector<uint16_t> none(made_.queries.size() + kBehind, 0x7FAB);
    on_.table.copy(on_.queue, output_.get(), none.data(), none.size() * sizeof(uint16_t));
    on_.finish();
}

bool Placed::outside_is_untouched() const {
    const std::vector<uint16_t> all = output_.values();
    return std::all_of(all.end() - kBehind, all.end(), [](uint16_t x) { return x == 0x7FAB; });
}

void check_partials(const Placed &placed, const Expected &expected) {
    const std::vector<float> maximum = placed.maximum(), sum = placed.sum();
    const std::vector<float> partial = placed.partial();
    const size_t heads = placed.made().heads(), head_dim = placed.made().head_dim;
    size_t wrong = 0;
    for (size_t i = 0; i < placed.made().row_count() * heads; ++i) {
        for (size_t block = 0; block < expected.counts[i / heads]; ++block) {
            const size_t at = i * placed.blocks() + block, there = i * expected.blocks + block;
            std::vector<float> own{sum[at]}, right{expected.sum[there]};
            if (right[0] != 0.0F) { // else nothing is seen
                own.push_back(maximum[at]), right.push_back(expected.maximum[there]);
                own.insert(own.end(), &partial[at * head_dim], &partial[at * head_dim] + head_dim);
                right.insert(right.end(), &expected.partial[there * head_dim],
                             &expected.partial[there * head_dim] + head_dim);
            }
            wrong += first_difference(own, right) == -1 ? 0 : 1;
        }
        for (size_t beyond = expected.counts[i / heads]; beyond < placed.blocks(); ++beyond) {
            wrong += std::isnan(sum[i * placed.blocks() + beyond]) ? 0 : 1; // as it was
        }
    }
    CHECK(wrong == 0);
}

} // namespace attention_case
