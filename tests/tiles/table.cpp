// See emulated.h.
#include "tests/tiles/emulated.h"

#ifdef STASIS_EMULATED_AMX
namespace stasis::kernels::amx_emulated {

void add_kernels(Table &table);

} // namespace stasis::kernels::amx_emulated
#endif

namespace stasis::test {

const kernels::Table *emulated_amx() {
#ifdef STASIS_EMULATED_AMX
    static const kernels::Table *const below = kernels::find_table("avx512bf16");
    if (below == nullptr || kernels::find_table("avx512vnni") == nullptr) {
        return nullptr;
    }
    static const kernels::Table table = [] {
        kernels::Table filled = *below;
        filled.name = "amx";
        kernels::amx_emulated::add_kernels(filled);
        return filled;
    }();
    return &table;
#else
    return nullptr;
#endif
}

} // namespace stasis::test
