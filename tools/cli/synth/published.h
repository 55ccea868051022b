// The config.json of each published shape, as text. Must not know tensors.
#pragma once

#include <span>

namespace command::synth {

struct Published {
    const char *name; // of the shape
    const char *config;
};

std::span<const Published> published();

} // namespace command::synth
