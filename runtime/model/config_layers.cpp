// Determines which layers of a model have a window, and describes each layer; see config_fields.h
// and config.h.
#include <algorithm>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"

namespace stasis {

std::vector<bool> parse_layer_types(const Fields &fields, uint32_t layers) {
    const Json::Array *types = fields.object.find("layer_types")->array();
    if (types == nullptr || types->size() != layers) {
        fields.refuse("layer_types", "an array with one entry for each of num_hidden_layers");
    }
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        const Json &type = (*types)[i];
        local[i] = type.text() != nullptr && *type.text() == "sliding_attention";
        if (!local[i] && (type.text() == nullptr || *type.text() != "full_attention")) {
            fail(Status::unsupported,
                 "%slayer_types[%u]: %s is not supported (full_attention and "
                 "sliding_attention are)",
                 fields.name.c_str(), i, shown(type).c_str());
        }
    }
    return local;
}

void set_layers(const Fields &fields, const Rope &shared, uint32_t window,
                const std::vector<bool> &local, Config &config) {
    if (fields.has("layer_types") && parse_layer_types(fields, config.layers) != local) {
        fail(Status::corrupt, "%slayer_types contradicts %s", fields.name.c_str(),
             window == 0 ? "the other fields, by which no layer has a window"
                         : "sliding_window, which all layers of this architecture have");
    }
    const uint32_t rope = rope_index(config, shared);
    for (const bool is_local : local) {
        config.layer.push_back({is_local ? window : 0, rope});
    }
}

void set_layers(const Fields &fields, uint32_t window, const std::vector<bool> &local,
                Config &config) {
    set_layers(fields, parse_only_rope(fields), window, local, config);
}

void set_hybrid_layers(const std::string &file, const std::vector<bool> &recurrent,
                       const char *what, const Rope &rope, Config &config) {
    for (const bool kind : {false, true}) {
        if (std::find(recurrent.begin(), recurrent.end(), kind) == recurrent.end()) {
            fail(Status::unsupported, "%sno layer has %s, which is not supported", file.c_str(),
                 kind ? what : "attention");
        }
    }
    for (const bool is_recurrent : recurrent) {
        LayerConfig layer;
        layer.recurrent = is_recurrent;
        config.layer.push_back(layer);
    }
    rope_index(config, rope);
}

uint32_t Config::long_rope_from() const {
    const auto found = std::find_if(ropes.begin(), ropes.end(), [](const Rope &rope) {
        return rope.scaling == RopeScaling::longrope;
    });
    return found == ropes.end() ? 0 : found->original_context;
}

uint32_t Config::most_rotary() const {
    uint32_t most = 0;
    for (const Rope &rope : ropes) {
        most = std::max(most, rotary_of(rope));
    }
    return most;
}

uint32_t Config::most_intermediate() const {
    uint32_t most = intermediate;
    for (const LayerConfig &kind : layer) {
        most = std::max(most, kind.intermediate);
    }
    return most;
}

size_t Config::most_key_size() const {
    size_t most = size_t{kv_heads} * head_dim;
    for (const LayerConfig &kind : layer) {
        most = std::max(most, size_t{kv_heads_of(kind)} * head_dim_of(kind));
    }
    return most;
}

LayerConfig mtp_layer(const Config &config) {
    return *std::find_if(config.layer.rbegin(), config.layer.rend(),
                         [](const LayerConfig &layer) { return !layer.recurrent; });
}

} // namespace stasis
