// Drawing on the device (C7) gives the token that the host's sampler gives, whatever the settings.
#include <cfloat>
#include <random>

#include "runtime/kernels/environment.h"
#include "runtime/sampling/sampling.h"
#include "tests/device/under_test.h"
#include "tests/share.h"

using namespace stasis;
using kernels::DeviceDraw;
using kernels::DeviceRow;
using kernels::DeviceSampler;
using under_test::There;

namespace {

constexpr size_t kSteps = 4, kHidden = 5;

// Rows of logits that are hard on an order: spread, equal, nearly equal, far apart, huge.
std::vector<float> make_row(std::mt19937 &random, size_t vocabulary, int kind) {
    std::vector<float> row(vocabulary);
    for (float &logit : row) {
        const auto noise = static_cast<float>(random() % 2000001) / 1e6F - 1.0F;
        const float grains = static_cast<float>(random() % 5);
        logit = kind == 0   ? 10.0F * noise
                : kind == 1 ? 1.5F
                : kind == 2 ? grains / 16.0F
                : kind == 3 ? 40.0F * noise
                : kind == 4 ? (random() % 2 == 0 ? 0.0F : -0.0F)
                : kind == 5 ? noise * 1e38F
                            : 1.0F + noise * 1e-6F;
    }
    return row;
}

Sampling settings(std::mt19937 &random) {
    const auto any = [&](auto... of) {
        const float values[] = {static_cast<float>(of)...};
        return values[random() % sizeof...(of)];
    };
    Sampling sampling;
    sampling.seed = random();
    sampling.temperature = any(0, 0.01, 0.7, 1, 1, 3, 1e-30);
    sampling.top_k = static_cast<uint32_t>(any(0, 0, 1, 2, 40, 100000));
    sampling.top_p = any(1, 1, 0.9, 0.5, 0.001, 0);
    sampling.min_p = any(0, 0, 0.05, 0.5, 1);
    return sampling;
}

DeviceSampler there_of(const Sampling &sampling) {
    return {sampling.temperature, sampling.top_k, static_cast<uint64_t>(sampling.top_p * 0x1p32F),
            static_cast<uint64_t>(sampling.min_p * 0x1p40F)};
}

// Draws kSteps tokens of a row after position 99, and compares.
void check_draws(const under_test::Opened &on, const std::vector<float> &row,
                 const Sampling &sampling, int i, SamplingScratch &scratch) {
    std::vector<uint64_t> draws;
    for (uint64_t position = 100; position < 100 + kSteps; ++position) {
        draws.push_back(random_bits(sampling.seed, position));
    }
    draws[0] = i % 3 == 0 ? 0 : i % 3 == 1 ? UINT64_MAX : draws[0];
    const There<uint32_t> step(on, 1), tokens(on, kSteps), failures(on, kSteps);
    const There<uint16_t> hidden(on, std::vector<uint16_t>(kHidden, 7)),
        hiddens(on, kSteps * kHidden);
    const There<float> logits(on, row);
    const There<uint8_t> room(on, kernels::draw_room_bytes(row.size()));
    const There<DeviceSampler> sampler(on, std::vector<DeviceSampler>{there_of(sampling)});
    const There<uint64_t> bits(on, draws);
    const There<DeviceRow> at(on, std::vector<DeviceRow>{{99, 3, 0}});
    const There<uint32_t> failed(on, std::vector<uint32_t>{UINT32_MAX});
    on.table.clear(on.queue, step.get(), 1, sizeof(uint32_t), 0);
    DeviceDraw task;
    task.logits = logits.get(), task.vocabulary = row.size(), task.room = room.get();
    task.hidden = hidden.get(), task.hidden_size = kHidden;
    task.sampler = sampler.get(), task.random = bits.get(), task.row = at.get();
    task.failed = failed.get(), task.step = step.get(), task.tokens = tokens.get();
    task.failures = failures.get(), task.hiddens = hiddens.get();
    for (size_t k = 0; k < kSteps; ++k) {
        on.table.draw(on.queue, task);
    }
    const std::vector<uint32_t> drawn = tokens.values();
    const kernels::FloatEnvironment environment;
    INFO("row ", i, " of ", row.size(), ", temperature ", sampling.temperature, ", top_k ",
         sampling.top_k, ", top_p ", sampling.top_p, ", min_p ", sampling.min_p);
    for (size_t k = i % 3 == 2 ? 0 : 1; k < kSteps; ++k) {
        CHECK(drawn[k] == sample(row, sampling, 100 + k, {}, scratch));
    }
    const DeviceRow after = at.values()[0];
    CHECK(after.position == 99 + kSteps);
    CHECK(after.token == drawn[kSteps - 1]);
    CHECK(step.values()[0] == kSteps);
    CHECK(failures.values() == std::vector<uint32_t>(kSteps, UINT32_MAX));
    CHECK(hiddens.values() == std::vector<uint16_t>(kSteps * kHidden, 7));
}

} // namespace

