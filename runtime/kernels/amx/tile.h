// The tiles of a thread, and what is fetched for them.
#pragma once

#include "runtime/kernels/amx/instructions.h"

namespace stasis::kernels::amx {

// The tiles of the calling thread for the length of a kernel. Releasing them keeps the thread's
// state small for whoever switches it out.
class Tiles {
  public:
    explicit Tiles(const TileConfig &config) { configure(config); }
    ~Tiles() { release(); }
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;

    void configure(const TileConfig &config) { load_config(config); }
};

// A cache line into the first or the second level of caches. As assembler too: gcc 12 takes a
// function that only prefetches for one without effect, and drops its calls.
[[gnu::always_inline]] inline void fetch_near(const void *line) {
    asm volatile("prefetcht0 %0" ::"m"(*static_cast<const char *>(line)));
}
[[gnu::always_inline]] inline void fetch_far(const void *line) {
    asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char *>(line)));
}

} // namespace stasis::kernels::amx
