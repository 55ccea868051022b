// Steps of several sessions give each the bits that it gives alone, whichever sessions take part; a
// failure of one does not affect the others.
#include <atomic>
#include <random>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/forward.h"
#include "runtime/compute/pass.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// A session and its twin, which does everything alone.
struct StepPair {
    std::unique_ptr<Session> together, alone;
};

bool equal(const StepPair &pair) {
    return pair.together->position() == pair.alone->position() &&
           pair.together->digest() == pair.alone->digest() &&
           same_bits(pair.together->logits(), pair.alone->logits());
}

Sampling sampling_of(std::mt19937 &random) {
    Sampling sampling;
    sampling.seed = random();
    sampling.temperature = random() % 2 == 0 ? 0.0F : 0.9F;
    sampling.repetition_penalty = random() % 3 == 0 ? 1.2F : 1.0F;
    return sampling;
}

StepPair pair_of(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens,
                 const Sampling &sampling) {
    StepPair pair{std::make_unique<Session>(model, TimelineOptions()),
                  std::make_unique<Session>(model, TimelineOptions())};
    for (Session *session : {pair.together.get(), pair.alone.get()}) {
        session->set_sampling(sampling);
        session->append(tokens, {});
    }
    return pair;
}

// One step of some pairs at random: drawing, appending a few or many tokens, both, or nothing.
void random_step(std::vector<StepPair> &pairs, std::mt19937 &random, size_t chunk) {
    std::vector<StepItem> items;
    std::vector<std::vector<uint32_t>> given(pairs.size());
    std::vector<StepPair *> of;
    const uint32_t vocabulary = pairs[0].alone->model()->config.vocabulary;
    for (size_t i = 0; i < pairs.size(); ++i) {
        if (random() % 4 == 0) {
            continue;
        }
        constexpr size_t kCounts[] = {0, 0, 0, 1, 3, 4, 5, 17, 70, 130};
        const size_t count = kCounts[random() % std::size(kCounts)];
        for (size_t k = 0; k < count; ++k) {
            given[i].push_back(static_cast<uint32_t>(random() % vocabulary));
        }
        items.push_back({pairs[i].together.get(), given[i], count == 0 || random() % 3 == 0});
        of.push_back(&pairs[i]);
    }
    AppendOptions options;
    options.chunk = chunk;
    run_step(items, options);
    for (size_t i = 0; i < items.size(); ++i) {
        REQUIRE(items[i].error == nullptr);
        of[i]->alone->append(items[i].tokens, {});
        if (items[i].sample) {
            REQUIRE(items[i].token == of[i]->alone->decode());
        }
    }
}

} // namespace

TEST_CASE("step: steps of several sessions equal the same done alone, forks among them") {
    const kernels::FloatEnvironment environment;
    for (const char *name :
         {"zoo/gemma3-text", "zoo/mistral-window", "zoo/llama-odd-sizes-f32", "quantized/llama",
          "quantized/gemma3-tied", "zoo/qwen3_5-dense", "zoo/lfm2", "zoo/granite4-h"}) {
        for (const size_t chunk : {0, 3, 50}) {
            CAPTURE(name);
            CAPTURE(chunk);
            const auto model = open(name);
            std::mt19937 random(static_cast<unsigned>(chunk + 7));
            const std::vector<uint32_t> tokens = tokens_for(*model, 150);
            std::vector<StepPair> pairs;
            for (const size_t length : {1, 63, 64, 65, 150}) {
                pairs.push_back(
                    pair_of(model, std::span(tokens).first(length), sampling_of(random)));
            }
            for (int round = 0; round < 12; ++round) {
                if (round % 4 == 1) { // forks share full pages and one that is not
                    const StepPair &parent = pairs[random() % pairs.size()];
                    StepPair child{parent.together->fork(), parent.alone->fork()};
                    const Sampling sampling = sampling_of(random);
                    child.together->set_sampling(sampling);
                    child.alone->set_sampling(sampling);
                    pairs.push_back(std::move(child));
                }
                random_step(pairs, random, chunk);
            }
            for (const StepPair &pair : pairs) {
                CHECK(equal(pair));
            }
        }
    }
}

TEST_CASE("step: what one session of a step meets leaves the others alone") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-odd-sizes-f32");
    const std::vector<uint32_t> tokens = tokens_for(*model, 80);
    TimelineOptions small;
    small.capacity = 81;
    Session full(model, small), empty(model, {}), biased(model, {}), well(model, {});
    for (Session *session : {&full, &biased, &well}) {
        session->append(tokens, {});
    }
    Sampling none;
    for (uint32_t token = 0; token < model->config.vocabulary; ++token) {
        none.bias.emplace_back(token, -std::numeric_limits<float>::infinity());
    }
    biased.set_sampling(none);
    const Digest before[] = {full.digest(), biased.digest()};
    const std::vector<uint32_t> more = {1, 2, 3}, unknown = {1, model->config.vocabulary};
    Session strange(model, {});
    std::vector<StepItem> items = {{&full, more, true},
                                   {&empty, {}, true},
                                   {&biased, {}, true},
                                   {&well, more, true},
                                   {&strange, unknown, false}};
    run_step(items, {});
    const auto status = [](const StepItem &item) {
        try {
            std::rethrow_exception(item.error);
        } catch (const Error &error) {
            return error.status();
        }
    };
    CHECK(status(items[0]) == Status::full);
    CHECK(status(items[1]) == Status::not_found);
    CHECK(status(items[2]) == Status::invalid_argument);
    CHECK(status(items[4]) == Status::invalid_argument);
    REQUIRE(items[3].error == nullptr);
    CHECK(full.digest() == before[0]);
    CHECK(biased.digest() == before[1]);
    CHECK(empty.position() == 0);
    CHECK(strange.position() == 0);
    Session alone(model, {});
    alone.append(tokens, {});
    alone.append(more, {});
    CHECK(alone.decode() == items[3].token);
    CHECK(alone.digest() == well.digest());

    std::vector<StepItem> twice = {{&well, more, false}, {&well, more, false}};
    expect_error(Status::invalid_argument, {"twice"}, [&] { check_step(twice); });
    const auto other = open("zoo/gemma3-text");
    Session foreign(other, {});
    std::vector<StepItem> two = {{&well, more, false}, {&foreign, more, false}};
    expect_error(Status::invalid_argument, {"different models"}, [&] { check_step(two); });
    CHECK(alone.digest() == well.digest());
}

