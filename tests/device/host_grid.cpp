// The fibers of host_grid.h. For tests: an error of a kernel ends the program.
#include "runtime/kernels/cuda/host_grid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/kernels/environment.h"
#include "tests/device/fiber_sanitizers.h"

namespace stasis::kernels::device::host_grid {

Index thread = {}, block = {};
dim3 block_size, grid_size;
Tiny tiny = Tiny::rounded;
std::function<void(bool)> on_thread;

namespace {

constexpr size_t kStackBytes = 128 * 1024;
constexpr unsigned kWarpLanes = 32;

constexpr unsigned kTurns = 15;

enum class State : uint8_t { ready, at_warp, at_turn, at_block, ended };

struct Copy {
    void *to;
    const void *from;
    unsigned group;
};

// A stack and what its processor registers hold while another one runs.
struct Fiber {
    void *stack_pointer = nullptr;
    std::unique_ptr<char[]> stack;
    fiber_sanitizers::Known known;
    State state = State::ended;
    bool waited = false;    // for the work before the kernel
    uint64_t given[2] = {}; // to the lanes of the warp, in turns
    unsigned exchanges = 0;
    std::vector<Copy> copies; // on the way
    unsigned groups = 0;      // of copies, ended
    unsigned turn = 0;        // number of the turn awaited
    unsigned awaited[kTurns] = {};
};

// Places that sanitizers know the order by, two of each kind in turns: when one is used again,
// everyone has come past it.
struct Order {
    char begin, end, block[2], warp[32][2], turn[kTurns];
};

struct Grid {
    std::mutex one_at_a_time;
    Order order = {};
    std::vector<Fiber> fibers;
    Fiber scheduler;
    const void *scheduler_stack = nullptr; // bounds, for the address sanitizer
    size_t scheduler_bytes = 0;
    unsigned threads = 0, current = 0;
    const std::function<void()> *body = nullptr;
    std::unique_ptr<char[]> shared;
    unsigned passed[kTurns] = {}; // by threads
    bool said[2] = {};            // any_of_block, in turns
    unsigned round = 0;
};

Grid &grid() {
    static Grid instance;
    return instance;
}

[[noreturn]] void stop(const char *what) {
    std::fprintf(stderr, "host grid: block (%u, %u, %u), thread %u: %s\n", block.x, block.y,
                 block.z, thread.x, what);
    std::abort();
}

#if defined(__x86_64__)

// Saves the registers that the ABI calls the callee's (System V x86-64, 3.2.1) and continues on
// another stack. MXCSR and the x87 word are the same in all fibers.
extern "C" void stasis_change_fiber(void **save, void *load);
asm(R"(
.text
.type stasis_change_fiber, @function
stasis_change_fiber:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size stasis_change_fiber, . - stasis_change_fiber
)");

void begin_fiber();

void prepare(Fiber &fiber) {
    auto *top = reinterpret_cast<void **>(fiber.stack.get() + kStackBytes - 64);
    *--top = nullptr; // as if called: the stack is 8 below a multiple of 16 at the first line
    *--top = reinterpret_cast<void *>(&begin_fiber);
    top -= 6;
    std::fill_n(top, 6, nullptr);
    fiber.stack_pointer = top;
}

void change(Fiber &from, Fiber &to) {
    stasis_change_fiber(&from.stack_pointer, to.stack_pointer);
}

#else
#error "the host grid changes stacks by hand: write stasis_change_fiber for this processor"
#endif

void to_fiber(Fiber &fiber) {
    Grid &all = grid();
    fiber_sanitizers::leave(all.scheduler.known, fiber.known, fiber.stack.get(), kStackBytes,
                            false);
    change(all.scheduler, fiber);
    fiber_sanitizers::arrive(&all.scheduler.known, nullptr, nullptr);
}

void to_scheduler() {
    Grid &all = grid();
    Fiber &own = all.fibers[all.current];
    fiber_sanitizers::leave(own.known, all.scheduler.known, all.scheduler_stack,
                            all.scheduler_bytes, own.state == State::ended);
    change(own, all.scheduler);
    fiber_sanitizers::arrive(&own.known, &all.scheduler_stack, &all.scheduler_bytes);
}

void begin_fiber() {
    Grid &all = grid();
    fiber_sanitizers::arrive(nullptr, &all.scheduler_stack, &all.scheduler_bytes);
    fiber_sanitizers::acquire(&all.order.begin);
    if (on_thread) {
        on_thread(false);
    }
    (*all.body)();
    fiber_sanitizers::release(&all.order.end);
    all.fibers[all.current].state = State::ended;
    to_scheduler();
    std::abort(); // an ended fiber is not entered again
}

// `place` lets sanitizers distinguish this barrier from the next.
void wait(State state, void *place) {
    Grid &all = grid();
    const Index own = thread;
    all.fibers[all.current].state = state;
    fiber_sanitizers::release(place);
    to_scheduler();
    thread = own;
    fiber_sanitizers::acquire(place);
}

// Reports whether a warp has passed the turn that a thread awaits.
bool has_turn(const Fiber &fiber) {
    return grid().passed[fiber.turn] >= kWarpLanes * fiber.awaited[fiber.turn];
}

// Runs the lanes of a warp until each has ended, or waits for the block or for another warp.
// Returns whether any ran.
bool run_warp(unsigned first, unsigned end) {
    Grid &all = grid();
    bool ran = false;
    for (bool again = true; again;) {
        unsigned at_warp = 0, elsewhere = 0;
        for (unsigned i = first; i < end; ++i) {
            if (all.fibers[i].state == State::at_turn && has_turn(all.fibers[i])) {
                all.fibers[i].state = State::ready;
            }
            if (all.fibers[i].state == State::ready) {
                ran = true;
                all.current = i;
                thread = {i, 0, 0};
                to_fiber(all.fibers[i]);
            }
            ++(all.fibers[i].state == State::at_warp ? at_warp : elsewhere);
        }
        again = at_warp != 0;
        if (at_warp != 0 && elsewhere != 0) {
            stop("some lanes of a warp exchange values, others have gone past");
        }
        for (unsigned i = first; i < end && again; ++i) {
            all.fibers[i].state = State::ready;
        }
    }
    return ran;
}

void run_block() {
    Grid &all = grid();
    for (unsigned i = 0; i < all.threads; ++i) {
        prepare(all.fibers[i]);
        all.fibers[i].state = State::ready;
        all.fibers[i].waited = false;
        all.fibers[i].exchanges = 0;
        all.fibers[i].copies.clear();
        all.fibers[i].groups = 0;
        std::fill_n(all.fibers[i].awaited, kTurns, 0U);
    }
    std::fill_n(all.passed, kTurns, 0U);
    all.said[0] = all.said[1] = false;
    all.round = 0;
    fiber_sanitizers::release(&all.order.begin);
    for (;;) {
        bool ran = false;
        for (unsigned i = 0; i < all.threads; i += kWarpLanes) {
            ran = run_warp(i, std::min(i + kWarpLanes, all.threads)) || ran;
        }
        const auto at_turn = [&](const Fiber &fiber) { return fiber.state == State::at_turn; };
        const auto end = all.fibers.begin() + all.threads;
        if (std::any_of(all.fibers.begin(), end, at_turn)) {
            if (!ran) {
                stop("a warp awaits a turn that no other passes");
            }
            continue;
        }
        unsigned waiting = 0;
        for (unsigned i = 0; i < all.threads; ++i) {
            waiting += all.fibers[i].state == State::at_block ? 1 : 0;
        }
        if (waiting == 0) {
            fiber_sanitizers::acquire(&all.order.end);
            return;
        }
        if (waiting != all.threads) {
            stop("some threads of a block wait at a barrier, others have ended");
        }
        ++all.round;
        all.said[all.round % 2] = false; // of the round before the last: everyone has read it
        for (unsigned i = 0; i < all.threads; ++i) {
            all.fibers[i].state = State::ready;
        }
    }
}

} // namespace

void run(dim3 blocks, unsigned threads, size_t shared_bytes, const std::function<void()> &body) {
    Grid &all = grid();
    const std::lock_guard lock(all.one_at_a_time);
    const FloatEnvironment environment;
    if (threads == 0 || threads > 1024 || threads % kWarpLanes != 0 || shared_bytes > 227 * 1024) {
        stop("a launch that no device would take");
    }
    while (all.fibers.size() < threads) {
        all.fibers.emplace_back().stack = std::make_unique<char[]>(kStackBytes);
    }
    all.shared = std::make_unique<char[]>(shared_bytes);
    all.threads = threads, all.body = &body;
    all.scheduler.known = {}; // of whichever thread this is
    block_size = dim3(threads), grid_size = blocks;
    for (block.z = 0; block.z < blocks.z; ++block.z) {
        for (block.y = 0; block.y < blocks.y; ++block.y) {
            for (block.x = 0; block.x < blocks.x; ++block.x) {
                std::memset(all.shared.get(), 0xFF, shared_bytes); // NaN: never what is left over
                run_block();
            }
        }
    }
}

void block_barrier() {
    Grid &all = grid();
    wait(State::at_block, &all.order.block[all.round % 2]);
}

void await_turn(unsigned number) {
    Grid &all = grid();
    Fiber &own = all.fibers[all.current];
    own.turn = number, ++own.awaited[number];
    wait(State::at_turn, &all.order.turn[number]);
}

void pass_turn(unsigned number) {
    Grid &all = grid();
    fiber_sanitizers::release(&all.order.turn[number]);
    ++all.passed[number];
}

uint64_t exchange(uint64_t value, unsigned from) {
    Grid &all = grid();
    Fiber &own = all.fibers[all.current];
    const unsigned turn = own.exchanges++ % 2, warp = all.current / kWarpLanes * kWarpLanes;
    own.given[turn] = value;
    wait(State::at_warp, &all.order.warp[all.current / kWarpLanes][turn]);
    return all.fibers[warp + from].given[turn];
}

bool any_of_block(bool value) {
    Grid &all = grid();
    const unsigned turn = all.round % 2;
    all.said[turn] = all.said[turn] || value;
    wait(State::at_block, &all.order.block[turn]);
    return all.said[turn];
}

void *shared_memory() {
    return grid().shared.get();
}

void waited() {
    grid().fibers[grid().current].waited = true;
    if (on_thread) {
        on_thread(true);
    }
}

void end_of_kernel() {
    if (!grid().fibers[grid().current].waited) {
        stop("a kernel ends without having waited for the work before it");
    }
}

void copy_later(void *to, const void *from) {
    const auto both = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    if (both % 16 != 0) {
        stop("an asynchronous copy that is not aligned");
    }
    Fiber &own = grid().fibers[grid().current];
    std::memset(to, 0xFF, 16);
    own.copies.push_back({to, from, own.groups});
}

void end_group() {
    ++grid().fibers[grid().current].groups;
}

void wait_groups(unsigned left) {
    Fiber &own = grid().fibers[grid().current];
    const auto on_the_way = [&](const Copy &copy) {
        if (copy.group + left >= own.groups) {
            return true;
        }
        std::memcpy(copy.to, copy.from, 16);
        return false;
    };
    own.copies.erase(own.copies.begin(),
                     std::find_if(own.copies.begin(), own.copies.end(), on_the_way));
}

namespace {

// Returns the device's form of a result that the processor, which examines the rounded value, made
// 2^-126 or zero. below(x): whether the exact result is below x in magnitude.
template <typename Below> float decided(float result, const Below &below) {
    if (tiny == Tiny::rounded || !(std::fabs(result) <= 0x1p-126F) || !below(0x1p-126)) {
        return result;
    }
    const bool kept = tiny == Tiny::denormal && !below(0x1p-126 - 0x1p-150);
    return std::copysign(kept ? 0x1p-126F : 0.0F, result);
}

} // namespace

// Products of floats are exact in double, and so is the error of a sum.
float fma(float a, float b, float c) {
    return decided(std::fma(a, b, c), [=](double x) {
        const double product = double{a} * double{b}, addend = double{c};
        const double sum = product + addend, back = sum - product;
        const double error = (product - (sum - back)) + (addend - back);
        const double beyond = sum < 0 ? -error : error;
        return std::fabs(sum) < x || (std::fabs(sum) == x && beyond < 0);
    });
}

float mul(float a, float b) {
    return decided(a * b, [=](double x) { return std::fabs(double{a} * double{b}) < x; });
}

float div(float a, float b) {
    return decided(a / b,
                   [=](double x) { return std::fabs(double{a}) < std::fabs(double{b}) * x; });
}

} // namespace stasis::kernels::device::host_grid
