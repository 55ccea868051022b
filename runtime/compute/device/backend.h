// Functions of the device's backend that its parts share: enqueuing logits, and drawing ahead.
// Knows no session.
#pragma once

#include "runtime/compute/device/scratch.h"
#include "runtime/compute/pass.h"

namespace stasis {

struct DrawnRows;

// Enqueues the computation of logits [rows][vocabulary] of final hidden states, all in device
// memory.
void enqueue_logits(const Network &network, DeviceScratch &on, const uint16_t *hidden, size_t rows,
                    float *logits);

// See Backend.
bool drawn_on_device(const Sampling &sampling);
void draw_ahead_on_device(Pass &pass, const Sampling &sampling, DrawnRows &drawn);

} // namespace stasis
