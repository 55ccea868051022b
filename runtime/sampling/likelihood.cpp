// Computes log-probabilities; see likelihood.h.
#include "runtime/sampling/likelihood.h"

#include <algorithm>

#include "runtime/kernels/math.h"
#include "runtime/sampling/lanes.h"

namespace stasis {
namespace {

using Tokens = std::vector<std::pair<uint32_t, float>>;

// Keeps the n best in a heap whose front is the worst of them, so a row costs one comparison for
// nearly every token.
void find_best(std::span<const float> logits, size_t n, Tokens &tokens) {
    const auto better = [](const auto &a, const auto &b) {
        return a.second > b.second || (a.second == b.second && a.first < b.first);
    };
    tokens.clear();
    tokens.reserve(std::min(n, logits.size()));
    for (uint32_t token = 0; token < logits.size() && n > 0; ++token) {
        const std::pair<uint32_t, float> next{token, logits[token]};
        if (tokens.size() == n && !better(next, tokens.front())) {
            // Nearly every token takes this branch.
            continue;
        }
        if (tokens.size() == n) {
            std::pop_heap(tokens.begin(), tokens.end(), better);
            tokens.pop_back();
        }
        tokens.push_back(next);
        std::push_heap(tokens.begin(), tokens.end(), better);
    }
    std::sort_heap(tokens.begin(), tokens.end(), better);
}

} // namespace

std::vector<std::pair<uint32_t, float>> best(std::span<const float> logits, size_t n) {
    Tokens tokens;
    find_best(logits, n, tokens);
    return tokens;
}

double log_sum_exp(std::span<const float> logits) {
    const double max = *std::max_element(logits.begin(), logits.end());
    Lanes lanes{}; // C4: lane j takes the elements i with i mod 16 = j
    for (size_t i = 0; i < logits.size(); ++i) {
        lanes[i % 16] += kernels::exp_f64(static_cast<double>(logits[i]) - max);
    }
    return max + kernels::log_f64(sum_of(lanes));
}

void log_probabilities(std::span<const float> logits, size_t n, uint32_t token,
                       LogProbabilities &into) {
    const double total = log_sum_exp(logits);
    const auto of = [total](float logit) { return static_cast<float>(double{logit} - total); };
    find_best(logits, n, into.heap);
    into.best_tokens.clear();
    into.best.clear();
    into.best_tokens.reserve(into.heap.size());
    into.best.reserve(into.heap.size());
    for (const auto &[best_token, logit] : into.heap) {
        into.best_tokens.push_back(best_token);
        into.best.push_back(of(logit));
    }
    into.token = of(logits[token]);
}

} // namespace stasis
