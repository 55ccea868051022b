// See measure.h.
#include "tools/bench/ceilings/measure.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "tools/bench/ceilings/crew.h"
#include "tools/bench/ceilings/files.h"
#include "tools/bench/ceilings/probes.h"
#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command::ceilings {

namespace {

// On huge pages where the system gives them, and far beyond any cache: large machines' last caches
// have hundreds of megabytes.
void *held_memory() {
    void *memory =
        mmap(nullptr, kHeldBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        throw Failure(std::string("a gibibyte to measure memory with: ") + std::strerror(errno));
    }
    madvise(memory, kHeldBytes, MADV_HUGEPAGE);
    std::memset(memory, 0x3F, kHeldBytes);
    return memory;
}

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

// Rates of the passes: `amount` is what all threads together do in one. Unless Ctrl-C was pressed.
template <typename Work>
std::vector<double> pass_rates(unsigned threads, int passes, double amount, Work work) {
    if (Interrupt::requested()) {
        throw Failure("interrupted");
    }
    std::vector<double> rates;
    for (const double seconds : pass_seconds(threads, passes, work)) {
        rates.push_back(amount / seconds);
    }
    return rates;
}

double greatest(const std::vector<double> &rates) {
    return *std::max_element(rates.begin(), rates.end());
}

std::vector<double> read_rates(const ReadPass &variant, const char *begin, size_t bytes,
                               unsigned threads, int passes) {
    const ReadProbe probe = widest_read();
    const size_t share_bytes = bytes / threads / 4096 * 4096;
    std::atomic<uint64_t> sum{0}; // used, so that nothing is left out
    return pass_rates(threads, passes, static_cast<double>(share_bytes * threads),
                      [&](unsigned index) {
                          ReadPass pass = variant;
                          pass.data = begin + index * share_bytes;
                          pass.size_bytes = share_bytes;
                          sum += probe(pass);
                      });
}

// The best of all variants. Each is tried on a quarter of the memory, the quarters in turn, so that
// none is in a cache; those that come out ahead are tried again on all of it.
ReadPass best_read(const char *data, unsigned threads) {
    constexpr size_t kFinalists = 6, kParts = 4, kPart = kHeldBytes / kParts;
    std::vector<std::pair<double, ReadPass>> found;
    for (const ReadPass &variant : read_variants()) {
        const char *part = data + found.size() % kParts * kPart;
        found.emplace_back(greatest(read_rates(variant, part, kPart, threads, 1)), variant);
    }
    const auto faster = [](const auto &a, const auto &b) { return a.first > b.first; };
    std::sort(found.begin(), found.end(), faster);
    found.resize(kFinalists);
    for (auto &[value, variant] : found) {
        value = greatest(read_rates(variant, data, kHeldBytes, threads, 5));
    }
    return std::min_element(found.begin(), found.end(), faster)->second;
}

std::vector<double> copy_rates(char *data, unsigned threads) {
    constexpr size_t kHalf = kHeldBytes / 2;
    const size_t share_bytes = kHalf / threads / 64 * 64;
    return pass_rates(threads, 5, static_cast<double>(share_bytes * threads), [&](unsigned index) {
        std::memcpy(data + kHalf + index * share_bytes, data + index * share_bytes, share_bytes);
    });
}

struct Probe {
    const char *kernels;
    bool integers;
    const char *name;
    MatrixProbe run;
    const char *how;
};

// The reference is compiled for AVX2 and FMA as well, and the compiler makes good use of them.
std::vector<Probe> matrix_probes(const std::string &kernels, bool integers) {
    const Probe all[] = {
        {"amx", true, "amx_int8_tile_loads", amx_int8_tile_loads,
         "TDPBSSD, 2 x 2 tiles, loads from L1"},
        {"amx", true, "amx_int8_registers", amx_int8_registers, "TDPBSSD, no loads"},
        {"avx512vnni", true, "vpdpbusd", vpdpbusd, "VPDPBUSD, no loads"},
        {"amx", false, "amx_tile_loads", amx_tile_loads, "TDPBF16PS, 2 x 2 tiles, loads from L1"},
        {"amx", false, "amx_registers", amx_registers, "TDPBF16PS, no loads"},
        {"avx512bf16", false, "vdpbf16ps", vdpbf16ps, "VDPBF16PS, no loads"},
        {"avx512", false, "avx512_fma", avx512_fma, "512-bit FMA, no loads"},
        {"avx2", false, "avx2_fma", avx2_fma, "256-bit FMA, no loads"},
        {"reference", false, "scalar", scalar_multiply_add,
         "one multiplication, one addition at a time"},
    };
    const bool vnni = kernels == "avx512vnni" || kernels == "avx512bf16";
    const bool counts = integers && (vnni || kernels == "amx"); // else integers go by 16 bits
    const std::string name = vnni && counts                        ? "avx512vnni"
                             : kernels == "avx512vnni"             ? "avx512"
                             : kernels == "reference" && has_fma() ? "avx2"
                                                                   : kernels;
    std::vector<Probe> probes;
    for (const Probe &probe : all) {
        if (name == probe.kernels && counts == probe.integers) {
            probes.push_back(probe);
        }
    }
    if (probes.empty()) {
        throw Failure("kernels '" + kernels + "': there is no probe for their instructions");
    }
    return probes;
}

// So many rounds take about kPassSeconds: short passes, of which some are undisturbed on a machine
// that does other work as well.
uint64_t rounds_of(const Probe &probe, unsigned threads) {
    constexpr double kPassSeconds = 0.01;
    uint64_t rounds = 1000;
    double seconds = 0;
    while (seconds < kPassSeconds) {
        rounds *= 2;
        seconds = 1 / pass_rates(threads, 1, 1, [&](unsigned) { probe.run(rounds); }).front();
    }
    return rounds;
}

std::vector<double> matrix_rates(const Probe &probe, uint64_t rounds, unsigned threads) {
    std::atomic<double> operations{0}; // of one thread
    std::vector<double> rates =
        pass_rates(threads, 20, threads, [&](unsigned) { operations = probe.run(rounds); });
    for (double &rate : rates) {
        rate *= operations;
    }
    return rates;
}

} // namespace

