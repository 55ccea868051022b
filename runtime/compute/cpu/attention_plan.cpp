// See attention_plan.h.
#include "runtime/compute/cpu/attention_plan.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"

namespace stasis {

namespace {

// Sequences of up to this many rows are split by blocks, longer ones by rows.
constexpr size_t kRowsByBlock = 4;

// One entry for each sequence and block, sorted by pages.
void list_entries(const Pass &pass, uint32_t group, uint32_t window, BlockPlan &plan) {
    const std::span<const Sequence> all = pass.all();
    for (uint32_t s = 0; s < all.size(); ++s) {
        const Sequence &sequence = all[s];
        if (sequence.rows > kRowsByBlock) {
            continue;
        }
        const uint64_t first = first_visible(sequence.begin, window) / kPage;
        const uint64_t last = (sequence.begin + sequence.rows - 1) / kPage;
        const size_t place = plan.partial_of.size();
        plan.partial_of.resize(place + last + 1 - first, BlockPlan::kNone);
        for (size_t row = 0; row < sequence.rows; ++row) {
            plan.rows.push_back({sequence.row + row, row, place, last + 1 - first});
        }
        for (uint64_t block = first; block <= last; ++block) {
            if (sequence.page(group, block * kPage) == nullptr) {
                continue; // evicted
            }
            plan.entries.push_back(
                {block, sequence.page(group, block * kPage), s, place + (block - first)});
        }
    }
    std::sort(plan.entries.begin(), plan.entries.end(), [](const auto &a, const auto &b) {
        return a.block != b.block ? a.block < b.block
               : a.page != b.page ? std::less<>()(a.page, b.page)
                                  : a.sequence < b.sequence;
    });
}

// The readers that these entries' sequences are.
size_t readers_of(const Pass &pass, const PageShape &shape, BlockPlan &plan, size_t begin,
                  size_t end) {
    const auto same = [&](const BlockPlan::Readers &known) {
        return known.count == end - begin &&
               std::equal(
                   plan.members.begin() + static_cast<ptrdiff_t>(known.member),
                   plan.members.begin() + static_cast<ptrdiff_t>(known.member + known.count),
                   plan.entries.begin() + static_cast<ptrdiff_t>(begin),
                   [](uint32_t member, const auto &entry) { return member == entry.sequence; });
    };
    // Neighbouring pages mostly have the same; others are packed once more.
    size_t &latest = plan.latest[plan.entries[begin].sequence];
    if (latest < plan.readers.size() && same(plan.readers[latest])) {
        return latest;
    }
    latest = plan.readers.size();
    BlockPlan::Readers readers{plan.members.size(), end - begin, 0, plan.query_bytes};
    for (size_t i = begin; i < end; ++i) {
        plan.members.push_back(plan.entries[i].sequence);
        readers.rows += pass.sequences[plan.entries[i].sequence].rows;
    }
    plan.query_bytes += packed_query_bytes(pass.network, shape, readers.rows);
    plan.readers.push_back(readers);
    return latest;
}

// Reads of pages, each by as many sequences at once as there is scratch memory for their queries.
void list_reads(const Pass &pass, const PageShape &shape, BlockPlan &plan) {
    const size_t row_bytes =
        pass.network.config.heads / shape.kv_heads * shape.head_dim * sizeof(uint16_t);
    const size_t rows_max = std::max(kernels::kScratchBytes / row_bytes, kRowsByBlock);
    const std::vector<BlockPlan::Entry> &entries = plan.entries;
    plan.latest.assign(pass.sequence_count, SIZE_MAX);
    for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
        size_t rows = 0;
        const size_t partial = plan.partials;
        for (; end < entries.size() && entries[end].block == entries[begin].block &&
               entries[end].page == entries[begin].page;
             ++end) {
            const size_t more = pass.sequences[entries[end].sequence].rows;
            if (rows + more > rows_max) {
                break;
            }
            plan.partial_of[entries[end].place] = partial + rows;
            rows += more;
        }
        plan.partials += rows;
        plan.reads.push_back({entries[begin].block, entries[begin].page,
                              readers_of(pass, shape, plan, begin, end), partial});
    }
}

} // namespace

size_t packed_query_bytes(const Network &network, const PageShape &shape, size_t rows) {
    const size_t group_heads = network.config.heads / shape.kv_heads;
    const size_t bytes = network.kernels->packed_bytes(rows * group_heads, shape.head_dim);
    return (bytes + 63) / 64 * 64; // so that the next ones are aligned as well
}

void BlockPlan::clear() {
    readers.clear(), members.clear(), reads.clear(), rows.clear();
    partial_of.clear(), entries.clear();
    partials = query_bytes = 0;
}

namespace {

// Returns the rows of a tile for passes of `rows`. A tile prepares each page once, for all of its
// rows and of the query heads that share it: 128 queries make that cheap, unless threads would have
// nothing to do.
size_t choose_tile_rows(const Network &network, size_t kv_heads, size_t rows) {
    constexpr size_t kQueries = 128, kLeast = 16, kMost = 64, kTilesPerThread = 2;
    size_t tile = std::clamp(kQueries * kv_heads / network.config.heads, kLeast, kMost);
    while (tile > kLeast && rows / tile * kv_heads < kTilesPerThread * network.threads->count()) {
        tile /= 2;
    }
    return tile;
}

void cut_tiles(const Pass &pass, const PageShape &shape, TilePlan &plan) {
    plan.tiles.clear();
    plan.rows = choose_tile_rows(pass.network, shape.kv_heads, pass.row_count);
    const std::span<const Sequence> all = pass.all();
    for (uint32_t s = 0; s < all.size(); ++s) {
        for (size_t row = 0; all[s].rows > kRowsByBlock && row < all[s].rows; row += plan.rows) {
            plan.tiles.push_back({s, row, std::min(plan.rows, all[s].rows - row)});
        }
    }
}

} // namespace

void plan_attention(Pass &pass) {
    const Network &network = pass.network;
    AttentionPlan &plan = pass.cpu->attention;
    plan.few = plan.tracked = false;
    for (const Sequence &sequence : pass.all()) {
        plan.few = plan.few || sequence.rows <= kRowsByBlock;
        plan.tracked = plan.tracked || sequence.sums != nullptr;
    }
    plan.groups.resize(network.groups.size());
    plan.tiles.resize(network.groups.size());
    for (uint32_t group = 0; group < network.groups.size(); ++group) {
        cut_tiles(pass, network.page_shapes[group], plan.tiles[group]);
        plan.groups[group].clear();
        if (plan.few) {
            list_entries(pass, group, network.groups[group].window, plan.groups[group]);
            list_reads(pass, network.page_shapes[group], plan.groups[group]);
        }
    }
}

} // namespace stasis
