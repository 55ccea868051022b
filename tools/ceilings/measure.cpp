// See measure.h.
#include "tools/ceilings/measure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "tools/ceilings/crew.h"
#include "tools/ceilings/files.h"
#include "tools/ceilings/probes.h"
#include "tools/handles.h"
#include "tools/terminal.h"

namespace command::ceilings {

namespace {

// Far beyond any cache; large machines' last caches have hundreds of megabytes.
constexpr size_t kBufferBytes = size_t{1} << 30;

// Memory that has been written to, on huge pages where the system gives them.
class Buffer {
  public:
    Buffer() {
        memory_ =
            mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory_ == MAP_FAILED) {
            throw Failure(std::string("a gibibyte to measure memory with: ") +
                          std::strerror(errno));
        }
        madvise(memory_, kBufferBytes, MADV_HUGEPAGE);
        std::memset(memory_, 0x3F, kBufferBytes);
    }
    ~Buffer() { munmap(memory_, kBufferBytes); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    char *data() const { return static_cast<char *>(memory_); }

  private:
    void *memory_;
};

#if defined(__x86_64__)
bool has_fma() {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
}

ReadProbe widest_read() {
    return __builtin_cpu_supports("avx512f") != 0 ? read_avx512
           : has_fma()                            ? read_avx2
                                                  : read_portable;
}
#endif

std::string describe(const ReadPass &pass) {
    static constexpr const char *kHints[] = {"", "prefetcht0", "prefetcht1", "prefetchnta"};
    const std::string streams =
        std::to_string(pass.streams) + (pass.streams == 1 ? " stream" : " streams");
    return pass.hint == Hint::none ? streams + ", no prefetch"
                                   : streams + ", " + kHints[static_cast<int>(pass.hint)] + " " +
                                         std::to_string(pass.distance_bytes / 1024) + " KiB ahead";
}

std::vector<ReadPass> read_variants() {
    std::vector<ReadPass> variants;
    for (const unsigned streams : {1U, 2U, 4U, 8U}) {
        variants.push_back({nullptr, 0, streams, Hint::none, 0});
        for (const Hint hint : {Hint::t0, Hint::t1, Hint::nta}) {
            for (const size_t kibibytes : {1, 4, 8, 16}) {
                variants.push_back({nullptr, 0, streams, hint, kibibytes * 1024});
            }
        }
    }
    return variants;
}

// best_seconds, unless Ctrl-C was pressed.
template <typename Work> double measured_seconds(unsigned threads, int passes, Work work) {
    if (Interrupt::requested()) {
        throw Failure("interrupted");
    }
    return best_seconds(threads, passes, work);
}

// The best of all variants. Each is tried on a quarter of the buffer, the quarters in turn, so that
// none is in a cache; those that come out ahead are tried again on all of it.
Ceiling measure_read(const char *data, unsigned threads) {
    constexpr size_t kFinalists = 6, kParts = 4;
    constexpr int kFinalPasses = 5;
    const ReadProbe probe = widest_read();
    const auto rate = [&](const ReadPass &variant, const char *begin, size_t bytes, int passes) {
        const size_t share_bytes = bytes / threads / 4096 * 4096;
        std::atomic<uint64_t> sum{0}; // used, so that nothing is left out
        const double seconds = measured_seconds(threads, passes, [&](unsigned index) {
            ReadPass pass = variant;
            pass.data = begin + index * share_bytes;
            pass.size_bytes = share_bytes;
            sum += probe(pass);
        });
        return static_cast<double>(share_bytes * threads) / seconds;
    };
    std::vector<std::pair<double, ReadPass>> found;
    for (const ReadPass &variant : read_variants()) {
        constexpr size_t kPart = kBufferBytes / kParts;
        const char *part = data + found.size() % kParts * kPart;
        found.emplace_back(rate(variant, part, kPart, 1), variant);
    }
    const auto faster = [](const auto &a, const auto &b) { return a.first > b.first; };
    std::sort(found.begin(), found.end(), faster);
    found.resize(kFinalists);
    for (auto &[value, variant] : found) {
        value = rate(variant, data, kBufferBytes, kFinalPasses);
    }
    const auto &[value, best] = *std::min_element(found.begin(), found.end(), faster);
    return {"read", value, "B", describe(best)};
}

Ceiling measure_copy(char *data, unsigned threads) {
    constexpr size_t kHalf = kBufferBytes / 2;
    const size_t share_bytes = kHalf / threads / 64 * 64;
    const double seconds = measured_seconds(threads, 5, [&](unsigned index) {
        std::memcpy(data + kHalf + index * share_bytes, data + index * share_bytes, share_bytes);
    });
    return {"memcpy", static_cast<double>(share_bytes * threads) / seconds, "B", "bytes copied"};
}

struct Probe {
    const char *kernels, *name;
    MatrixProbe run;
    const char *how;
};

// The reference is compiled for AVX2 and FMA as well, and the compiler makes good use of them.
std::vector<Probe> matrix_probes(const std::string &kernels) {
    const Probe all[] = {
        {"amx", "amx_tile_loads", amx_tile_loads, "TDPBF16PS, 2 x 2 tiles, loads from L1"},
        {"amx", "amx_registers", amx_registers, "TDPBF16PS, no loads"},
        {"avx512bf16", "vdpbf16ps", vdpbf16ps, "VDPBF16PS, no loads"},
        {"avx512", "avx512_fma", avx512_fma, "512-bit FMA, no loads"},
        {"avx2", "avx2_fma", avx2_fma, "256-bit FMA, no loads"},
        {"reference", "scalar", scalar_multiply_add, "one multiplication, one addition at a time"},
    };
    const std::string name = kernels == "reference" && has_fma() ? "avx2" : kernels;
    std::vector<Probe> probes;
    for (const Probe &probe : all) {
        if (name == probe.kernels) {
            probes.push_back(probe);
        }
    }
    if (probes.empty()) {
        throw Failure("kernels '" + kernels + "': there is no probe for their instructions");
    }
    return probes;
}

Ceiling measure_matrix(const Probe &probe, unsigned threads) {
    // Short passes, and many: some are then undisturbed on a machine that does other work as well.
    constexpr double kPassSeconds = 0.01;
    constexpr int kPasses = 50;
    uint64_t rounds = 1000;
    double seconds = 0;
    while (seconds < kPassSeconds) {
        rounds *= 2;
        seconds = measured_seconds(threads, 1, [&](unsigned) { probe.run(rounds); });
    }
    std::atomic<double> operations{0}; // of one thread
    seconds = measured_seconds(threads, kPasses, [&](unsigned) { operations = probe.run(rounds); });
    return {probe.name, operations * threads / seconds, "FLOP", probe.how};
}

} // namespace

std::vector<Ceiling> measure(const std::string &kernels, unsigned threads,
                             const std::string &folder) {
    const std::vector<Probe> probes = matrix_probes(kernels);
    std::vector<Ceiling> ceilings;
    const Buffer buffer;
    ceilings.push_back(measure_read(buffer.data(), threads));
    for (const Probe &probe : probes) {
        ceilings.push_back(measure_matrix(probe, threads));
    }
    ceilings.push_back(measure_copy(buffer.data(), threads));
    const FileRates files = measure_files(folder, buffer.data());
    ceilings.push_back({"file_write", files.write, "B", "with fsync"});
    ceilings.push_back({"file_read", files.read, "B", "from the page cache"});
    return ceilings;
}

} // namespace command::ceilings
