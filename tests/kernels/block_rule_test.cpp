// C1 against matrix products recorded from AMX hardware (256 cases of 16 x 16 results).
#include "tests/data_files.h"

#include <fstream>
#include <iterator>

#include "runtime/kernels/environment.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

namespace {

struct Recorded {
    uint16_t a[16][32];
    uint16_t b[16][32]; // column n of the right-hand operand, then k
    float c[16][16];
    float result[16][16]; // c + the rule
};
static_assert(sizeof(Recorded) == 4096);

std::vector<Recorded> read_recorded() {
    std::ifstream file(test_data("block_rule_k32.bin"), std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    REQUIRE(bytes.size() == 256 * sizeof(Recorded));
    std::vector<Recorded> cases(256);
    std::memcpy(cases.data(), bytes.data(), bytes.size());
    return cases;
}

} // namespace

TEST_CASE("block rule: equal to the recorded hardware results") {
    const std::vector<Recorded> cases = read_recorded();
    const stasis::kernels::FloatEnvironment environment;
    for_each_table([&](const stasis::kernels::Table &table) {
        for (const Recorded &recorded : cases) {
            float y[16][16];
            table.matmul({&recorded.a[0][0], 32, &recorded.b[0][0], 32, &y[0][0], 16, 16, 16, 32});
            for (size_t i = 0; i < 256; ++i) {
                y[i / 16][i % 16] = recorded.c[i / 16][i % 16] + y[i / 16][i % 16];
            }
            CHECK(std::memcmp(y, recorded.result, sizeof y) == 0);
        }
    });
}

TEST_CASE("block rule: the naive restatement equals the recorded hardware results") {
    for (const Recorded &recorded : read_recorded()) {
        for (size_t m = 0; m < 16; ++m) {
            for (size_t n = 0; n < 16; ++n) {
                const float sum = naive::dot(recorded.a[m], 1, recorded.b[n], 1, 32);
                const float y = recorded.c[m][n] + sum;
                REQUIRE(std::memcmp(&y, &recorded.result[m][n], sizeof y) == 0);
            }
        }
    }
}
