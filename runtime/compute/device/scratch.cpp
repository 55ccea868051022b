// Buffers of a call on a device, and descriptions of its passes; see scratch.h.
#include "runtime/compute/device/scratch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"
#include "runtime/host/carver.h"

namespace stasis {

namespace {

constexpr size_t kRowsFew = 4; // of a sequence: more rows are computed in tiles
constexpr size_t kPartialBytesMax = size_t{256} << 20;

size_t most_rows(const Pass &from) {
    size_t most = 0;
    for (size_t i = 0; i < from.sequence_count; ++i) {
        most = std::max(most, from.sequences[i].rows);
    }
    return most;
}

// Returns the most blocks that a row sees; at least as many as any layer's window needs.
size_t most_blocks(const Pass &from) {
    size_t most = 1;
    for (size_t i = 0; i < from.sequence_count; ++i) {
        for (const Sequence::Pages &pages : from.sequences[i].pages) {
            most = std::max(most, pages.data.size());
        }
    }
    return most;
}

} // namespace

// The parts of a description, one after the other, in pinned memory and in device memory alike. The
// pages, whose number grows, come last, so that the used part is copied in one piece.
struct DeviceScratch::Layout {
    kernels::DeviceRow *rows;
    uint32_t *failed;
    kernels::DevicePages *sequences;
    kernels::DeviceEvicted *evictions;
    kernels::DeviceTile *tiles;
    uint64_t *evicted;
    uint16_t **pages;
    size_t size_bytes;

    Layout(void *base, size_t row_count, size_t groups, size_t pages_max, size_t evicted_max) {
        Carver<256> carver{static_cast<uint8_t *>(base)};
        rows = carver.take<kernels::DeviceRow>(row_count);
        failed = carver.take<uint32_t>(row_count);
        sequences = carver.take<kernels::DevicePages>(groups * row_count);
        evictions = carver.take<kernels::DeviceEvicted>(row_count);
        tiles = carver.take<kernels::DeviceTile>(row_count);
        evicted = carver.take<uint64_t>(evicted_max);
        pages = carver.take<uint16_t *>(pages_max);
        size_bytes = carver.used;
    }
};

DeviceScratch::DeviceScratch(DeviceModel &model_)
    : model(model_), queue(model.on()), received(model.on()), storage(model.on()),
      partials(model.on()), described(model.on()), logits(model.on()), run(model.on()),
      staged(model.on()), results(model.on()), run_staged(model.on()) {}

DeviceScratch::~DeviceScratch() {
    queue.finish_quietly();
    forget_recorded();
}

void DeviceScratch::forget_recorded() {
    for (const auto &entry : recorded) {
        if (model.on().of_this_process()) {
            queue.table().destroy_graph(entry.second);
        }
    }
    recorded.clear();
}

uint64_t DeviceScratch::size_bytes() const {
    return storage.size_bytes() + partials.size_bytes() + described.size_bytes() +
           logits.size_bytes() + run.size_bytes() + received.size_bytes();
}

void DeviceScratch::fit(const Config &config, size_t wanted) {
    if (wanted <= rows) {
        return;
    }
    const size_t query_size = size_t{config.heads} * config.head_dim;
    const size_t kv_size = size_t{config.kv_heads} * config.head_dim;
    const size_t widest =
        std::max({size_t{config.hidden}, query_size, size_t{config.intermediate}});
    const size_t whole = (widest + 255) / 256 * 256; // groups of either size
    const kernels::DeviceTable &table = queue.table();

    // `carve` runs twice: on a null base to measure the storage, then to set the pointers.
    auto carve = [&](uint8_t *base) {
        Carver<256> carver{base};
        stream = carver.take<float>(wanted * config.hidden);
        wide = carver.take<float>(wanted * config.hidden);
        narrow = carver.take<uint16_t>(wanted * config.hidden);
        attended = carver.take<uint16_t>(wanted * query_size);
        inner = carver.take<uint16_t>(wanted * config.intermediate);
        query = carver.take<float>(wanted * query_size);
        key = carver.take<float>(wanted * kv_size);
        value = carver.take<float>(wanted * kv_size);
        rounded = carver.take<uint16_t>(wanted * query_size);
        gate = carver.take<float>(wanted * config.intermediate);
        up = carver.take<float>(wanted * config.intermediate);
        hidden = carver.take<uint16_t>(wanted * config.hidden);
        arrived = carver.take<uint32_t>(wanted * config.kv_heads);
        if (model.groups.by_32) {
            quantized[0] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 32));
        }
        if (model.groups.by_256) {
            quantized[1] = carver.take<uint8_t>(table.quantized_bytes(wanted, whole, 256));
        }
        return carver.used;
    };

    // Recorded graphs contain the old pointers.
    rows = 0; // remains 0 if growing fails
    pages_max_ = 0;
    forget_recorded();
    storage.grow(carve(nullptr));
    carve(static_cast<uint8_t *>(storage.data()));
    table.clear(queue.get(), arrived, 1, wanted * config.kv_heads * sizeof(uint32_t), 0);
    results.grow(wanted * sizeof(uint32_t));
    failed_here = static_cast<uint32_t *>(results.data());
    rows = wanted;
}

