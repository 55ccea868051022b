// See threads.h. Knows nothing of the work it splits.
#include "runtime/host/threads.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"

namespace stasis {

namespace {

// Rounds of spinning, about 50 microseconds: longer than the serial stretches between the runs of
// one forward pass, shorter than a scheduler's slice.
constexpr int kSpins = 1000;

size_t allowed_cores() {
    // The kernel refuses a set smaller than its own, and does not report the size of its own.
    for (int capacity = 1024; capacity <= 1024 * 1024; capacity *= 2) {
        std::vector<cpu_set_t> set(CPU_ALLOC_SIZE(capacity) / sizeof(cpu_set_t) + 1);
        const size_t size_bytes = set.size() * sizeof(cpu_set_t);
        if (sched_getaffinity(0, size_bytes, set.data()) == 0) {
            return static_cast<size_t>(std::max(CPU_COUNT_S(size_bytes, set.data()), 1));
        }
        if (errno != EINVAL) {
            break;
        }
    }
    return 1;
}

void spin_once() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// The host's signals are for the host's threads. A thread inherits the mask of its creator, so the
// workers start with all signals blocked.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &saved_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
    BlockedSignals(const BlockedSignals &) = delete;
    BlockedSignals &operator=(const BlockedSignals &) = delete;

  private:
    sigset_t saved_;
};

// A set of CPUs, large enough for any kernel's.
class CpuSet {
  public:
    CpuSet() : words_(CPU_ALLOC_SIZE(Threads::kCpuMax + 1) / sizeof(cpu_set_t)) {}
    // Throws Error(invalid_argument) for a number that is too high or given twice.
    explicit CpuSet(const std::vector<uint32_t> &cpus) : CpuSet() {
        for (const uint32_t cpu : cpus) {
            if (cpu > Threads::kCpuMax) {
                fail(Status::invalid_argument, "CPU %u: expected numbers up to %u", cpu,
                     Threads::kCpuMax);
            }
            if (has(cpu)) {
                fail(Status::invalid_argument, "CPU %u is given twice", cpu);
            }
            CPU_SET_S(cpu, size_bytes(), words_.data());
        }
    }
    bool has(uint32_t cpu) const { return CPU_ISSET_S(cpu, size_bytes(), words_.data()); }
    cpu_set_t *data() { return words_.data(); }
    size_t size_bytes() const { return words_.size() * sizeof(cpu_set_t); }

  private:
    std::vector<cpu_set_t> words_;
};

// Attributes of threads that run on some CPUs, or (none given) wherever their creator does.
class Attributes {
  public:
    // Throws Error(invalid_argument) for CPUs that this process may not use, Error(no_memory).
    explicit Attributes(const std::vector<uint32_t> &cpus) {
        if (cpus.empty()) {
            return;
        }
        CpuSet set(cpus);
        given_ = pthread_attr_init(&attributes_) == 0;
        if (!given_ ||
            pthread_attr_setaffinity_np(&attributes_, set.size_bytes(), set.data()) != 0) {
            destroy();
            fail(Status::no_memory, "no memory for the attributes of a thread");
        }
        try {
            check(cpus);
        } catch (...) {
            destroy();
            throw;
        }
    }
    ~Attributes() { destroy(); }
    Attributes(const Attributes &) = delete;
    Attributes &operator=(const Attributes &) = delete;
    const pthread_attr_t *get() const { return given_ ? &attributes_ : nullptr; }

  private:
    // The kernel drops CPUs that the process may not use from a set, and refuses a set only if none
    // is left. So a thread of these attributes looks at what it got.
    void check(const std::vector<uint32_t> &cpus) const {
        CpuSet got;
        pthread_t thread;
        const auto look = [](void *set) -> void * {
            CpuSet &to = *static_cast<CpuSet *>(set);
            sched_getaffinity(0, to.size_bytes(), to.data());
            return nullptr;
        };
        const int error = pthread_create(&thread, &attributes_, look, &got);
        if (error != 0 && error != EINVAL) {
            fail(Status::no_memory, "cannot start a thread: %s", std::strerror(error));
        }
        if (error == 0) {
            pthread_join(thread, nullptr);
        }
        for (const uint32_t cpu : cpus) {
            if (!got.has(cpu)) {
                fail(Status::invalid_argument,
                     "CPU %u: this process may not run on it, or there is none", cpu);
            }
        }
    }
    void destroy() {
        if (given_) {
            pthread_attr_destroy(&attributes_);
        }
        given_ = false;
    }

    pthread_attr_t attributes_;
    bool given_ = false;
};

// Throws Error(invalid_argument) for a name that leaves no room for the greatest number.
void check_name(const std::string &name, size_t workers) {
    const size_t room = Threads::kNameMax - std::to_string(workers).size();
    if (!name.empty() && name.size() > room) {
        fail(Status::invalid_argument,
             "the name \"%s\" has %zu bytes: at most %zu leave room for numbers up to %zu",
             name.c_str(), name.size(), room, workers);
    }
}

} // namespace

Threads::Threads(size_t count, const ThreadsPlace &place) : name_(place.name), process_(getpid()) {
    if (count > kCountMax || place.cpus.size() > kCountMax) {
        fail(Status::invalid_argument, "expected at most %zu threads, found %zu", kCountMax,
             std::max(count, place.cpus.size()));
    }
    const size_t cores = place.cpus.empty() ? allowed_cores() : place.cpus.size();
    count = count == 0 ? std::min(cores, kCountMax) : count;
    spins_ = count <= cores ? kSpins : 0; // a waiting thread must not keep a working one off a core
    check_name(name_, count - 1);
    workers_.reserve(count - 1);
    shares_ = std::vector<Share>(count);
    const BlockedSignals blocked;
    const Attributes attributes(place.cpus);
    while (workers_.size() < count - 1) {
        start_worker(attributes.get());
    }
}

