// Puts the network of an MTP head together from the model's parts; see mtp_network.h.
#include "runtime/session/mtp_network.h"

#include <cassert>

#include "runtime/compute/backend.h"
#include "runtime/compute/pass.h"

namespace stasis {

namespace {

// The model's embeddings and head, and the layer and the norm of the MTP head.
Weights head_weights(const Weights &model) {
    Weights weights;
    weights.embeddings = model.embeddings;
    weights.wide_embeddings = model.wide_embeddings;
    weights.embedding_blocks = model.embedding_blocks;
    weights.head = model.head;
    weights.final_norm = model.mtp.final_norm;
    weights.layers = {model.mtp.layer};
    weights.mtp = model.mtp;
    weights.groups = model.mtp.groups;
    weights.groups.add(model.head);
    const Matrix &head = model.head;
    const size_t row_bytes = head.strips != nullptr
                                 ? kernels::quant_row_bytes(head.quant, head.columns)
                                 : head.columns * sizeof(uint16_t);
    weights.stored_bytes = model.mtp.stored_bytes + head.rows * row_bytes;
    return weights;
}

} // namespace

std::unique_ptr<Network> mtp_network(const Network &model, uint64_t budget_bytes) {
    assert(model.weights.mtp.present() && model.backend == &kCpuBackend);
    auto network = std::make_unique<Network>(model.memory);
    network->config = model.config;
    network->config.layers = 1;
    network->config.layer = {mtp_layer(model.config)};
    network->config.recurrent = {};
    network->weights = head_weights(model.weights);
    network->joins_hidden = true;
    network->kernels = model.kernels;
    network->threads = model.threads;
    network->backend = model.backend;
    network->device_name = model.device_name;
    network->kernels_name = model.kernels_name;
    network->describe_layers();
    network->make_cache(host_pages(network->memory), budget_bytes, 0);
    return network;
}

} // namespace stasis