TEST_CASE("device: draws equal the host's, for every kind of row and settings") {
    std::mt19937 random(20);
    SamplingScratch scratch;
    const under_test::Opened on(under_test::each_module());
    for (int i = 0; i < (stasis::test::kSanitized ? 28 : 140); ++i) {
        const size_t sizes[] = {1, 2, 31, 300, 1024, 2500};
        const size_t vocabulary = sizes[random() % 6];
        const std::vector<float> row = make_row(random, vocabulary, i % 7);
        check_draws(on, row, settings(random), i, scratch);
    }
}

// Rows of many blocks of threads, full or not, and of more blocks than hold one stretch each; steps
// with more candidates than shared memory can hold, and with fewer.
TEST_CASE("device: draws of large vocabularies equal the host's") {
    std::mt19937 random(21);
    SamplingScratch scratch;
    const under_test::Opened on(under_test::each_module());
    const size_t sizes[] = {2048, 2049, 32003, 128256, 262144, 262145};
    const int kinds[] = {0, 3, 2, 0, 0, 6};
    for (int i = 0; i < 6; ++i) {
        Sampling sampling;
        sampling.seed = random();
        sampling.temperature = 0.8F;
        sampling.top_k = i % 2 == 0 ? 0 : 5000;
        sampling.top_p = i % 3 == 0 ? 1.0F : 0.9F;
        sampling.min_p = i == 4 ? 0.001F : 0.0F;
        check_draws(on, make_row(random, sizes[i], kinds[i]), sampling, i, scratch);
    }
}

TEST_CASE("device: a logit that is not finite, or a row that failed, is told of its draw") {
    const under_test::Opened on(host_module::table());
    for (const int kind : {0, 1}) {
        std::vector<float> row(100, 1.0F);
        row[60] = kind == 0 ? FLT_MAX : 2.0F; // rounds to infinity in bf16
        const There<float> logits(on, row);
        const There<uint8_t> room(on, kernels::draw_room_bytes(100));
        const There<DeviceSampler> sampler(on, std::vector<DeviceSampler>(1));
        const There<uint64_t> bits(on, std::vector<uint64_t>{5});
        const There<DeviceRow> at(on, std::vector<DeviceRow>(1));
        const There<uint32_t> failed(on, std::vector<uint32_t>{kind == 0 ? UINT32_MAX : 3U});
        const There<uint32_t> step(on, std::vector<uint32_t>{0}), tokens(on, 1), failures(on, 1);
        const There<uint16_t> hidden(on, 1), hiddens(on, 1);
        DeviceDraw task{logits.get(),
                        100,
                        room.get(),
                        hidden.get(),
                        1,
                        sampler.get(),
                        bits.get(),
                        at.get(),
                        failed.get(),
                        step.get(),
                        tokens.get(),
                        failures.get(),
                        hiddens.get()};
        on.table.draw(on.queue, task);
        CHECK(failures.values()[0] == (kind == 0 ? 0 : 3));
        CHECK(failed.values()[0] == UINT32_MAX);
    }
}
