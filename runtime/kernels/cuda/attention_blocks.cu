// Attention of few rows, over contexts of any length (C5). A block of threads takes a row, a KV
// head and a page: keys and values go from memory to shared memory once for all query heads that
// share them. Then a warp merges 32 columns of a row and head in ascending order of pages.
//
// If each row is the only one of its sequence, as in decoding, no other kernel writes what it sees:
// the block copies keys and values before it waits for the products, and finishes the row's query,
// key and value itself. The last block of a row and KV head merges. So a layer has one kernel here
// in place of three, each of which waited for the one before.
#include "runtime/kernels/cuda/attention_merge.h"
#include "runtime/kernels/cuda/attention_page.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

// The most blocks of a row that the last of them merges; more are merged by many warps.
constexpr size_t kMergedByLast = 64;

// What a block of threads works on.
struct Place {
    DeviceRow row;
    Blocks range;
    uint64_t block;
    uint16_t *page;   // null: evicted whole
    uint64_t visible; // of its slots
    bool own;         // it holds the row's position
};

__device__ Place place_of(const DeviceAttention &task) {
    Place at = {};
    at.row = task.pass.rows[blockIdx.z];
    at.range = visible_blocks(at.row.position, task.window);
    at.block = at.range.first + blockIdx.x;
    at.own = at.block == at.row.position / kSlots;
    if (blockIdx.x < at.range.count) {
        const Pages pages = pages_of(task, at.row.sequence);
        at.page = pages.pages[at.block - pages.first];
        at.visible = visible_slots(at.row.position, task.window, at.block) & pages.held(at.block);
    }
    return at;
}

// A block that the row does not see is marked by a sum of 0.
__device__ void mark_unseen(const DeviceAttention &task, unsigned group_heads) {
    if (threadIdx.x < group_heads) {
        const size_t at = blockIdx.z * task.heads + blockIdx.y * group_heads + threadIdx.x;
        task.sum[at * task.blocks + blockIdx.x] = 0.0F;
    }
}

// Attends once queries, keys and values are in shared memory. Each step needs what all threads
// stored in the one before.
__device__ void attend(const Page &work, size_t index) {
    __syncthreads();
    if (work.tiny(0, 1)) {
        work.multiply_keys<true>();
    } else {
        work.multiply_keys<false>();
    }
    __syncthreads();
    work.weigh_scores(index);
    __syncthreads();
    if (work.tiny(2, 3)) {
        work.multiply_values<true>();
    } else {
        work.multiply_values<false>();
    }
    __syncthreads();
    work.store(index);
}

// Begins to copy the keys and values of the slots in `which`.
__device__ void copy_both(const Page &work, const uint16_t *keys, const uint16_t *values,
                          uint64_t which) {
    if (threadIdx.x < 4) {
        work.least[threadIdx.x] = 0xFFFFFFFFU;
    }
    work.copy(keys, which, work.keys());
    work.copy(values, which, work.values());
    wait_copies<1>();
    __syncthreads(); // `least`
    work.scan(work.keys(), 1);
    wait_copies<0>();
    work.scan(work.values(), 3);
}

__global__ void __launch_bounds__(kPageThreads)
    block_kernel(const __grid_constant__ DeviceAttention task,
                 const __grid_constant__ PageRoom room) {
    __shared__ uint32_t least[4];
    // Only data that no other work writes is read before the wait: the pass's description.
    const Place at = place_of(task);
    const size_t head = blockIdx.y * kSlots * task.head_dim;
    // A prefetch before the wait does not hide what the previous kernel writes.
    if (at.page != nullptr && at.visible != 0) {
        const size_t size_bytes = kSlots * task.head_dim * sizeof(uint16_t);
        ask_for(at.page + task.keys_at + head, size_bytes, threadIdx.x, kPageThreads);
        ask_for(at.page + task.values_at + head, size_bytes, threadIdx.x, kPageThreads);
    }
    wait_for_previous();
    if (blockIdx.x >= at.range.count) {
        return;
    }
    if (at.page == nullptr || at.visible == 0) {
        mark_unseen(task, room.group_heads);
        return;
    }
    const Page work{task, room, blockIdx.z, blockIdx.y, at.visible, dynamic_shared<unsigned char>(),
                    least};
    copy_both(work, at.page + task.keys_at + head, at.page + task.values_at + head, at.visible);
    work.stage_query();
    attend(work, blockIdx.x);
}

