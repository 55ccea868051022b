// The device's backend: enqueues the steps of a pass, which give the same bits as the CPU's.
// Weights and pages are in device memory; tokens are copied to the device, hidden states and logits
// back. See runtime/compute/backend.h for the shapes.
#include "runtime/compute/device/backend.h"

#include <algorithm>
#include <cassert>
#include <initializer_list>

#include "runtime/compute/backend.h"
#include "runtime/compute/forward.h"
#include "runtime/compute/network.h"
#include "runtime/compute/profile.h"

namespace stasis {

namespace {

// Quantizes x of the task [rows][depth] in each group size that its matrices need (C8).
template <typename Task>
void quantize(DeviceScratch &on, std::initializer_list<const kernels::DeviceMatrix *> matrices,
              Task &task) {
    for (const kernels::DeviceMatrix *w : matrices) {
        const size_t group = kernels::quant_block(w->quant).elements, i = group == 32 ? 0 : 1;
        if (w->strips != nullptr && task.quantized[i] == nullptr) {
            on.queue.table().quantize(on.queue.get(),
                                      {task.x, task.rows, w->depth, group, on.quantized[i]});
            task.quantized[i] = on.quantized[i];
        }
    }
}

void product(DeviceScratch &on, kernels::DeviceProduct task) {
    quantize(on, {&task.w[0], &task.w[1], &task.w[2]}, task);
    on.queue.table().product(on.queue.get(), task);
}

// Reports whether the pass's products are pinned ones, under the device profile.
bool pinned(const DeviceScratch &on) {
    return on.padded != 0;
}

size_t product_rows(const DeviceScratch &on) {
    return pinned(on) ? on.padded : on.pass.row_count;
}

void make_device_scratch(Pass &pass) {
    pass.device = std::make_unique<DeviceScratch>(*pass.network.device);
}

void fit_device_scratch(Pass &pass, size_t rows) {
    pass.device->fit(pass.network.config, rows);
}

uint64_t device_scratch_bytes(const Pass &pass) {
    return pass.device->size_bytes();
}

void check_device_process(const Network &network) {
    network.device->on().require_this_process();
}

void embed_on_device(Pass &pass) {
    DeviceScratch &on = *pass.device;
    kernels::DeviceEmbed task;
    task.pass = on.pass;
    task.narrow = on.model.embeddings.w;
    task.wide = on.model.wide_embeddings;
    task.strips = on.model.embeddings.strips;
    task.quant = on.model.embeddings.quant;
    task.scale = pass.network.config.embedding_scale;
    task.hidden = pass.network.config.hidden;
    task.stream = on.stream;
    on.queue.table().embed(on.queue.get(), task);
}

void residual_on_device(Pass &pass, After after, size_t layer) {
    DeviceScratch &on = *pass.device;
    const Config &config = pass.network.config;
    const std::vector<DeviceLayer> &layers = on.model.layers;
    const bool last = after == After::mlp && layer + 1 == layers.size();
    kernels::DeviceResidual task;
    task.rows = on.pass.row_count;
    task.hidden = config.hidden;
    task.eps = config.norm_eps;
    task.stream = on.stream;

    // Each residual also computes the norm that the next product reads.
    switch (after) {
    case After::embedding:
        task.norm = layers[0].attention_norm;
        break;
    case After::attention:
        task.wide = on.wide;
        task.post_norm = layers[layer].post_attention_norm;
        task.norm = layers[layer].mlp_norm;
        break;
    case After::mlp:
        task.wide = on.wide;
        task.post_norm = layers[layer].post_mlp_norm;
        task.norm = last ? on.model.final_norm : layers[layer + 1].attention_norm;
        break;
    case After::inputs:
        assert(false && "models with inputs of layers are computed by the CPU alone");
        break;
    }

    // The last residual of a pass gives the final hidden state and checks that it is finite.
    task.narrow = last ? on.hidden : on.narrow;
    task.failed = last ? on.pass.failed : nullptr;
    task.layer = config.layers;
    on.queue.table().residual(on.queue.get(), task);
}

void project_heads_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    const DeviceLayer &weights = on.model.layers[layer];
    product(on, {on.narrow,
                 product_rows(on),
                 3,
                 {weights.query, weights.key, weights.value},
                 {on.query, on.key, on.value},
                 pinned(on)});
}

kernels::DeviceHeads heads_task(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    const Config &config = pass.network.config;
    const DeviceLayer &weights = on.model.layers[layer];
    const LayerPlace place = pass.network.layer_places[layer];
    const PageShape &shape = pass.network.page_shapes[place.group];
    kernels::DeviceHeads task;
    task.pass = on.pass;
    task.layer = static_cast<uint32_t>(layer);
    task.group = place.group;
    task.keys_at = shape.offset(place.index, 0, 0);
    task.values_at = shape.offset(place.index, 1, 0);
    task.heads = config.heads;
    task.kv_heads = config.kv_heads;
    task.head_dim = config.head_dim;
    task.interleaved = config.interleaved_rope;
    task.eps = config.norm_eps;

    task.query = on.query;
    task.key = on.key;
    task.value = on.value;
    task.query_norm = weights.query_norm;
    task.key_norm = weights.key_norm;
    task.cosine = on.ropes[config.layer[layer].rope].cosine;
    task.sine = on.ropes[config.layer[layer].rope].sine;
    task.rounded = on.rounded;
    return task;
}

// Reports whether attention finishes the heads itself: each row is the only one of its sequence.
bool attends_rows(const DeviceScratch &on) {
    return on.tile_count == 0 && on.pass.row_count == on.pass.sequence_count;
}

void finish_heads_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    if (!attends_rows(on)) {
        on.queue.table().heads(on.queue.get(), heads_task(pass, layer));
    }
}

