// Settings of drawn tokens: found again among tens of thousands, without a look at all of them.
#include <doctest/doctest.h>

#include <ctime>

#include "runtime/session/settings.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Sets of one length, which differ at their ends.
Sampling with_set(size_t index) {
    Sampling sampling;
    std::string bytes(300, '\1');
    for (size_t i = 0; i < 4; ++i) {
        bytes[bytes.size() - 1 - i] = static_cast<char>(index >> 8 * i);
    }
    sampling.v3.allowed.value = std::make_shared<const std::string>(bytes);
    return sampling;
}

} // namespace

TEST_CASE("Settings::index_of_sampling: settings are found again, those of a load and new ones") {
    const auto model = open("zoo/llama-gqa-untied");
    TokenLog log(*model->log_nodes);
    Settings settings;
    for (size_t i = 0; i < 300; ++i) {
        settings.samplings.push_back(with_set(i)); // as a load sets them
    }
    for (const size_t i : {299, 0, 17, 300, 301, 300, 18}) {
        settings.sampling = with_set(i);
        CHECK(settings.index_of_sampling(log) == i);
    }
    CHECK(settings.samplings.size() == 302);
    settings.sampling.seed = 3; // the set alone is not enough
    CHECK(settings.index_of_sampling(log) == 302);
    settings.sampling.temperature = -0.0F; // which is equal to 0
    CHECK(settings.samplings[settings.index_of_sampling(log)] == settings.sampling);
    const Settings fork = settings;
    settings.samplings.clear(); // as a rewind to 0 does
    settings.sampling = with_set(7);
    CHECK(settings.index_of_sampling(log) == 0);
    settings.sampling = with_set(8);
    CHECK(settings.index_of_sampling(log) == 1);
    settings.sampling = with_set(7);
    CHECK(settings.index_of_sampling(log) == 0);
    Settings copy = fork;
    copy.sampling = with_set(301);
    CHECK(copy.index_of_sampling(log) == 301);
}

TEST_CASE("Settings::index_of_sampling: settings of many tokens take time in proportion") {
    const auto model = open("zoo/llama-gqa-untied");
    TokenLog log(*model->log_nodes);
    const auto seconds = [&](size_t count) {
        double least = 1e9;
        for (int round = 0; round < 2; ++round) {
            Settings settings;
            const double begin = cpu_seconds();
            for (size_t i = 0; i < count; ++i) {
                settings.sampling = with_set(i);
                REQUIRE(settings.index_of_sampling(log) == i);
            }
            least = std::min(least, cpu_seconds() - begin);
        }
        return least;
    };
    const double few = seconds(8000), many = seconds(64000);
    CAPTURE(few);
    CAPTURE(many);
    CHECK(many < 3 * 8 * few + 0.05);
}
