// Loops that reach for what a machine can do, one file per instruction set, each compiled for its
// own. They compute nothing of use, allocate nothing and include no inline function that could be
// linked elsewhere; which of them this machine may run is decided in measure.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace command::ceilings {

enum class Hint { none, t0, t1, nta }; // what is prefetched for: all caches, L2 on, once

// Reads the bytes once, as several streams that advance side by side.
struct ReadPass {
    const char *data; // 64-byte aligned
    size_t size_bytes;
    unsigned streams; // 1, 2, 4 or 8
    Hint hint;
    size_t distance_bytes; // of prefetching
};
using ReadProbe = uint64_t (*)(const ReadPass &pass);

uint64_t read_portable(const ReadPass &pass); // 16 bytes at a time
uint64_t read_avx2(const ReadPass &pass);     // 32
uint64_t read_avx512(const ReadPass &pass);   // 64

// Runs the innermost loop of a matrix product `rounds` times; returns the operations of that, two
// to a multiplication with its addition.
using MatrixProbe = double (*)(uint64_t rounds);

double scalar_multiply_add(uint64_t rounds);
double avx2_fma(uint64_t rounds);
double avx512_fma(uint64_t rounds);
double vdpbf16ps(uint64_t rounds);
double vpdpbusd(uint64_t rounds);
// TDPBF16PS; the process must have permission to use tiles. With the loads from L1 that a product
// of 32 x 32 outputs needs, and with none.
double amx_tile_loads(uint64_t rounds);
double amx_registers(uint64_t rounds);
// The same with TDPBSSD, whose tiles hold twice as many terms.
double amx_int8_tile_loads(uint64_t rounds);
double amx_int8_registers(uint64_t rounds);

} // namespace command::ceilings
