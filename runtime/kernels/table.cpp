// Which kernel table runs on this machine. Knows their names, not what is in them.
#include "runtime/kernels/table.h"

#include <cstring>

#include "runtime/kernels/reference/reference.h"

namespace stasis::kernels {

const Reference *reference_with_fma() {
#ifdef STASIS_REFERENCE_WITH_FMA
    static const bool supported =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    return supported ? &with_fma::kReference : nullptr;
#else
    return nullptr;
#endif
}

const Table &reference_table() {
    const Reference *fast = reference_with_fma();
    return fast != nullptr ? fast->table : portable::kReference.table;
}

const Table *find_table(const char *name) {
    const Table &reference = reference_table();
    return std::strcmp(name, reference.name) == 0 ? &reference : nullptr;
}

const Table &best_table() {
    return reference_table();
}

} // namespace stasis::kernels