TEST_CASE("step: sessions that decode read a page that they share once") {
    const auto model = open("zoo/llama-odd-sizes-f32");
    PassLease pass(*model);
    uint16_t pages[6] = {}; // only their addresses matter
    // Three forks after two full pages, two of them with the last page in common as well; a
    // stranger; one of many rows.
    const std::vector<uint16_t *> seen[] = {{&pages[0], &pages[1], &pages[2]},
                                            {&pages[0], &pages[1], &pages[3]},
                                            {&pages[0], &pages[1], &pages[2]},
                                            {&pages[4]},
                                            {&pages[5]}};
    const uint64_t begins[] = {130, 140, 135, 10, 0};
    const size_t rows[] = {1, 2, 1, 4, 40};
    pass->clear();
    for (size_t i = 0; i < 5; ++i) {
        pass->add_sequence(begins[i], rows[i], model->groups.size()).pages[0].data = seen[i];
    }
    REQUIRE(model->groups.size() == 1);
    plan_attention(*pass);
    const BlockPlan &plan = pass->cpu->attention.groups[0];
    size_t tiled = 0;
    for (const RowTile &tile : pass->cpu->attention.tiles[0].tiles) {
        CHECK(tile.sequence == 4);
        CHECK(tile.row == tiled);
        CHECK(tile.count <= pass->cpu->attention.tiles[0].rows);
        tiled += tile.count;
    }
    CHECK(tiled == 40);
    CHECK(plan.reads.size() == 5);
    CHECK(plan.partials == 2 * 4 + 4 + 2 + 2); // rows of those that read each
    CHECK(plan.readers.size() == 4);
    CHECK(plan.rows.size() == 8);
}

TEST_CASE("step: a request to cancel ends a pass before its next layer") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-odd-sizes-f32");
    REQUIRE(model->groups.size() == 1);
    const PageRef page = model->pool->take(0);
    auto *numbers = reinterpret_cast<uint16_t *>(page.address());
    PassLease pass(*model);
    pass->fit(3);
    pass->clear();
    pass->tokens = {1, 2, 3};
    pass->add_sequence(0, 3, 1).pages[0] = {0, {numbers}};
    std::atomic<bool> cancel{false};
    const Watch watch{&cancel};
    forward(*pass, watch, 5, 7);
    const std::vector<uint16_t> written(numbers, numbers + 8);
    CHECK(written != std::vector<uint16_t>(8));
    cancel = true;
    std::fill_n(numbers, 8, uint16_t{0});
    expect_error(Status::cancelled, {"5 of 7"}, [&] { forward(*pass, watch, 5, 7); });
    CHECK(std::vector<uint16_t>(numbers, numbers + 8) == std::vector<uint16_t>(8));
}

TEST_CASE("step: what is not finite fails those of a step that it fails alone") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(test_data("zoo/llama-gqa-untied"), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 60);
    std::vector<float> norm(model->weights.final_norm,
                            model->weights.final_norm + model->config.hidden);
    size_t failures = 0, successes = 0;
    for (const float weight : {1e37F, 1e38F, 2e38F, 3e38F}) {
        norm[0] = weight;
        model->weights.final_norm = norm.data();
        std::vector<std::unique_ptr<Session>> sessions;
        std::vector<StepItem> items;
        for (size_t i = 0; i < tokens.size(); i += 3) {
            sessions.push_back(std::make_unique<Session>(model, TimelineOptions()));
            items.push_back({sessions.back().get(), std::span(tokens).subspan(i, 1 + i % 2)});
        }
        run_step(items, {});
        for (size_t i = 0; i < items.size(); ++i) {
            Session alone(model, {});
            bool failed = false;
            try {
                alone.append(items[i].tokens, {});
            } catch (const Error &error) {
                failed = error.status() == Status::nonfinite;
            }
            REQUIRE(failed == (items[i].error != nullptr));
            REQUIRE(alone.position() == sessions[i]->position());
            REQUIRE(alone.digest() == sessions[i]->digest());
            ++(failed ? failures : successes);
        }
    }
    CHECK(failures > 0);
    CHECK(successes > 0);
}

TEST_CASE("step: a step that is stopped leaves what is not complete as it was") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/mistral-window");
    const std::vector<uint32_t> tokens = tokens_for(*model, 200);
    Session short_one(model, {}), long_one(model, {});
    short_one.append(std::span(tokens).first(20), {});
    long_one.append(std::span(tokens).first(20), {});
    const Digest before = long_one.digest();
    std::vector<StepItem> items = {{&short_one, std::span(tokens).first(5), false},
                                   {&long_one, std::span(tokens).first(150), false}};
    AppendOptions options;
    options.chunk = 40;
    options.watch.progress = [](void *, uint64_t done, uint64_t) { return done < 100; };
    run_step(items, options);
    CHECK(items[0].error == nullptr);
    CHECK(short_one.position() == 25);
    CHECK(items[1].error != nullptr);
    CHECK(long_one.digest() == before);
}