Threads::~Threads() {
    if (getpid() == process_) {
        stop_workers();
    }
}

void Threads::start_worker(const pthread_attr_t *attributes) {
    pthread_t thread;
    const auto start = [](void *pool) -> void * {
        static_cast<Threads *>(pool)->worker();
        return nullptr;
    };
    const int error = pthread_create(&thread, attributes, start, this);
    if (error != 0) {
        const size_t have = workers_.size();
        stop_workers();
        fail(Status::no_memory, "cannot start worker thread %zu: %s", have + 1,
             std::strerror(error));
    }
    workers_.push_back(thread);
}

void Threads::stop_workers() {
    stop_.store(true, std::memory_order_relaxed);
    count_up(generation_);
    for (pthread_t thread : workers_) {
        pthread_join(thread, nullptr);
    }
    workers_.clear();
}

// Adds 1 to the counter and wakes its waiters. A notification is a system call even if no thread
// waits (libstdc++ 12). So a thread that goes to sleep sets kSlept, and only a counter with that
// mark is notified.
void Threads::count_up(std::atomic<uint32_t> &counter) {
    uint32_t old = counter.load(std::memory_order_relaxed);
    while (!counter.compare_exchange_weak(old, (old | kSlept) + 1, std::memory_order_acq_rel)) {
    }
    if ((old & kSlept) != 0) {
        counter.notify_all();
    }
}

// Waits while the counter equals `count`: first spinning, then asleep. Returns the new count.
uint32_t Threads::wait_while(std::atomic<uint32_t> &counter, uint32_t count) const {
    uint32_t now = counter.load(std::memory_order_acquire);
    for (int spin = 0; spin < spins_ && now / kOne == count; ++spin) {
        spin_once();
        now = counter.load(std::memory_order_acquire);
    }
    while (now / kOne == count) {
        if ((now & kSlept) != 0 ||
            counter.compare_exchange_weak(now, now | kSlept, std::memory_order_acq_rel)) {
            counter.wait(now | kSlept, std::memory_order_acquire);
            now = counter.load(std::memory_order_acquire);
        }
    }
    return now / kOne;
}

void Threads::run(size_t items, size_t grain, const void *work, Call call) {
    grain = std::max<size_t>(grain, 1);
    const bool alone = workers_.empty() || items <= grain;
    // One thread is enough, or the pool is in use: the caller computes everything.
    if (alone || busy_.test_and_set(std::memory_order_acquire)) {
        for (size_t begin = 0; begin < items; begin += std::min(grain, items - begin)) {
            call(work, begin, begin + std::min(grain, items - begin), 0);
        }
        return;
    }

    // Opens the run: the fields first, then `entered_`, which the workers read.
    share_out(items, grain);
    work_ = work;
    call_ = call;
    left_.store(0, std::memory_order_relaxed);
    entered_.store(0, std::memory_order_release);
    count_up(generation_);

    // Takes part, then closes the run and waits for the workers that entered it.
    take_items(0);
    const uint32_t entered = entered_.fetch_or(kClosed, std::memory_order_acq_rel);
    uint32_t left = left_.load(std::memory_order_acquire) / kOne;
    while (left != entered) {
        left = wait_while(left_, left);
    }
    busy_.clear(std::memory_order_release);
}

// Gives each thread a contiguous share of the grains; the first `more` shares have one more.
void Threads::share_out(size_t items, size_t grain) {
    items_ = items;
    grain_ = grain;
    const size_t grains = items / grain + (items % grain == 0 ? 0 : 1);
    const size_t each = grains / shares_.size(), more = grains % shares_.size();
    for (size_t i = 0, begin = 0; i < shares_.size(); ++i) {
        shares_[i].next.store(begin, std::memory_order_relaxed);
        begin += each + (i < more ? 1 : 0);
        shares_[i].end = begin;
    }
}

void Threads::take_items(size_t thread) {
    for (size_t i = 0; i < shares_.size(); ++i) {
        Share &share = shares_[(thread + i) % shares_.size()];
        // The value is compared before 1 is added, so that it cannot pass the end and wrap.
        size_t grain = share.next.load(std::memory_order_relaxed);
        while (grain < share.end) {
            if (share.next.compare_exchange_weak(grain, grain + 1, std::memory_order_relaxed)) {
                const size_t begin = grain * grain_;
                call_(work_, begin, begin + std::min(grain_, items_ - begin), thread);
                grain = share.next.load(std::memory_order_relaxed);
            }
        }
    }
}

void Threads::worker() {
    if (!name_.empty()) {
        char name[kNameMax + 1];
        std::snprintf(name, sizeof name, "%s%u", name_.c_str(), named_.fetch_add(1) + 1);
        prctl(PR_SET_NAME, name);
    }
    const kernels::FloatEnvironment environment;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_while(generation_, seen);
        if (stop_.load(std::memory_order_relaxed)) {
            return;
        }
        // A worker enters at most once for each generation, so the count stays far below kClosed.
        // Counts added while the run is closed have no effect: the next run starts from 0.
        const uint32_t before = entered_.fetch_add(1, std::memory_order_acq_rel);
        if ((before & kClosed) == 0) {
            take_items(before + 1);
            count_up(left_);
        }
    }
}

} // namespace stasis