Meter::Meter(const std::string &kernels, bool integers, unsigned threads, const std::string &folder)
    : memory_(held_memory()) {
    auto *data = static_cast<char *>(memory_);
    if (!kernels.empty()) {
        add_kernels(kernels, integers, threads);
    }
    add({"memcpy", 0, "B", "bytes copied"}, [=] { return copy_rates(data, threads); });
    add({"file_write", 0, "B", "with fsync"},
        [=] { return std::vector{measure_files(folder, data).write}; });
    add({"file_read", 0, "B", "from the page cache"},
        [=] { return std::vector{measure_files(folder, data).read}; });
}

Meter::~Meter() {
    munmap(memory_, kHeldBytes);
}

void Meter::add_kernels(const std::string &kernels, bool integers, unsigned threads) {
    auto *data = static_cast<char *>(memory_);
    const ReadPass read = best_read(data, threads);
    add({"read", 0, "B", describe(read)},
        [=] { return read_rates(read, data, kHeldBytes, threads, 5); });
    for (const Probe &probe : matrix_probes(kernels, integers)) {
        const uint64_t rounds = rounds_of(probe, threads);
        add({probe.name, 0, "FLOP", probe.how},
            [=] { return matrix_rates(probe, rounds, threads); });
    }
    matrix_ = best_.at(1).name;
}

bool Meter::knows(const std::string &name) const {
    return std::any_of(best_.begin(), best_.end(),
                       [&](const Ceiling &ceiling) { return ceiling.name == name; });
}

void Meter::add(Ceiling ceiling, Passes passes) {
    best_.push_back(std::move(ceiling));
    passes_.push_back(std::move(passes));
    for (int i = 0; i < 3; ++i) {
        now(best_.back().name);
    }
}

void Meter::saw(const Ceiling &ceiling) {
    const auto known = std::find_if(best_.begin(), best_.end(),
                                    [&](const Ceiling &best) { return best.name == ceiling.name; });
    if (known == best_.end()) {
        best_.push_back(ceiling);
    } else {
        known->value = std::max(known->value, ceiling.value);
    }
}

double Meter::now(const std::string &name) {
    size_t i = 0;
    while (best_.at(i).name != name) {
        ++i;
    }
    const std::vector<double> rates = passes_[i]();
    best_[i].value = std::max(best_[i].value, greatest(rates));
    double time = 0; // all passes do the same
    for (const double rate : rates) {
        time += 1 / rate;
    }
    return static_cast<double>(rates.size()) / time;
}

} // namespace command::ceilings
