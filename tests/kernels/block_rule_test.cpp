// C1 against matrix products recorded from AMX hardware (256 cases of 16 x 16 results).
#include "tests/data_files.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include "runtime/kernels/environment.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"
#include "tests/kernels/soft_float.h"

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

TEST_CASE("matmul: block rule: the naive restatement equals the recorded hardware results") {
    for (const Recorded &recorded : read_recorded()) {
        std::vector<float> y, expected;
        for (size_t m = 0; m < 16; ++m) {
            for (size_t n = 0; n < 16; ++n) {
                const float sum = naive::block(recorded.a[m], 1, recorded.b[n], 1, 32);
                y.push_back(soft::add(recorded.c[m][n], sum));
                expected.push_back(recorded.result[m][n]);
            }
        }
        CHECK(first_difference(y, expected) == -1);
    }
}

// The tables' own c starts at +0 and so is never -0, but the recorded c is in some results, where
// it would show the sign that an empty sum lost: these few are left to the restatement above.
TEST_CASE("matmul: block rule: every table equals the recorded hardware results") {
    const std::vector<Recorded> cases = read_recorded();
    const stasis::kernels::FloatEnvironment environment;
    for_each_table([&](const stasis::kernels::Table &table) {
        size_t compared = 0;
        for (const Recorded &recorded : cases) {
            float sums[16][16];
            multiply(table,
                     {&recorded.a[0][0], 32, &recorded.b[0][0], 32, &sums[0][0], 16, 16, 16, 32});
            std::vector<float> y, expected;
            for (size_t i = 0; i < 256; ++i) {
                const float c = recorded.c[i / 16][i % 16];
                const float sum = sums[i / 16][i % 16];
                if (!std::signbit(c) || c != 0.0F || sum != 0.0F) { // a denormal equals zero here
                    y.push_back(c + sum);
                    expected.push_back(recorded.result[i / 16][i % 16]);
                }
            }
            compared += y.size();
            CHECK(first_difference(y, expected) == -1);
        }
        CHECK(compared > 256 * 256 * 98 / 100);
    });
}
