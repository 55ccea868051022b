// What files call the activations of layers.
#pragma once

#include <iterator>

#include "runtime/kernels/table.h"

namespace stasis {

struct ActivationNames {
    kernels::Activation activation;
    const char *identity;       // in the identity of models, which snapshots store
    const char *config_json[2]; // in config.json; the first is the usual one; null: no second
};

inline constexpr ActivationNames kActivationNames[] = {
    {kernels::Activation::silu, "silu", {"silu", "swish"}},
    {kernels::Activation::gelu_tanh, "gelu_tanh", {"gelu_pytorch_tanh", nullptr}},
};
static_assert(std::size(kActivationNames) == std::size(kernels::kActivations));

} // namespace stasis