void attend_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    const Config &config = pass.network.config;
    const LayerPlace place = pass.network.layer_places[layer];
    const PageShape &shape = pass.network.page_shapes[place.group];
    kernels::DeviceAttention task;
    task.pass = on.pass;
    task.group = place.group;
    task.keys_at = shape.offset(place.index, 0, 0);
    task.values_at = shape.offset(place.index, 1, 0);
    task.heads = config.heads;
    task.kv_heads = config.kv_heads;
    task.head_dim = config.head_dim;
    task.window = config.layer[layer].window;
    task.scale = config.attention_scale;
    task.softcap = config.attention_softcap;

    task.query = on.rounded;
    task.output = on.attended;
    task.blocks = on.blocks;
    task.maximum = on.maximum;
    task.sum = on.sum;
    task.partial = on.partial;
    task.arrived = on.arrived;

    if (attends_rows(on)) {
        on.queue.table().attend_rows(on.queue.get(), heads_task(pass, layer), task);
    } else if (on.tile_count == 0) {
        on.queue.table().attend_blocks(on.queue.get(), task);
    } else {
        on.queue.table().attend_tiles(on.queue.get(), task, on.tiles, on.tile_count);
    }
    on.received.add(on.queue, task, layer);
}

void project_output_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    product(
        on,
        {on.attended, product_rows(on), 1, {on.model.layers[layer].output}, {on.wide}, pinned(on)});
}

void gated_product_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    const DeviceLayer &weights = on.model.layers[layer];
    kernels::DeviceGatedProduct task;
    task.x = on.narrow;
    task.rows = product_rows(on);
    task.gate = weights.gate;
    task.up = weights.up;
    task.activation = pass.network.config.activation;
    task.gate_y = on.gate;
    task.up_y = on.up;
    task.y = on.inner;
    task.pinned = pinned(on);
    quantize(on, {&task.gate, &task.up}, task);
    on.queue.table().gated_product(on.queue.get(), task);
}

void project_down_on_device(Pass &pass, size_t layer) {
    DeviceScratch &on = *pass.device;
    product(on,
            {on.inner, product_rows(on), 1, {on.model.layers[layer].down}, {on.wide}, pinned(on)});
}

// Marks the sequences that have a value that is not finite; the first failure of each counts.
void receive_failures(Pass &pass, const uint32_t *failed) {
    for (Sequence &sequence : pass.all()) {
        for (size_t row = 0; row < sequence.rows; ++row) {
            const uint32_t layer = failed[sequence.row + row];
            if (layer != UINT32_MAX) {
                sequence.fail_at(layer, sequence.begin + row);
            }
        }
    }
}

