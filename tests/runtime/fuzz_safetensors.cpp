// Any bytes given to the safetensors parser end in tensors within them, or in an Error.
#include <cstddef>
#include <cstdint>

#include "format/error.h"
#include "runtime/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    stasis::Checkpoint checkpoint;
    try {
        stasis::parse_safetensors(data, size, "fuzz", checkpoint);
    } catch (const stasis::Error &) {
        return 0;
    }
    unsigned sum = 0;
    for (const auto &[name, tensor] : checkpoint.tensors) {
        for (size_t i = 0; i < tensor.size_bytes; ++i) {
            sum += tensor.data[i]; // the address sanitizer watches
        }
    }
    return sum == 0xFFFFFFFFU ? -1 : 0;
}
