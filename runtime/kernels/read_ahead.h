// Which prefetches help kernels that stream through weights, as measured on each processor
// (tools/benchmarks/zen4_kernels.md). Changes the speed and no bit.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

enum class ReadAhead {
    alone, // none for one row: the processor reads ahead best by itself, if the loads ascend.
           // AMD Zen 4, where prefetching by hand cost up to 30 %; K types find out, see Pace
    near,  // into the first level of caches. Intel with AMX
    far_and_near, // into the second level, then the first. AMD Zen 5; others were not measured
};

// Returns what helps this processor.
ReadAhead read_ahead();

// Returns the processor's time stamp; 0 where there is none that costs nothing.
inline uint64_t time_stamp() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

// Finds out, for one kernel on one thread, whether fetching what lies ahead helps at the moment.
// On a Zen 4 in a virtual machine that changed within minutes, by a factor of up to two either way
// (tools/benchmarks/zen4_kernels.md). So of kEvery calls one is made the other way; all are timed.
class Pace {
  public:
    static constexpr unsigned kEvery = 32;

    // Calls work(fetch), which reads `size_bytes` of weights, at least 1.
    template <typename Work>
    void run(size_t size_bytes, const Work &work, uint64_t (*clock)() = time_stamp) {
        assert(size_bytes > 0);
        const bool trial = ++calls_ % kEvery == 0, fetch = fetch_ != trial;
        const uint64_t begin = clock();
        work(fetch);
        const float took = static_cast<float>(clock() - begin) / static_cast<float>(size_bytes);
        float &usual = per_byte_[fetch ? 1 : 0];
        // A call in which the thread was not running counts little.
        usual = usual == 0 ? took : usual + ((took < 4 * usual ? took : 4 * usual) - usual) / 4;
        if (trial && usual < kBetter * per_byte_[fetch ? 0 : 1]) {
            fetch_ = fetch;
        }
    }

  private:
    static constexpr float kBetter = 0.97F; // less is no reason to change

    float per_byte_[2] = {}; // ticks, without fetching and with
    unsigned calls_ = 0;
    bool fetch_ = false;
};

} // namespace stasis::kernels
