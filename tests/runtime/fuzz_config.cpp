// Any text given to the config parser ends in a Config with sizes in range, or in an Error that
// says why. The input is config.json and, after a zero byte, generation_config.json.
#include <cstddef>
#include <cstdint>
#include <string>

#include "format/state/error.h"
#include "runtime/model/config.h"
#include "tests/fuzz/watched.h"

using namespace stasis;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    const size_t cut = input.find('\0');
    try {
        const fuzz::Meter meter(fuzz::kJsonTimes * size +
                                (64 << 10)); // and of layers, a bounded many
        const Config config = parse_config(input.substr(0, cut),
                                           cut == std::string::npos ? "" : input.substr(cut + 1));
        fuzz::expect(config.layer.size() == config.layers && config.layers > 0, "layers");
        fuzz::expect(config.head_dim % 2 == 0 && config.heads % config.kv_heads == 0, "heads");
        for (const LayerConfig &layer : config.layer) {
            fuzz::expect(layer.rope < config.ropes.size(), "a layer without a rope");
            fuzz::expect(config.head_dim_of(layer) % 2 == 0 &&
                             config.heads % config.kv_heads_of(layer) == 0,
                         "heads of a layer");
            fuzz::expect(layer.own_keys() || (config.layer[layer.keys_of].own_keys() &&
                                              config.layer[layer.keys_of].window == layer.window),
                         "keys of a layer");
        }
        const Recurrent &sizes = config.recurrent;
        const bool grouped = sizes.key_heads == 0 // short convolutions
                             || sizes.value_heads % sizes.key_heads == 0;
        fuzz::expect(sizes.value_heads == 0 || (grouped && sizes.taps > 1 && sizes.value_dim > 0),
                     "recurrent layers");
        fuzz::expect(config.rotary() % 2 == 0 && config.rotary() <= config.head_dim, "rotary");
        fuzz::expect(!describe(config).empty(), "a config without a description");
    } catch (const Error &error) {
        fuzz::check_refusal(error);
    }
    return 0;
}
