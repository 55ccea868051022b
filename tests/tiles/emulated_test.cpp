// Whole models over emulated tiles (test_runtime_tiles): what its other cases say of the best
// table, and of each, is then said of AMX.
#include <string>

#include "runtime/kernels/table.h"
#include "tests/data_files.h"

TEST_CASE("tiles: emulated ones are of the best table") {
    if (stasis::kernels::find_table("avx512bf16") == nullptr) {
        STASIS_SKIP("AMX's kernels need VDPBF16PS besides tiles");
    }
    CHECK(stasis::kernels::best_table().name == std::string("amx"));
}
