// Comparing recurrent states, and naming what differs; see compare_recurrent.h.
#include "format/compare_recurrent.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "format/element_json.h"
#include "format/recurrent.h"

namespace stasis::format {

namespace {

// Names the place of a number in its layer's state.
std::string place_name(const RecurrentShape &shape, uint64_t at) {
    if (at < shape.inputs_size()) {
        return "inputs";
    }
    const uint64_t head = (at - shape.inputs_size()) / (uint64_t{shape.key_dim} * shape.value_dim);
    return "S of value head " + std::to_string(head);
}

// Compares the numbers of the states i and j, whose digests differ.
void compare_numbers(const Snapshot &a, size_t i, const Snapshot &b, size_t j,
                     Difference &difference) {
    const RecurrentShape &shape = a.state().recurrent;
    const size_t count = shape.numbers();
    const auto x = std::make_unique_for_overwrite<uint32_t[]>(count);
    const auto y = std::make_unique_for_overwrite<uint32_t[]>(count);
    a.read_state(i, reinterpret_cast<float *>(x.get()));
    b.read_state(j, reinterpret_cast<float *>(y.get()));
    const auto at =
        static_cast<size_t>(std::mismatch(x.get(), x.get() + count, y.get()).first - x.get());
    if (at == count) {
        return; // as only a collision of digests could have it
    }
    difference.layer = shape.layers[at / shape.state_size()];
    char bits[64];
    snprintf(bits, sizeof bits, ": f32 bits %08x and %08x", x[at], y[at]);
    difference.message += ", " + place_name(shape, at % shape.state_size()) + bits;
}

} // namespace

std::optional<Difference> compare_states(const Snapshot &a, const Snapshot &b) {
    const std::vector<RecurrentState> &x = a.state().states;
    const std::vector<RecurrentState> &y = b.state().states;
    for (size_t i = 0, j = 0; i < x.size() && j < y.size();) { // both ascend
        if (x[i].position != y[j].position) {
            x[i].position < y[j].position ? ++i : ++j;
            continue;
        }
        if (x[i].digest != y[j].digest) {
            Difference difference;
            difference.equal = false;
            difference.element = static_cast<uint32_t>(Element::kv_cache);
            difference.position = x[i].position - 1;
            difference.message = std::string(element_name(Element::kv_cache)) +
                                 ": recurrent states after " + std::to_string(x[i].position) +
                                 " tokens differ";
            if (a.keep() == Keep::full && b.keep() == Keep::full) {
                compare_numbers(a, i, b, j, difference);
            } else {
                difference.message += ", told by their digests";
            }
            return difference;
        }
        ++i, ++j;
    }
    return std::nullopt;
}

} // namespace stasis::format
