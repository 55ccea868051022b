// Recurrent layers in forward passes, without sessions: golden values, and that neither cuts, other
// sequences of a pass, threads nor tables change a bit.
#include <functional>

#include "runtime/model/rope.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const std::string kHybrid = "zoo/qwen3_5-dense";

// Calls change(numbers, i) for the first numbers at a place.
template <typename Change>
void change_numbers(Model &model, const float *place, size_t count, const Change &change) {
    for (std::vector<float> &stored : model.weights.float_storage) {
        if (stored.data() == place) {
            for (size_t i = 0; i < count; ++i) {
                change(stored.data(), i);
            }
        }
    }
}

// Does so in every recurrent layer.
template <typename Change>
void change_layers(Model &model, const float *RecurrentWeights::*place, size_t count,
                   const Change &change) {
    for (LayerWeights &layer : model.weights.layers) {
        if (layer.recurrent.convolution != nullptr) {
            change_numbers(model, layer.recurrent.*place, count, change);
        }
    }
}

// Changes a fresh model.
struct HybridMistake {
    const char *name;
    std::function<void(Model &)> make;
};

void check_hybrid_notices(const std::string &name, std::span<const HybridMistake> mistakes) {
    for (const HybridMistake &mistake : mistakes) {
        const auto model = open_model(directory(name), {});
        mistake.make(*model);
        const Deviation deviation = passed_deviation(*model, name);
        std::printf("mistake %-28s rms %.1f and max %.1f of the tolerance\n", mistake.name,
                    deviation.rms, deviation.max);
        CHECK_MESSAGE(!within(deviation), mistake.name);
    }
}

// Puts copies of the first and the second third of a short convolution's product in each other's
// place. The copies live as long as the process.
void swap_gates(Matrix &product) {
    const size_t third = product.rows / 3 * product.columns;
    static std::vector<std::unique_ptr<std::vector<uint16_t>>> copies;
    copies.push_back(
        std::make_unique<std::vector<uint16_t>>(product.data, product.data + 3 * third));
    std::vector<uint16_t> &copy = *copies.back();
    std::swap_ranges(copy.begin(), copy.begin() + static_cast<ptrdiff_t>(third),
                     copy.begin() + static_cast<ptrdiff_t>(third));
    product.data = copy.data();
}

// Cuts the log in many ways, and computes it by other threads and tables.
void check_alike(const std::string &name) {
    CAPTURE(name);
    const auto model = open(name);
    const std::vector<uint32_t> tokens = tokens_for(*model, 150);
    const PassedLog whole = passed_log(*model, tokens, tokens.size());
    CHECK(whole.state.size() == model->state_size());
    for (const size_t chunk : {1, 2, 3, 4, 7, 64, 100}) {
        CAPTURE(chunk);
        CHECK(same_log(passed_log(*model, tokens, chunk), whole));
        CHECK(same_log(passed_log(*model, tokens, chunk, true), whole));
    }
    for (const size_t threads : {1, 3, 7}) {
        CAPTURE(threads);
        CHECK(same_log(passed_log(*open(name, threads), tokens, 64), whole));
    }
    for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
        if (kernels::find_table(*table) != nullptr) {
            INFO("table: ", *table);
            const auto forced = open_forced(name, *table, 2);
            CHECK(same_log(passed_log(*forced, tokens, 29), whole));
        }
    }
}

// Computes sequences of several lengths in the same passes, and each alone.
void check_together(const std::string &name) {
    CAPTURE(name);
    const auto model = open(name);
    const size_t sizes[] = {1, 5, 64, 33};
    std::vector<PassedLog> alone, together;
    for (uint64_t seed = 0; seed < std::size(sizes); ++seed) {
        const std::vector<uint32_t> tokens = tokens_for(*model, 3 * sizes[seed], seed + 1);
        alone.push_back(passed_log(*model, tokens, tokens.size()));
        together.push_back({*model});
    }
    for (size_t round = 0; round < 3; ++round) {
        std::vector<PassedRows> rows;
        for (size_t i = 0; i < together.size(); ++i) {
            const auto begin = alone[i].tokens.begin() + static_cast<ptrdiff_t>(round * sizes[i]);
            rows.push_back({together[i], {begin, begin + static_cast<ptrdiff_t>(sizes[i])}});
        }
        pass_together(rows);
    }
    for (size_t i = 0; i < together.size(); ++i) {
        CHECK(same_log(together[i], alone[i]));
    }
}

} // namespace

TEST_CASE("recur: logits of a hybrid agree with the golden values") {
    for (const std::string &name : bundled_hybrids()) {
        const Deviation deviation = passed_deviation(*open(name), name);
        std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", name.c_str(),
                    deviation.rms, deviation.max);
        CHECK_MESSAGE(within(deviation), name);
    }
}

