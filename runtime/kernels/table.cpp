// Which kernel tables run on this machine. Knows their names and what they need, not what is in
// them.
#include "runtime/kernels/table.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "runtime/kernels/overlay.h"
#include "runtime/kernels/reference/reference.h"

namespace stasis::kernels {

namespace {

// The fastest first: AMX beats VDPBF16PS where a machine has both.
constexpr const char *kNames[] = {
#ifdef STASIS_AVX512_TABLES
    "amx",  "avx512bf16", "avx512vnni", "avx512",
#endif
    "avx2", "reference",  nullptr};
constexpr size_t kCount = sizeof kNames / sizeof kNames[0] - 1;

#ifdef STASIS_X86_TABLES

// The compilers' answers include what the operating system says it saves (XCR0, read by XGETBV):
// a processor with AVX-512 under a system that does not save its registers counts as without.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1U) != 0;
}

#endif

#ifdef STASIS_AVX512_TABLES

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

// CPUID leaf 7 (Intel SDM, volume 2): EDX bit 22 AMX-BF16, bit 24 AMX-TILE, bit 25 AMX-INT8.
// Whether the operating system saves the tiles, and lets this process use them, is for the request
// for permission to find out: a kernel that does not know tiles, or a host that filters the call,
// refuses it.
bool has_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1U) != 0 &&
           (edx >> 24 & 1U) != 0 && (edx >> 25 & 1U) != 0;
}

#endif

// The tables in the order of kNames, null where this machine cannot run them.
struct Tables {
    const Table *in_order[kCount] = {};
    Table overlay[kCount - 1] = {};

    Tables() {
        constexpr size_t kSlowest = kCount - 1;
        in_order[kSlowest] = &reference_table();
#ifdef STASIS_X86_TABLES
        if (reference_with_fma() == nullptr || !has_f16c()) {
            return;
        }
        [[maybe_unused]] const Table &avx2 = add(kSlowest - 1, avx2::overlay(reference_table()));
#endif
#ifdef STASIS_AVX512_TABLES
        if (!has_avx512()) {
            return;
        }
        const Table &avx512 = add(kSlowest - 2, avx512::overlay(avx2));
        const bool has_vnni = __builtin_cpu_supports("avx512vnni") != 0;
        const Table &below = has_vnni ? add(kSlowest - 3, avx512vnni::overlay(avx512)) : avx512;
        if (__builtin_cpu_supports("avx512bf16") != 0) {
            add(kSlowest - 4, avx512bf16::overlay(below));
        }
        if (has_vnni && has_amx() && amx::request_permission()) {
            add(kSlowest - 5, amx::overlay(below));
        }
#endif
    }

    const Table &add(size_t place, const Table &table) {
        overlay[place] = table;
        in_order[place] = &overlay[place];
        return overlay[place];
    }
};

const Tables &tables() {
    static const Tables all;
    return all;
}

} // namespace

const Reference *reference_with_fma() {
#ifdef STASIS_X86_TABLES
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

const char *const *table_names() {
    return kNames;
}

const Table *find_table(const char *name) {
    for (size_t i = 0; i < kCount; ++i) {
        if (std::strcmp(name, kNames[i]) == 0) {
            return tables().in_order[i];
        }
    }
    return nullptr;
}

const Table &best_table() {
    const Table *const *table = tables().in_order;
    while (*table == nullptr) { // the reference runs everywhere
        ++table;
    }
    return **table;
}

} // namespace stasis::kernels
