// This machine's ceilings, measured: what reading memory, copying, the matrix instructions of some
// kernels and files can reach, at its best and at a given moment. Knows the names of kernel tables
// and nothing else of the library.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace command::ceilings {

struct Ceiling {
    std::string name;
    double value;     // per second, the best that was seen
    const char *unit; // "B" or "FLOP"
    std::string how;  // which variant was best
};

// Memory that a Meter holds as long as it lives.
inline constexpr size_t kHeldBytes = size_t{1} << 30;

class Meter {
  public:
    // With `threads` threads: "read", the kernels' own for bf16 or, if asked, integer weights (the
    // first is what their products come up against), "memcpy", and with files of `folder`
    // "file_write" and "file_read". Without a name of kernels, for what a device computes: only the
    // last three. Takes seconds. Throws Failure.
    Meter(const std::string &kernels, bool integers, unsigned threads, const std::string &folder);
    ~Meter();
    Meter(const Meter &) = delete;
    Meter &operator=(const Meter &) = delete;

    const std::vector<Ceiling> &best() const { return best_; }
    // What products come up against; empty where that was not measured.
    const std::string &matrix() const { return matrix_; }
    bool knows(const std::string &name) const;

    // A ceiling that was measured elsewhere.
    void saw(const Ceiling &ceiling);
    // kHeldBytes that measurements may read and write.
    char *memory() const { return static_cast<char *>(memory_); }

    // What a ceiling's best variant reaches now: its mean over a fifth of a second or so, whatever
    // disturbs it included.
    double now(const std::string &name);

  private:
    // Rates per second of some passes of one variant.
    using Passes = std::function<std::vector<double>()>;
    void add(Ceiling ceiling, Passes passes);

    void add_kernels(const std::string &kernels, bool integers, unsigned threads);

    void *memory_;
    std::string matrix_;
    std::vector<Ceiling> best_;
    std::vector<Passes> passes_; // as best_
};

} // namespace command::ceilings
