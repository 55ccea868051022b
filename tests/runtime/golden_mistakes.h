// Mistakes that a port of an architecture may make, planted in an open model, and the proof that
// the golden tolerance notices each.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <span>

#include "runtime/model/rope.h"
#include "tests/runtime/golden_deviation.h"

namespace stasis::test {

struct Mistake {
    const char *name, *model;
    std::function<void(Model &)> make;
};

inline void change_rope(Model &model, size_t index, const std::function<void(Rope &)> &change) {
    change(model.config.ropes[index]);
    const Rope &rope = model.config.ropes[index];
    model.rope_frequencies[index] = rope_frequencies(rope, model.config.rotary_of(rope));
}

inline void change_windows(Model &model, const std::function<uint32_t(uint32_t)> &change) {
    for (LayerConfig &layer : model.config.layer) {
        layer.window = change(layer.window);
    }
    for (LayerGroup &group : model.groups) { // by which pages are named and released
        group.window = change(group.window);
    }
}

inline void check_noticed(std::span<const Mistake> mistakes) {
    for (const Mistake &mistake : mistakes) {
        const std::shared_ptr<Model> model = open_model(directory(mistake.model), {});
        mistake.make(*model);
        const Deviation deviation = measure(model, golden(mistake.model));
        std::printf("mistake %-28s rms %.1f and max %.1f of the tolerance\n", mistake.name,
                    deviation.rms, deviation.max);
        CHECK_MESSAGE(!within(deviation), mistake.name);
    }
}

} // namespace stasis::test
