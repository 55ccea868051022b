// The instruction sets: their names, their requirements of the machine, and their tables. Knows
// nothing of the kernels in them.
#include "runtime/kernels/table.h"

#include <cstring>
#include <iterator>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/reference/reference.h"

namespace stasis::kernels {

// Each is defined in the folder of its name, compiled for its instruction set, and called only on
// machines that have it. It enters the kernels that the instruction set computes faster into a
// table.
namespace avx2 {
void add_kernels(Table &table);
}
namespace avx512 {
void add_kernels(Table &table);
}
namespace avx512vnni {
void add_kernels(Table &table);
}
namespace avx512bf16 {
void add_kernels(Table &table);
}
namespace amx {
void add_kernels(Table &table);
}

namespace {

#ifdef STASIS_X86_TABLES

// The compilers' builtins include whether the operating system saves the registers (XCR0, read by
// XGETBV): a processor with AVX-512 under a system that does not save its registers counts as one
// without.
bool has_avx2_and_fma() {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

bool has_avx2() { // with F16C
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return has_avx2_and_fma() && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx >> 29 & 1U) != 0;
}

#endif

#ifdef STASIS_AVX512_TABLES

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0;
}

bool has_avx512vnni() {
    return has_avx512() && __builtin_cpu_supports("avx512vnni") != 0;
}

bool has_avx512bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0;
}

bool has_amx() {
    return has_avx512vnni() && has_avx512bf16() && amx::has_tiles();
}

#endif

void add_reference(Table &table) {
    table = best_reference().table;
}

// A table is the next slower one that this machine runs, with its own kernels in place of some
// entries.
struct InstructionSet {
    const char *name;
    bool (*is_here)();
    void (*add_kernels)(Table &table);
};

// The fastest first: AMX is faster than VDPBF16PS on machines with both.
constexpr InstructionSet kInstructionSets[] = {
#ifdef STASIS_AVX512_TABLES
    {"amx", has_amx, amx::add_kernels},
    {"avx512bf16", has_avx512bf16, avx512bf16::add_kernels},
    {"avx512vnni", has_avx512vnni, avx512vnni::add_kernels},
    {"avx512", has_avx512, avx512::add_kernels},
#endif
#ifdef STASIS_X86_TABLES
    {"avx2", has_avx2, avx2::add_kernels},
#endif
    {"reference", [] { return true; }, add_reference},
};
constexpr size_t kCount = std::size(kInstructionSets);

// The tables in the order of kInstructionSets.
struct Tables {
    const char *names[kCount + 1] = {}; // the last is null
    Table memory[kCount] = {};
    const Table *runs[kCount] = {}; // null: this machine cannot run it

    Tables() {
        // From the slowest on, each set replaces entries of the table before it.
        Table table = {};
        for (size_t i = kCount; i-- > 0;) {
            names[i] = kInstructionSets[i].name;
            if (kInstructionSets[i].is_here()) {
                kInstructionSets[i].add_kernels(table);
                table.name = names[i];
                memory[i] = table;
                runs[i] = &memory[i];
            }
        }
    }
};

const Tables &tables() {
    static const Tables all;
    return all;
}

} // namespace

const Reference *reference_with_fma() {
#ifdef STASIS_X86_TABLES
    static const bool supported = has_avx2_and_fma();
    return supported ? &with_fma::reference() : nullptr;
#else
    return nullptr;
#endif
}

const Reference &best_reference() {
    const Reference *fast = reference_with_fma();
    return fast != nullptr ? *fast : portable::reference();
}

const Table &reference_table() {
    return *tables().runs[kCount - 1];
}

const char *const *table_names() {
    return tables().names;
}

const Table *find_table(const char *name) {
    for (size_t i = 0; i < kCount; ++i) {
        if (std::strcmp(name, kInstructionSets[i].name) == 0) {
            return tables().runs[i];
        }
    }
    return nullptr;
}

const Table &best_table() {
    const Table *const *table = tables().runs;
    while (*table == nullptr) { // the reference runs on every machine
        ++table;
    }
    return **table;
}

} // namespace stasis::kernels
