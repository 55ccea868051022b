// A model's data on its device: the weights, and the RoPE tables of the positions in use. Knows no
// sessions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/compute/device/device.h"
#include "runtime/compute/device/pages.h"
#include "runtime/model/config.h"
#include "runtime/model/weights.h"

namespace stasis {

// The weights of a layer, in device memory.
struct DeviceLayer {
    kernels::DeviceMatrix query, key, value, output, gate, up, down;
    const float *attention_norm = nullptr;
    const float *post_attention_norm = nullptr;
    const float *mlp_norm = nullptr;
    const float *post_mlp_norm = nullptr;
    const float *query_norm = nullptr;
    const float *key_norm = nullptr;
};

// Cosines and sines of one RoPE, [position][head_dim / 2] each.
struct DeviceRope {
    const float *cosine = nullptr, *sine = nullptr;
};

class DeviceModel {
  public:
    // Copies the weights. Throws Error(no_memory) if they do not fit, Error(unsupported) for heads
    // that the device has no kernels for, and Error(device).
    DeviceModel(std::unique_ptr<OpenDevice> device, const Config &config, const Weights &weights,
                const Watch &watch);
    ~DeviceModel();
    DeviceModel(const DeviceModel &) = delete;
    DeviceModel &operator=(const DeviceModel &) = delete;

    const OpenDevice &on() const { return *device_; }
    DevicePageMemory &pages() { return pages_; }
    // Sets the function that reclaims memory (OpenDevice::make_room) while the model computes.
    void ask_for_room(std::function<bool(size_t)> make_room) {
        device_->make_room = std::move(make_room);
    }

    QuantGroups groups;               // of all matrices
    kernels::DeviceMatrix embeddings; // to look up rows; none if they are wide
    const float *wide_embeddings = nullptr;
    kernels::DeviceMatrix head;
    const float *final_norm = nullptr;
    std::vector<DeviceLayer> layers;

    // Returns tables, one for each RoPE, that cover at least the positions below `end`. They are
    // valid until the model is closed.
    std::vector<DeviceRope> ropes(const std::vector<Rope> &ropes,
                                  const std::vector<std::vector<double>> &frequencies,
                                  uint64_t end);

  private:
    void *take(size_t size_bytes);
    template <typename T> const T *copied(const T *from, size_t count);
    kernels::DeviceMatrix copied(const Matrix &matrix);
    // Copies rows of blocks, which are only looked up, as strips.
    kernels::DeviceMatrix copied_rows(const Matrix &matrix, const uint8_t *rows);
    void copy_embeddings(const Weights &weights);
    void copy_layer(const LayerWeights &from, const Config &config);

    std::unique_ptr<OpenDevice> device_;
    std::vector<void *> blocks_;                          // all memory taken
    std::map<const void *, kernels::DeviceMatrix> known_; // copied matrices, by their host address
    DeviceWorkQueue queue_;
    DevicePageMemory pages_;

    std::mutex mutex_; // protects the members below
    std::vector<DeviceRope> ropes_;
    uint64_t rope_positions_ = 0;
};

} // namespace stasis
