// What the device's backend and its drawing ahead share: work that is enqueued for the device
// alone.
#pragma once

#include "runtime/compute/device/scratch.h"
#include "runtime/compute/pass.h"

namespace stasis {

struct DrawnRows;

// Enqueues logits [rows][vocabulary] of final hidden states; all of it in device memory.
void enqueue_logits(const Network &network, DeviceScratch &on, const uint16_t *hidden, size_t rows,
                    float *logits);

// See Backend.
bool drawn_on_device(const Sampling &sampling);
void draw_ahead_on_device(Pass &pass, const Sampling &sampling, DrawnRows &drawn);

} // namespace stasis
