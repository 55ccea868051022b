// How far a model's logits are from its golden values, as shares of the tolerance that comes with
// them (tests/data/README.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/runtime/models.h"
#include "tests/runtime/passes.h"

namespace stasis::test {

struct Deviation {
    double rms = 0, max = 0; // as shares of what the tolerance allows
    size_t wrong_argmax = 0;
};

// `rows`: the logits of each of the golden ids.
inline Deviation deviation_of(const std::vector<std::vector<float>> &rows, const Golden &golden) {
    const size_t n = golden.ids.size(), first = n - golden.kept;
    Deviation result;
    double squares = 0, largest = 0;
    for (size_t row = 0; row < golden.kept; ++row) {
        const float *expected = golden.logits_bf16p.data() + row * golden.vocabulary;
        std::vector<float> sorted(expected, expected + golden.vocabulary);
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        for (size_t i = 0; i < golden.vocabulary; ++i) {
            const double d = double{rows[first + row][i]} - double{expected[i]};
            squares += d * d;
            largest = std::max(largest, std::fabs(d));
        }
        const auto &found = rows[first + row];
        const auto best = std::max_element(found.begin(), found.end()) - found.begin();
        const auto golden_best =
            std::max_element(expected, expected + golden.vocabulary) - expected;
        if (double{sorted[0]} - double{sorted[1]} > 2 * golden.max && best != golden_best) {
            ++result.wrong_argmax;
        }
    }
    const double values = static_cast<double>(golden.kept * golden.vocabulary);
    result.rms = std::sqrt(squares / values) / golden.rms_most;
    result.max = largest / golden.max_most;
    return result;
}

inline Deviation measure(const std::shared_ptr<Model> &model, const Golden &golden) {
    kernels::FloatEnvironment environment;
    Session session(model, {});
    return deviation_of(append_with_logits(session, golden.ids), golden);
}

// The same of passes of the runtime alone, without a session.
inline Deviation passed_deviation(const Model &model, const std::string &name) {
    const Golden values = golden(name);
    return deviation_of(passed_log(model, values.ids, values.ids.size()).logits, values);
}

inline bool within(const Deviation &deviation) {
    return deviation.rms <= 1 && deviation.max <= 1 && deviation.wrong_argmax == 0;
}

} // namespace stasis::test