void DeviceScratch::fit_partials(const Config &config, size_t row_count) {
    const size_t count = row_count * config.heads * blocks;
    auto carve = [&](uint8_t *base) {
        Carver<256> carver{base};
        maximum = carver.take<float>(count);
        sum = carver.take<float>(count);
        partial = carver.take<float>(count * config.head_dim);
        return carver.used;
    };
    if (partials.grow(carve(nullptr))) {
        forget_recorded();
    }
    carve(static_cast<uint8_t *>(partials.data()));
}

void DeviceScratch::fill(const Pass &from, const Layout &layout) {
    const size_t groups = from.network.groups.size();
    size_t page = 0, mask = 0;
    tile_count = 0;
    for (size_t i = 0; i < from.sequence_count; ++i) {
        const Sequence &sequence = from.sequences[i];

        // Rows, each with its position and token, and tiles of up to kDeviceTileRows rows.
        for (size_t row = 0; row < sequence.rows; ++row) {
            layout.rows[sequence.row + row] = {
                sequence.begin + row, from.tokens[sequence.row + row], static_cast<uint32_t>(i)};
            if (row % kernels::kDeviceTileRows == 0) {
                const size_t left = sequence.rows - row;
                layout.tiles[tile_count++] = {
                    static_cast<uint32_t>(sequence.row + row),
                    static_cast<uint32_t>(std::min(left, kernels::kDeviceTileRows))};
            }
        }

        // Pages of each group, and masks of evicted slots.
        for (size_t group = 0; group < groups; ++group) {
            const Sequence::Pages &pages = sequence.pages[group];
            layout.sequences[group * from.sequence_count + i] = {static_cast<uint32_t>(pages.first),
                                                                 static_cast<uint32_t>(page)};
            std::copy(pages.data.begin(), pages.data.end(), layout.pages + page);
            page += pages.data.size();
        }
        layout.evictions[i] = {static_cast<uint32_t>(mask),
                               static_cast<uint32_t>(sequence.evicted.size())};
        std::copy(sequence.evicted.begin(), sequence.evicted.end(), layout.evicted + mask);
        mask += sequence.evicted.size();
    }

    // No row has failed yet. One copy moves the whole description.
    std::fill_n(layout.failed, from.row_count, UINT32_MAX);
    const auto *begin = reinterpret_cast<const uint8_t *>(layout.rows);
    const auto *end = reinterpret_cast<const uint8_t *>(layout.pages + page);
    queue.copy(described.data(), begin, static_cast<size_t>(end - begin));
}

void DeviceScratch::describe(const Pass &from) {
    const Network &network = from.network;
    const size_t groups = network.groups.size();

    // Counts the pages and masks, and reserves memory for the description.
    size_t pages = 0, masks = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < from.sequence_count; ++i) {
        const Sequence &sequence = from.sequences[i];
        for (const Sequence::Pages &of_group : sequence.pages) {
            pages += of_group.data.size();
        }
        masks += sequence.evicted.size();
        end = std::max(end, sequence.begin + sequence.rows);
    }
    if (pages > pages_max_ || masks > evicted_max_) {
        const size_t pages_max = std::bit_ceil(std::max({pages, pages_max_, size_t{64}}));
        const size_t evicted_max = std::bit_ceil(std::max({masks, evicted_max_, size_t{64}}));
        const size_t bytes = Layout(nullptr, rows, groups, pages_max, evicted_max).size_bytes;
        forget_recorded(); // the addresses of the parts change
        staged.grow(bytes);
        described.grow(bytes);
        pages_max_ = pages_max, evicted_max_ = evicted_max; // only after the memory is reserved
    }

    // Fills the description and enqueues its copy.
    padded = from.padded;
    fill(from, Layout(staged.data(), rows, groups, pages_max_, evicted_max_));
    const Layout there(described.data(), rows, groups, pages_max_, evicted_max_);
    pass = {from.row_count,  from.sequence_count, there.rows,    there.sequences,
            there.evictions, there.pages,         there.evicted, there.failed};

    // RoPE tables that cover the pass.
    std::vector<DeviceRope> tables =
        model.ropes(network.config.ropes, network.rope_frequencies, end);
    if (ropes.empty() || tables[0].cosine != ropes[0].cosine) {
        ropes = std::move(tables);
        forget_recorded();
    }
    tiles = there.tiles;

    // A few rows attend by blocks, which needs memory for partial results; many attend by tiles.
    const Config &config = network.config;
    received.begin(from, queue);
    blocks = std::bit_ceil(most_blocks(from));
    const size_t partial_bytes =
        from.row_count * config.heads * blocks * (config.head_dim + 2) * sizeof(float);
    if (most_rows(from) > kRowsFew || partial_bytes > kPartialBytesMax) {
        return;
    }
    tile_count = 0;
    fit_partials(config, from.row_count);
}

} // namespace stasis
