// One forward pass on a device; see forward.h. Shapes as in runtime/compute/forward.cpp.
#include "runtime/compute/device/forward.h"

#include <initializer_list>

#include "runtime/compute/network.h"

namespace stasis {

namespace {

// x of the task [rows][depth] as integers too, as far as its matrices call for them (C8).
template <typename Task>
void quantize(DeviceWork &work, std::initializer_list<const kernels::DeviceMatrix *> matrices,
              Task &task) {
    for (const kernels::DeviceMatrix *w : matrices) {
        const size_t group = kernels::quant_block(w->quant).elements, i = group == 32 ? 0 : 1;
        if (w->strips != nullptr && task.quantized[i] == nullptr) {
            work.queue.table().quantize(work.queue.get(),
                                        {task.x, task.rows, w->depth, group, work.quantized[i]});
            task.quantized[i] = work.quantized[i];
        }
    }
}

void product(DeviceWork &work, kernels::DeviceProduct task) {
    quantize(work, {&task.w[0], &task.w[1], &task.w[2]}, task);
    work.queue.table().product(work.queue.get(), task);
}

// One pass: what its steps need.
struct Pass {
    const Network &network;
    DeviceWork &work;
    kernels::DeviceQueue *queue;
    const kernels::DeviceTable &table;

    size_t rows() const { return work.pass.row_count; }

    void embed() const {
        kernels::DeviceEmbed task;
        task.pass = work.pass;
        task.narrow = work.model.embeddings.w;
        task.wide = work.model.wide_embeddings;
        task.strips = work.model.embeddings.strips;
        task.quant = work.model.embeddings.quant;
        task.scale = network.config.embedding_scale;
        task.hidden = network.config.hidden;
        task.stream = work.stream;
        table.embed(queue, task);
    }

    // stream += wide, through a further norm where there is one; then its own norm. `last`: the
    // result is the final hidden state.
    void residual(const float *wide, const float *post_norm, const float *norm, bool last) const {
        kernels::DeviceResidual task;
        task.rows = rows();
        task.hidden = network.config.hidden;
        task.eps = network.config.norm_eps;
        task.wide = wide;
        task.post_norm = post_norm;
        task.stream = work.stream;
        task.norm = norm;
        task.narrow = last ? work.hidden : work.narrow;
        task.failed = last ? work.pass.failed : nullptr;
        task.layer = network.config.layers;
        table.residual(queue, task);
    }

    bool pinned() const { return work.padded != 0; }
    size_t product_rows() const { return pinned() ? work.padded : rows(); }

    void heads(size_t layer) const {
        const Config &config = network.config;
        const DeviceLayer &weights = work.model.layers[layer];
        const LayerPlace place = network.layer_places[layer];
        const PageShape &shape = network.page_shapes[place.group];
        kernels::DeviceHeads task;
        task.pass = work.pass;
        task.layer = static_cast<uint32_t>(layer);
        task.group = place.group;
        task.keys_at = shape.offset(place.index, 0, 0);
        task.values_at = shape.offset(place.index, 1, 0);
        task.heads = config.heads;
        task.kv_heads = config.kv_heads;
        task.head_dim = config.head_dim;
        task.interleaved = config.interleaved_rope;
        task.eps = config.norm_eps;
        task.query = work.query;
        task.key = work.key;
        task.value = work.value;
        task.query_norm = weights.query_norm;
        task.key_norm = weights.key_norm;
        task.cosine = work.ropes[config.layer[layer].rope].cosine;
        task.sine = work.ropes[config.layer[layer].rope].sine;
        task.rounded = work.rounded;
        table.heads(queue, task);
    }

    void attend(size_t layer) const {
        const Config &config = network.config;
        const LayerPlace place = network.layer_places[layer];
        const PageShape &shape = network.page_shapes[place.group];
        kernels::DeviceAttention task;
        task.pass = work.pass;
        task.group = place.group;
        task.keys_at = shape.offset(place.index, 0, 0);
        task.values_at = shape.offset(place.index, 1, 0);
        task.heads = config.heads;
        task.kv_heads = config.kv_heads;
        task.head_dim = config.head_dim;
        task.window = config.layer[layer].window;
        task.scale = config.attention_scale;
        task.softcap = config.attention_softcap;
        task.query = work.rounded;
        task.output = work.attended;
        task.blocks = work.blocks;
        task.maximum = work.maximum;
        task.sum = work.sum;
        task.partial = work.partial;
        if (work.tile_count == 0) {
            table.attend_blocks(queue, task);
        } else {
            table.attend_tiles(queue, task, work.tiles, work.tile_count);
        }
        work.received.add(work.queue, task, layer);
    }

    void gated_product(const DeviceLayer &weights) const {
        kernels::DeviceGatedProduct task;
        task.x = work.narrow;
        task.rows = product_rows();
        task.gate = weights.gate;
        task.up = weights.up;
        task.gelu = network.config.activation != Activation::silu;
        task.gate_y = work.gate;
        task.up_y = work.up;
        task.y = work.inner;
        task.pinned = pinned();
        quantize(work, {&task.gate, &task.up}, task);
        table.gated_product(queue, task);
    }