void try_run(Pass &pass, const Watch &watch, uint64_t done, uint64_t total) {
    DeviceScratch &on = *pass.device;

    // Describes the pass, then plays it from a recording or enqueues it layer by layer.
    watch.look(done, total);
    try {
        on.describe(pass);
        if (pass.row_count == pass.sequence_count && on.tile_count == 0 && on.padded == 0 &&
            !on.received.any()) {
            // The work enqueued depends on nothing but the shape of the pass, so a recording
            // serves.
            on.replay({DeviceScratch::Key::whole, pass.row_count, on.blocks},
                      [&] { run_layers(pass, {}, 0, 0); });
        } else {
            run_layers(pass, watch, done, total);
        }

        // Copies the results back.
        on.queue.copy(pass.hidden, on.hidden,
                      pass.row_count * pass.network.config.hidden * sizeof(uint16_t));
        on.received.end(on.queue);
        on.queue.copy(on.failed_here, on.pass.failed, pass.row_count * sizeof(uint32_t));
    } catch (...) {
        on.queue.finish_quietly(); // later calls use the buffers
        throw;
    }
    on.queue.finish("computing");
    receive_failures(pass, on.failed_here);
}

void run_on_device(Pass &pass, const Watch &watch, uint64_t done, uint64_t total) {
    // Bytes that a module may need for itself, such as a library's workspace. A lack of them is
    // reported only when the work is finished, and the pass is then computed again.
    constexpr size_t kOwnBytes = size_t{32} << 20;
    const OpenDevice &device = pass.device->model.on();
    for (;;) {
        try {
            return try_run(pass, watch, done, total);
        } catch (const Error &error) {
            if (error.status() != Status::no_memory || device.make_room == nullptr ||
                !device.make_room(kOwnBytes)) {
                throw;
            }
        }
    }
}

void logits_on_device(Pass &pass, const uint16_t *hidden, size_t rows, float *logits) {
    DeviceScratch &on = *pass.device;
    const Config &config = pass.network.config;
    const size_t count = rows * config.vocabulary;
    if (on.logits.grow(count * sizeof(float))) {
        on.forget_recorded();
    }
    auto *there = static_cast<float *>(on.logits.data());
    on.queue.copy(on.narrow, hidden, rows * config.hidden * sizeof(uint16_t));
    enqueue_logits(pass.network, on, on.narrow, rows, there);
    on.queue.copy(logits, there, count * sizeof(float));
    on.queue.finish("computing logits");
}

std::string open_device_profile(const Network &network) {
    const QuantGroups &groups = network.weights.groups;
    if (groups.by_32 || groups.by_256) {
        fail(Status::unsupported, "profile \"device\": it is of bf16 weights, not of integers (%s)",
             network.weights.types.c_str());
    }
    // Every shape of a product that a pass under the profile may have.
    std::vector<kernels::DeviceShape> shapes;
    for (const DeviceLayer &layer : network.device->layers) {
        for (const kernels::DeviceMatrix *w :
             {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up,
              &layer.down}) {
            for (const size_t rows : kProfileRows) {
                const kernels::DeviceShape shape{rows, w->outputs, w->depth, w->bias != nullptr};
                if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) {
                    shapes.push_back(shape);
                }
            }
        }
    }
    const OpenDevice &on = network.device->on();
    char id[kernels::kDeviceIdBytes] = {};
    kernels::DeviceError error;
    if (!on.table->pin_products(on.device, shapes.data(), shapes.size(), id, &error)) {
        on.fail_with(error, "opening its profile");
    }
    return id;
}

} // namespace

void enqueue_logits(const Network &network, DeviceScratch &on, const uint16_t *hidden, size_t rows,
                    float *logits) {
    product(on, {hidden, rows, 1, {on.model.head}, {logits}}); // [T][V]
    if (network.config.final_softcap != 0.0F) {
        on.queue.table().softcap(on.queue.get(), logits, rows * network.config.vocabulary,
                                 network.config.final_softcap);
    }
}

const Backend kDeviceBackend = {.make_scratch = make_device_scratch,
                                .fit = fit_device_scratch,
                                .size_bytes = device_scratch_bytes,
                                .check_process = check_device_process,
                                .run = run_on_device,
                                .embed = embed_on_device,
                                .join = nullptr,
                                .residual = residual_on_device,
                                .project_heads = project_heads_on_device,
                                .finish_heads = finish_heads_on_device,
                                .attend = attend_on_device,
                                .project_recurrent = nullptr,
                                .recur = nullptr,
                                .keep_inputs = nullptr,
                                .recur_again = nullptr,
                                .project_output = project_output_on_device,
                                .gated_product = gated_product_on_device,
                                .project_down = project_down_on_device,
                                .run_experts = nullptr,
                                .logits = logits_on_device,
                                .draws_ahead = drawn_on_device,
                                .draw_ahead = draw_ahead_on_device,
                                .open_profile = open_device_profile};

} // namespace stasis
