// Any text given to the config parser ends in a Config with sizes in range, or in an Error. The
// input is config.json and, after a zero byte, generation_config.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "format/error.h"
#include "runtime/checkpoint/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string input(reinterpret_cast<const char *>(data), size);
    const size_t cut = input.find('\0');
    try {
        const stasis::Config config = stasis::parse_config(
            input.substr(0, cut), cut == std::string::npos ? "" : input.substr(cut + 1));
        const bool sound = config.layer.size() == config.layers && config.head_dim % 2 == 0 &&
                           config.heads % config.kv_heads == 0 && !config.ropes.empty() &&
                           !stasis::describe(config).empty();
        if (!sound) {
            std::abort();
        }
    } catch (const stasis::Error &) {
    }
    return 0;
}