TEST_CASE("recur: the golden tolerance notices what a port of a hybrid gets wrong") {
    const HybridMistake mistakes[] = {
        {"value heads tiled", [](Model &m) { m.config.recurrent.tiled = true; }},
        {"rotary over the whole head",
         [](Model &m) {
             m.config.rotary_dim = 0;
             m.rope_frequencies[0] = rope_frequencies(m.config.ropes[0], m.config.head_dim);
         }},
        {"rope base",
         [](Model &m) {
             m.config.ropes[0].base = 1e3;
             m.rope_frequencies[0] = rope_frequencies(m.config.ropes[0], m.config.rotary_dim);
         }},
        {"query and key norm missing",
         [](Model &m) { m.weights.layers[3].query_norm = m.weights.layers[3].key_norm = nullptr; }},
        {"norms without their one",
         [](Model &m) {
             change_numbers(m, m.weights.final_norm, m.config.hidden,
                            [](float *w, size_t i) { w[i] -= 1.0F; });
         }},
        {"gated norm with one",
         [](Model &m) {
             change_layers(m, &RecurrentWeights::norm, m.config.recurrent.value_dim,
                           [](float *w, size_t i) { w[i] += 1.0F; });
         }},
        {"no decay",
         [](Model &m) {
             change_layers(m, &RecurrentWeights::rate, m.config.recurrent.value_heads,
                           [](float *w, size_t i) { w[i] = 0.0F; });
         }},
        {"no dt_bias",
         [](Model &m) {
             change_layers(m, &RecurrentWeights::bias, m.config.recurrent.value_heads,
                           [](float *w, size_t i) { w[i] = 0.0F; });
         }},
        {"taps reversed",
         [](Model &m) {
             const size_t channels = m.config.recurrent.channels();
             change_layers(m, &RecurrentWeights::convolution, 2 * channels,
                           [channels](float *w, size_t i) {
                               const size_t tap = i / channels, other = 3 - tap;
                               std::swap(w[i], w[i + (other - tap) * channels]);
                           });
         }},
    };
    check_hybrid_notices(kHybrid, mistakes);
}

TEST_CASE("recur: the golden tolerance notices what a port of short convolutions gets wrong") {
    // Changes the taps of every convolution, [tap][channel].
    const auto taps = [](Model &m, const std::function<void(float *w, size_t i)> &change) {
        const size_t channels = m.config.recurrent.channels();
        change_layers(m, &RecurrentWeights::convolution, channels, change);
    };
    constexpr size_t kLast = 2 * 64; // of three taps, of 64 channels
    const HybridMistake mistakes[] = {
        {"no convolution",
         [&](Model &m) { taps(m, [](float *w, size_t i) { w[i] = w[i + 64] = 0; }); }},
        {"taps reversed",
         [&](Model &m) { taps(m, [](float *w, size_t i) { std::swap(w[i], w[i + kLast]); }); }},
        {"rope base",
         [](Model &m) {
             m.config.ropes[0].base *= 10;
             m.rope_frequencies[0] = rope_frequencies(m.config.ropes[0], m.config.head_dim);
         }},
        {"query and key norm missing",
         [](Model &m) {
             for (const size_t layer : {2, 4}) {
                 LayerWeights &weights = m.weights.layers[layer];
                 weights.query_norm = weights.key_norm = nullptr;
             }
         }},
        {"B and C swapped",
         [](Model &m) {
             for (LayerWeights &layer : m.weights.layers) {
                 if (layer.recurrent.convolution != nullptr) {
                     swap_gates(layer.recurrent.input);
                 }
             }
         }},
    };
    check_hybrid_notices("zoo/lfm2", mistakes);
}

TEST_CASE("recur: the golden tolerance notices what a port of Mamba-2 gets wrong") {
    // Of one number for each head, or for each channel, in every recurrent layer.
    const auto heads = [](Model &m, const float *RecurrentWeights::*place, float value) {
        change_layers(m, place, m.config.recurrent.value_heads,
                      [value](float *w, size_t i) { w[i] = value; });
    };
    const auto taps = [](Model &m, const std::function<void(float *w, size_t i)> &change) {
        change_layers(m, &RecurrentWeights::convolution, m.config.recurrent.channels(), change);
    };
    constexpr size_t kChannels = 160; // of four taps
    const HybridMistake mistakes[] = {
        {"logits not divided", [](Model &m) { m.config.logits_divisor = 1; }},
        {"embedding multiplier missing", [](Model &m) { m.config.embedding_scale = 1; }},
        {"residual multiplier missing", [](Model &m) { m.config.residual_scale = 1; }},
        {"scale from head_dim", [](Model &m) { m.config.attention_scale = 0.25F; }},
        {"no convolution",
         [&](Model &m) {
             taps(m,
                  [](float *w, size_t i) { w[i] = w[i + kChannels] = w[i + 2 * kChannels] = 0; });
         }},
        {"taps reversed",
         [&](Model &m) {
             taps(m, [](float *w, size_t i) {
                 std::swap(w[i], w[i + 3 * kChannels]);
                 std::swap(w[i + kChannels], w[i + 2 * kChannels]);
             });
         }},
        {"no bias of the convolution",
         [](Model &m) {
             for (LayerWeights &layer : m.weights.layers) {
                 layer.recurrent.convolution_bias = nullptr;
             }
         }},
        {"no dt_bias", [&](Model &m) { heads(m, &RecurrentWeights::bias, 0); }},
        {"no D", [&](Model &m) { heads(m, &RecurrentWeights::skip, 0); }},
        {"no decay", [&](Model &m) { heads(m, &RecurrentWeights::rate, 0); }},
        {"no gain of Mamba's norm",
         [](Model &m) {
             change_layers(m, &RecurrentWeights::norm, m.config.recurrent.value_size(),
                           [](float *w, size_t i) { w[i] = 1; });
         }},
        {"rope",
         [](Model &m) { m.rope_frequencies[0] = rope_frequencies(Rope{1e4}, m.config.head_dim); }},
        {"steps limited", [](Model &m) { m.config.recurrent.step_most = 0.1F; }},
    };
    check_hybrid_notices("zoo/granite4-h", mistakes);
}

TEST_CASE("recur: logits and states do not depend on cuts, threads or tables") {
    for (const std::string &name : bundled_hybrids()) {
        check_alike(name);
    }
}

TEST_CASE("recur: sequences of one pass do not change each other") {
    for (const std::string &name : {kHybrid, std::string("zoo/granite4-h")}) {
        check_together(name);
    }
}