// The last of the row's blocks to come here merges them all.
__device__ void merge_if_last(const DeviceAttention &task, unsigned group_heads, unsigned count) {
    __shared__ bool last;
    __threadfence(); // the partial results come before the count
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *arrived = &task.arrived[blockIdx.z * task.kv_heads + blockIdx.y];
        last = atomicAdd(arrived, 1U) + 1 == count;
        if (last) {
            *arrived = 0; // for the next layer
        }
    }
    __syncthreads();
    if (!last) {
        return;
    }
    __threadfence();
    const auto columns = static_cast<unsigned>(task.head_dim);
    const unsigned of_head = (columns + kWarp - 1) / kWarp;
    Step *steps = dynamic_shared<Step>() + threadIdx.x / kWarp * kWarp;
    for (unsigned i = threadIdx.x / kWarp; i < group_heads * of_head; i += kPageWarps) {
        const size_t head = blockIdx.z * task.heads + blockIdx.y * group_heads + i / of_head;
        merge_few(task, head, i % of_head * kWarp + threadIdx.x % kWarp, count, steps);
    }
}

// Each row is the only one of its sequence.
__global__ void __launch_bounds__(kPageThreads, 2)
    row_kernel(const __grid_constant__ DeviceAttention task,
               const __grid_constant__ DeviceHeads heads, const __grid_constant__ PageRoom room) {
    __shared__ uint32_t least[4];
    const Place at = place_of(task);
    const auto n = static_cast<unsigned>(task.head_dim);
    const auto slot = static_cast<unsigned>(at.row.position % kSlots);
    const auto count = static_cast<unsigned>(at.range.count);
    // The row's own block also stores its key and value.
    const bool sees = at.page != nullptr && (at.visible != 0 || at.own);
    const Page work{task, room, blockIdx.z, blockIdx.y, at.visible, dynamic_shared<unsigned char>(),
                    least};
    const auto page = [&] { return at.page + blockIdx.y * kSlots * n; }; // of what it sees
    if (sees) {
        const uint64_t earlier = at.own ? at.visible & ~(uint64_t{1} << slot) : at.visible;
        copy_both(work, page() + task.keys_at, page() + task.values_at, earlier);
        float *angles = work.floats(room.angles);
        for (unsigned i = threadIdx.x; i < n; i += kPageThreads) {
            const float *from = i < n / 2 ? heads.cosine : heads.sine - n / 2;
            angles[i] = from[at.row.position * (n / 2) + i];
        }
        __syncthreads();
    }
    wait_for_previous();
    if (blockIdx.x >= count) {
        return;
    }
    if (sees) {
        work.finish_queries(heads, at.own ? heads.rounded : nullptr);
        if (at.own && !work.finish_key_value(heads, slot, page())) {
            atomicMin(&task.pass.failed[blockIdx.z], heads.layer);
        }
        attend(work, blockIdx.x);
    } else {
        mark_unseen(task, room.group_heads);
    }
    if (task.arrived != nullptr) {
        merge_if_last(task, room.group_heads, count);
    }
}

__global__ void __launch_bounds__(kWarp) merge_kernel(DeviceAttention task) {
    __shared__ Step steps[kWarp];
    const size_t head = size_t{blockIdx.y} * task.heads + blockIdx.x;
    const uint64_t count = visible_blocks(task.pass.rows[blockIdx.y].position, task.window).count;
    wait_for_previous();
    merge_columns(task, head, blockIdx.z * kWarp + threadIdx.x, count, steps);
}

Launch launch_of(const DeviceAttention &task, const PageRoom &room) {
    return {dim3(static_cast<unsigned>(task.blocks), static_cast<unsigned>(task.kv_heads),
                 static_cast<unsigned>(task.pass.row_count)),
            kPageThreads, room.bytes};
}

void merge(DeviceQueue *queue, const DeviceAttention &task) {
    const auto columns = static_cast<unsigned>(task.head_dim);
    enqueue(queue,
            {dim3(static_cast<unsigned>(task.heads), static_cast<unsigned>(task.pass.row_count),
                  (columns + kWarp - 1) / kWarp),
             kWarp},
            merge_kernel, task);
}

void attend_rows(DeviceQueue *queue, const DeviceHeads &heads, const DeviceAttention &task) {
    DeviceAttention own = task;
    if (task.blocks > kMergedByLast) {
        own.arrived = nullptr;
    }
    const PageRoom room(task.heads, task.kv_heads, task.head_dim);
    enqueue(queue, launch_of(own, room), row_kernel, own, heads, room);
    if (own.arrived == nullptr) {
        merge(queue, own);
    }
}

} // namespace

void attend_blocks(DeviceQueue *queue, const DeviceAttention &task) {
    const PageRoom room(task.heads, task.kv_heads, task.head_dim);
    enqueue(queue, launch_of(task, room), block_kernel, task, room);
    merge(queue, task);
}

void add_attention(DeviceTable &table) {
    table.attend_blocks = attend_blocks;
    table.attend_rows = attend_rows;
    table.attend_tiles = attend_tiles;
    table.receive = receive;
}

} // namespace stasis::kernels::device
