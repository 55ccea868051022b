// Runs of tokens on the device; see run.h. A step is recorded once: its pass, the logits of its
// row, the draw, which makes the row that of the token drawn.
#include "runtime/compute/device/run.h"

#include "runtime/compute/device/forward.h"
#include "runtime/compute/network.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

namespace {

// What a run needs beside a pass, one behind the other; the first part comes from the host, the
// second goes back to it.
struct RunLayout {
    kernels::DeviceSampler sampler;
    uint64_t random[kRunMost];
    uint32_t step;
    uint32_t tokens[kRunMost], failures[kRunMost];
};

// Of a row of logits, so that what comes behind it is aligned.
size_t row_bytes(const Config &config) {
    return (config.vocabulary * sizeof(float) + 255) / 256 * 256;
}

// Enqueues a step.
void enqueue_step(const Network &network, DeviceWork &work, RunLayout *there, uint16_t *hiddens) {
    auto *logits = static_cast<float *>(work.logits.data());
    enqueue_pass(network, work, {}, 0, 0);
    enqueue_logits(network, work, work.hidden, 1, logits);
    kernels::DeviceDraw task;
    task.logits = logits;
    task.vocabulary = network.config.vocabulary;
    task.room = static_cast<uint8_t *>(work.logits.data()) + row_bytes(network.config);
    task.hidden = work.hidden;
    task.hidden_size = network.config.hidden;
    task.sampler = &there->sampler;
    task.random = there->random;
    task.row = const_cast<kernels::DeviceRow *>(work.pass.rows);
    task.failed = work.pass.failed;
    task.step = &there->step;
    task.tokens = there->tokens;
    task.failures = there->failures;
    task.hiddens = hiddens;
    work.queue.table().draw(work.queue.get(), task);
}

// The sequence's first row alone, its pages as they are for all.
void describe_first(const Network &network, Workspace &work, DeviceWork &on) {
    Sequence &sequence = work.sequences[0];
    const size_t rows = sequence.rows;
    sequence.rows = work.row_count = 1;
    on.describe(network, work);
    sequence.rows = work.row_count = rows;
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

void run_on_device(const Network &network, Workspace &work, const Sampling &sampling,
                   DeviceRun &run) {
    DeviceWork &on = *work.device;
    const size_t rows = work.row_count, hidden = network.config.hidden;
    const size_t hidden_at = (sizeof(RunLayout) + 255) / 256 * 256;
    bool moved = on.run.grow(hidden_at + kRunMost * hidden * sizeof(uint16_t));
    moved = on.logits.grow(row_bytes(network.config) +
                           kernels::draw_room_bytes(network.config.vocabulary)) ||
            moved;
    if (moved) {
        on.forget_recorded();
    }
    on.run_staged.grow(sizeof(RunLayout));
    auto *there = static_cast<RunLayout *>(on.run.data());
    auto *here = static_cast<RunLayout *>(on.run_staged.data());
    auto *hiddens = reinterpret_cast<uint16_t *>(static_cast<uint8_t *>(on.run.data()) + hidden_at);
    *here = {};
    here->sampler = {sampling.temperature, sampling.top_k,
                     static_cast<uint64_t>(sampling.top_p * 0x1p32F),
                     static_cast<uint64_t>(sampling.min_p * 0x1p40F)};
    for (size_t i = 0; i < rows; ++i) { // of the token behind row i
        here->random[i] = random_bits(sampling.seed, work.sequences[0].begin + i + 1);
    }
    try {
        const uint64_t end = work.sequences[0].begin + rows;
        on.model.ropes(network.rope_frequencies,
                       end); // of every step: the description is the first's
        describe_first(network, work, on);
        on.queue.copy(there, here, offsetof(RunLayout, tokens));
        for (size_t i = 0; i < rows; ++i) {
            on.replay({DeviceWork::Key::drawing, 1, on.blocks},
                      [&] { enqueue_step(network, on, there, hiddens); });
        }
        on.queue.copy(here, there, sizeof(RunLayout));
        on.queue.copy(work.hidden, hiddens, rows * hidden * sizeof(uint16_t));
    } catch (...) {
        on.queue.finish_quietly();
        throw;
    }
    on.queue.finish("computing a run of tokens");
    run.tokens.assign(here->tokens, here->tokens + rows);
    run.failures.assign(here->failures, here->failures + rows);
}

} // namespace stasis
