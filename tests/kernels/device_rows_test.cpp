// The device's kernels that take a row at a time, against the reference's.
#include "runtime/kernels/environment.h"
#include "tests/device/under_test.h"
#include "tests/kernels/inputs.h"

using stasis::kernels::DeviceResidual;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::Table;
using under_test::There;

TEST_CASE("device: the residual stream and its norms equal the reference") {
    Numbers numbers(1);
    const Table &reference = stasis::kernels::reference_table();
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const size_t hidden : {1, 16, 67, 256, 640}) {
            const Kind kind = kKinds[numbers.below(6)];
            const size_t rows = 3;
            const std::vector<float> wide = numbers.floats(rows * hidden, kind);
            const std::vector<float> stream = numbers.floats(rows * hidden, kind);
            const std::vector<float> norm = numbers.floats(hidden, kind);
            There<float> there_stream(on, stream);
            const There<float> there_wide(on, wide), there_norm(on, norm);
            const There<uint16_t> narrow(on, rows * hidden);
            DeviceResidual task;
            task.rows = rows, task.hidden = hidden, task.eps = 1e-6F;
            task.wide = there_wide.get(), task.stream = there_stream.get();
            task.norm = there_norm.get(), task.narrow = narrow.get();
            on.table.residual(on.queue, task);
            on.finish();
            std::vector<float> expected = stream, normed(hidden);
            std::vector<uint16_t> rounded(rows * hidden);
            const FloatEnvironment environment;
            for (size_t r = 0; r < rows; ++r) {
                float *row = expected.data() + r * hidden;
                reference.add(wide.data() + r * hidden, hidden, row);
                reference.rms_norm(row, norm.data(), hidden, 1e-6F, normed.data());
                reference.round_bf16(normed.data(), hidden, rounded.data() + r * hidden);
            }
            CHECK(first_difference(there_stream.values(), expected) == -1);
            CHECK(first_difference(narrow.values(), rounded) == -1);
        }
    });
}
