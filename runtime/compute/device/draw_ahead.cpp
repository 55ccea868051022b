// Draws several tokens on the device without the host, which copies them at the end; see
// Backend::draw_ahead. A step is recorded once: its pass, the logits of its row, and the draw,
// which stores the token drawn in the row for the next step.
#include <cassert>

#include "runtime/compute/backend.h"
#include "runtime/compute/device/backend.h"
#include "runtime/compute/forward.h"
#include "runtime/compute/network.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

namespace {

// The steps' data beside the pass. The part before `tokens` is copied from the host; all of it is
// copied back.
struct DrawnLayout {
    kernels::DeviceSampler sampler;
    uint64_t random[kDrawnMost];
    uint32_t step;
    uint32_t tokens[kDrawnMost], failures[kDrawnMost];
};

// Returns the bytes of a row of logits, padded so that the workspace after it is aligned.
size_t row_bytes(const Config &config) {
    return (config.vocabulary * sizeof(float) + 255) / 256 * 256;
}

// Enqueues one step: a pass of one row, its logits, and the draw.
void enqueue_step(Pass &pass, DrawnLayout *there, uint16_t *hiddens) {
    DeviceScratch &on = *pass.device;
    const Config &config = pass.network.config;
    auto *logits = static_cast<float *>(on.logits.data());
    run_layers(pass, {}, 0, 0);
    enqueue_logits(pass.network, on, on.hidden, 1, logits);
    kernels::DeviceDraw task;
    task.logits = logits;
    task.vocabulary = config.vocabulary;
    task.room = static_cast<uint8_t *>(on.logits.data()) + row_bytes(config);
    task.hidden = on.hidden;
    task.hidden_size = config.hidden;
    task.sampler = &there->sampler;
    task.random = there->random;
    task.row = const_cast<kernels::DeviceRow *>(on.pass.rows);
    task.failed = on.pass.failed;
    task.step = &there->step;
    task.tokens = there->tokens;
    task.failures = there->failures;
    task.hiddens = hiddens;
    on.queue.table().draw(on.queue.get(), task);
}

// Describes the sequence's first row alone; its pages are the same for all rows.
void describe_first(Pass &pass) {
    Sequence &sequence = pass.sequences[0];
    const size_t rows = sequence.rows;
    sequence.rows = pass.row_count = 1;
    pass.device->describe(pass);
    sequence.rows = pass.row_count = rows;
}

} // namespace

bool drawn_on_device(const Sampling &sampling) {
    Sampling plain;
    plain.seed = sampling.seed;
    plain.temperature = sampling.temperature;
    plain.top_k = sampling.top_k;
    plain.top_p = sampling.top_p;
    plain.min_p = sampling.min_p;
    plain.penalty_window = sampling.penalty_window; // of penalties that are off
    plain.v2.dry_breakers = sampling.v2.dry_breakers;
    return sampling == plain;
}

void draw_ahead_on_device(Pass &pass, const Sampling &sampling, DrawnRows &drawn) {
    const Network &network = pass.network;
    DeviceScratch &on = *pass.device;
    const size_t rows = pass.row_count, hidden = network.config.hidden;
    assert(pass.sequence_count == 1 && rows <= kDrawnMost);

    // A buffer that moves makes the recordings invalid, which name its address.
    const size_t hidden_at = (sizeof(DrawnLayout) + 255) / 256 * 256;
    bool moved = on.run.grow(hidden_at + kDrawnMost * hidden * sizeof(uint16_t));
    moved = on.logits.grow(row_bytes(network.config) +
                           kernels::draw_room_bytes(network.config.vocabulary)) ||
            moved;
    if (moved) {
        on.forget_recorded();
    }
    on.run_staged.grow(sizeof(DrawnLayout));
    auto *there = static_cast<DrawnLayout *>(on.run.data());
    auto *here = static_cast<DrawnLayout *>(on.run_staged.data());
    auto *hiddens = reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(on.run.data()) + hidden_at);
    // Fills the description on the host.
    *here = {};
    here->sampler = {sampling.temperature, sampling.top_k,
                     static_cast<uint64_t>(sampling.top_p * 0x1p32F),
                     static_cast<uint64_t>(sampling.min_p * 0x1p40F)};
    // The random bits of the token after row i.
    for (size_t i = 0; i < rows; ++i) {
        here->random[i] = random_bits(sampling.seed, pass.sequences[0].begin + i + 1);
    }
    // Enqueues all steps, and copies the tokens and hidden states back.
    try {
        const uint64_t end = pass.sequences[0].begin + rows;
        // The tables must cover all steps, but the first row's description covers only one.
        on.model.ropes(network.config.ropes, network.rope_frequencies, end);
        describe_first(pass);
        on.queue.copy(there, here, offsetof(DrawnLayout, tokens));
        for (size_t i = 0; i < rows; ++i) {
            on.replay({DeviceScratch::Key::drawing, 1, on.blocks},
                      [&] { enqueue_step(pass, there, hiddens); });
        }
        on.queue.copy(here, there, sizeof(DrawnLayout));
        on.queue.copy(pass.hidden, hiddens, rows * hidden * sizeof(uint16_t));
    } catch (...) {
        on.queue.finish_quietly();
        throw;
    }
    on.queue.finish("computing a run of tokens");
    drawn.tokens.assign(here->tokens, here->tokens + rows);
    drawn.failures.assign(here->failures, here->failures + rows);
}

} // namespace stasis
