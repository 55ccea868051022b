// The forward pass on a device: the same steps as runtime/compute/forward.h, to the same bits, each
// of them enqueued. Weights and pages lie on the device; tokens go there, hidden states and logits
// come back.
#pragma once

#include "runtime/compute/device/work.h"
#include "runtime/compute/workspace.h"

namespace stasis {

struct Network;

// As forward(). Looks at the watch before each layer.
void forward_on_device(const Network &network, Workspace &work, const Watch &watch, uint64_t done,
                       uint64_t total);

// As project_logits(); `hidden` and `logits` are the host's.
void project_on_device(const Network &network, Workspace &work, const uint16_t *hidden, size_t rows,
                       float *logits);

// Enqueues the pass that `work` describes; its final hidden states come to work.hidden.
void enqueue_pass(const Network &network, DeviceWork &work, const Watch &watch, uint64_t done,
                  uint64_t total);
// Enqueues logits [rows][vocabulary] of final hidden states; all of it on the device.
void enqueue_logits(const Network &network, DeviceWork &work, const uint16_t *hidden, size_t rows,
                    float *logits);

} // namespace stasis
