// Mixtures of experts: golden values and what they notice, the order of experts, and that who else
// is computed beside a row changes none of its bits.
#include <cmath>
#include <functional>

#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const std::string kMixture = "zoo/qwen3-moe", kShared = "zoo/qwen3_5-moe", kSinks = "zoo/gpt-oss";

struct ExpertMistake {
    const char *name;
    std::string model;
    std::function<void(Model &)> make;
};

// Changes the experts of every layer.
void change_experts(Model &model, const std::function<void(ExpertWeights &)> &change) {
    for (LayerWeights &layer : model.weights.layers) {
        change(layer.experts);
    }
}

// Gives every layer a router of its own numbers, [count][hidden] bf16, which `router` keeps.
void set_router(Model &model, std::vector<uint16_t> &router, std::vector<uint16_t> numbers) {
    router = std::move(numbers);
    change_experts(model, [&](ExpertWeights &experts) { experts.router.data = router.data(); });
}

void swap_parts(ExpertWeights &experts) {
    for (Mlp &expert : experts.each) {
        std::swap(expert.gate, expert.up);
    }
}

} // namespace

TEST_CASE("experts: the golden tolerance notices what a port of a mixture gets wrong") {
    const ExpertMistake mistakes[] = {
        {"one expert less", kMixture, [](Model &m) { --m.config.experts.chosen; }},
        {"not renormalised", kMixture, [](Model &m) { m.config.experts.renormalised = false; }},
        {"gate and up swapped", kMixture, [](Model &m) { change_experts(m, swap_parts); }},
        {"experts one on", kMixture,
         [](Model &m) {
             change_experts(m, [](ExpertWeights &experts) {
                 std::rotate(experts.each.begin(), experts.each.begin() + 1, experts.each.end());
             });
         }},
        {"one expert less, shared", kShared, [](Model &m) { --m.config.experts.chosen; }},
        {"no shared expert", kShared, [](Model &m) { m.config.experts.shared = 0; }},
        {"not renormalised, shared", kShared,
         [](Model &m) { m.config.experts.renormalised = false; }},
        {"shared gate of another", kShared,
         [](Model &m) {
             change_experts(
                 m, [](ExpertWeights &experts) { experts.shared_gate.data = experts.router.data; });
         }},
    };
    for (const ExpertMistake &mistake : mistakes) {
        const auto model = open_model(directory(mistake.model), {});
        CHECK(within(passed_deviation(*model, mistake.model)));
        mistake.make(*model);
        const Deviation deviation = passed_deviation(*model, mistake.model);
        std::printf("mistake %-28s rms %.1f and max %.1f of the tolerance\n", mistake.name,
                    deviation.rms, deviation.max);
        CHECK_MESSAGE(!within(deviation), mistake.name);
    }
}

// All logits of the router are zero, so that the order of the experts decides alone.
TEST_CASE("experts: of equal logits those with the lower index are chosen") {
    const auto model = open_model(directory(kMixture), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 70);
    const size_t size = size_t{model->config.experts.count} * model->config.hidden;
    std::vector<uint16_t> router;
    set_router(*model, router, std::vector<uint16_t>(size));
    const PassedLog plain = passed_log(*model, tokens, 64);
    const auto moved = [&](size_t first, size_t second) {
        change_experts(*model, [&](ExpertWeights &experts) {
            std::swap(experts.each[first], experts.each[second]);
        });
        const bool same = same_log(passed_log(*model, tokens, 64), plain);
        change_experts(*model, [&](ExpertWeights &experts) {
            std::swap(experts.each[first], experts.each[second]);
        });
        return !same;
    };
    CHECK(model->config.experts.chosen == 2);
    CHECK(!moved(2, 7)); // neither is chosen
    CHECK(!moved(3, 5));
    CHECK(moved(1, 2));
    CHECK(moved(0, 7));
}

// With every expert chosen, and each the same, the shares add up to about one.
TEST_CASE("experts: shares are a softmax over all experts, and renormalised ones add up to one") {
    const std::vector<uint32_t> tokens = tokens_for(*open(kMixture), 40);
    const auto logits_with = [&](uint32_t chosen, bool renormalised) {
        const auto model = open_model(directory(kMixture), {});
        change_experts(*model, [](ExpertWeights &experts) {
            std::fill(experts.each.begin() + 1, experts.each.end(), experts.each.front());
        });
        model->config.experts.chosen = chosen;
        model->config.experts.renormalised = renormalised;
        return passed_log(*model, tokens, 64).logits;
    };
    const auto far = [](const auto &a, const auto &b) {
        float most = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            for (size_t j = 0; j < a[i].size(); ++j) {
                most = std::max(most, std::abs(a[i][j] - b[i][j]));
            }
        }
        return most;
    };
    const auto one = logits_with(1, true);
    CHECK(far(logits_with(2, true), one) < 0.2F);
    const uint32_t all = open(kMixture)->config.experts.count;
    CHECK(far(logits_with(all, false), one) < 0.2F); // all shares of a softmax
    CHECK(far(logits_with(1, false), one) > 0.5F);
}

TEST_CASE("experts: a row's bits do not depend on the rows beside it, cuts, threads or tables") {
    for (const std::string &name : {kMixture, kShared, kSinks}) {
        CAPTURE(name);
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 600); // two slices of rows
        const PassedLog whole = passed_log(*model, tokens, tokens.size());
        for (const size_t chunk : {1, 2, 5, 64, 513}) {
            CAPTURE(chunk);
            CHECK(same_log(passed_log(*model, tokens, chunk), whole));
        }
        for (const size_t threads : {1, 3, 7}) {
            CAPTURE(threads);
            CHECK(same_log(passed_log(*open(name, threads), tokens, 100), whole));
        }
        for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
            if (kernels::find_table(*table) != nullptr) {
                INFO("table: ", *table);
                CHECK(same_log(passed_log(*open_forced(name, *table, 2), tokens, 290), whole));
            }
        }
    }
}

TEST_CASE("experts: a router's logit that is not finite fails the append, by layer and position") {
    const auto model = open_model(directory(kMixture), {});
    std::vector<uint16_t> router;
    const size_t size = size_t{model->config.experts.count} * model->config.hidden;
    set_router(*model, router, std::vector<uint16_t>(size, 0x7F00)); // 2^127 each
    Session session(model, {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 5);
    try {
        session.append(tokens, {});
        FAIL_CHECK("logits of 2^127 and more were accepted");
    } catch (const Error &error) {
        CHECK(error.status() == Status::nonfinite);
        CHECK(std::string(error.what()).find("router's logit in layer 0 at position 0") !=
              std::string::npos);
    }
    CHECK(session.position() == 0);
}