    // From the normalised hidden state of the layer to that of the next.
    void layer(size_t index) const {
        const DeviceLayer &weights = work.model.layers[index];
        const bool last = index + 1 == network.config.layers;
        const float *next =
            last ? work.model.final_norm : work.model.layers[index + 1].attention_norm;
        product(work, {work.narrow,
                       product_rows(),
                       3,
                       {weights.query, weights.key, weights.value},
                       {work.query, work.key, work.value},
                       pinned()}); // [T][Q], [T][K] twice
        heads(index);
        attend(index); // [T][Q]
        product(work, {work.attended, product_rows(), 1, {weights.output}, {work.wide}, pinned()});
        residual(work.wide, weights.post_attention_norm, weights.mlp_norm, false);
        gated_product(weights); // [T][I]
        product(work, {work.inner, product_rows(), 1, {weights.down}, {work.wide}, pinned()});
        residual(work.wide, weights.post_mlp_norm, next, last);
    }

    void whole(const Watch &watch, uint64_t done, uint64_t total) const {
        embed(); // [T][H]
        residual(nullptr, nullptr, work.model.layers[0].attention_norm, false);
        for (size_t index = 0; index < network.config.layers; ++index) {
            watch.look(done, total);
            layer(index);
        }
    }
};

// Marks the sequences whose rows met what is not finite, each where it first did.
void receive_failures(Workspace &work, const uint32_t *failed) {
    for (Sequence &sequence : work.pass()) {
        for (size_t row = 0; row < sequence.rows; ++row) {
            const uint32_t layer = failed[sequence.row + row];
            if (layer != UINT32_MAX) {
                sequence.fail_at(layer, sequence.begin + row);
            }
        }
    }
}

void try_forward(const Network &network, Workspace &work, const Watch &watch, uint64_t done,
                 uint64_t total) {
    DeviceWork &on = *work.device;
    watch.look(done, total);
    try {
        on.describe(network, work);
        if (work.row_count == work.sequence_count && on.tile_count == 0 && on.padded == 0 &&
            !on.received.any()) {
            // Nothing that is enqueued depends on more than the shape of the pass.
            on.replay({DeviceWork::Key::whole, work.row_count, on.blocks},
                      [&] { enqueue_pass(network, on, {}, 0, 0); });
        } else {
            enqueue_pass(network, on, watch, done, total);
        }
        on.queue.copy(work.hidden, on.hidden,
                      work.row_count * network.config.hidden * sizeof(uint16_t));
        on.received.end(on.queue);
        on.queue.copy(on.failed_here, on.pass.failed, work.row_count * sizeof(uint32_t));
    } catch (...) {
        on.queue.finish_quietly(); // the buffers are the next call's
        throw;
    }
    on.queue.finish("computing");
    receive_failures(work, on.failed_here);
}

} // namespace

void enqueue_pass(const Network &network, DeviceWork &work, const Watch &watch, uint64_t done,
                  uint64_t total) {
    Pass{network, work, work.queue.get(), work.queue.table()}.whole(watch, done, total);
}

void enqueue_logits(const Network &network, DeviceWork &work, const uint16_t *hidden, size_t rows,
                    float *logits) {
    product(work, {hidden, rows, 1, {work.model.head}, {logits}}); // [T][V]
    if (network.config.final_softcap != 0.0F) {
        work.queue.table().softcap(work.queue.get(), logits, rows * network.config.vocabulary,
                                   network.config.final_softcap);
    }
}

void forward_on_device(const Network &network, Workspace &work, const Watch &watch, uint64_t done,
                       uint64_t total) {
    constexpr size_t kOwnBytes = size_t{32} << 20; // what a module may take for itself (a library's
                                                   // work space), which is told at the end
    const OpenDevice &device = work.device->model.on();
    for (;;) {
        try {
            return try_forward(network, work, watch, done, total);
        } catch (const Error &error) {
            if (error.status() != Status::no_memory || device.make_room == nullptr ||
                !device.make_room(kOwnBytes)) {
                throw;
            }
        }
    }
}

void project_on_device(const Network &network, Workspace &work, const uint16_t *hidden, size_t rows,
                       float *logits) {
    DeviceWork &on = *work.device;
    const Config &config = network.config;
    const size_t count = rows * config.vocabulary;
    if (on.logits.grow(count * sizeof(float))) {
        on.forget_recorded();
    }
    auto *there = static_cast<float *>(on.logits.data());
    on.queue.copy(on.narrow, hidden, rows * config.hidden * sizeof(uint16_t));
    enqueue_logits(network, on, on.narrow, rows, there);
    on.queue.copy(logits, there, count * sizeof(float));
    on.queue.finish("computing logits");
}

} // namespace stasis
