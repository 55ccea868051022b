// What each entry of each table reaches on one thread, in GMAC/s or GB/s, and how many times the
// reference that is. Medians of a few short runs on a machine that may be doing other things:
// printed, never asserted.
#include "tests/kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "runtime/kernels/environment.h"
#include "tests/kernels/entries.h"
#include "tests/kernels/inputs.h"

using namespace stasis::kernels;

namespace {

double seconds_of(const std::function<void()> &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Seconds for one call: the median of five runs of some 10 ms, or of as many as half a second
// leaves time for.
double median_seconds(const std::function<void()> &call) {
    const double once = seconds_of(call); // and warms up
    const auto calls = static_cast<size_t>(std::max(1.0, 0.01 / std::max(once, 1e-9)));
    std::vector<double> runs;
    double spent = once;
    while (runs.empty() || (runs.size() < 5 && spent < 0.5)) {
        const double run = seconds_of([&] {
            for (size_t i = 0; i < calls; ++i) {
                call();
            }
        });
        spent += run;
        runs.push_back(run / static_cast<double>(calls));
    }
    std::sort(runs.begin(), runs.end());
    return runs[runs.size() / 2];
}

// One line of the output: the same work by every table. `amount`: operations or bytes of one call.
struct Line {
    const std::string &part; // of the names that are wanted
    void run(const std::string &name, const char *unit, double amount,
             const std::function<void(const Table &)> &work) const {
        if (name.find(part) == std::string::npos) {
            return;
        }
        std::printf("%-34s %-6s", name.c_str(), unit);
        const auto rate = [&](const Table &table) {
            return amount / median_seconds([&] { work(table); }) * 1e-9;
        };
        const double reference = rate(reference_table());
        std::printf(" %8.2f", reference);
        for (const Candidate &candidate : instruction_set_tables()) {
            if (candidate.table != nullptr) {
                const double reached = rate(*candidate.table);
                std::printf(" %8.2f %5.1fx", reached, reached / reference);
            } else {
                std::printf(" %8s %6s", "-", "");
            }
            std::fflush(stdout);
        }
        std::printf("\n");
    }
};

void bench_products(const Line &line, size_t rows, size_t depth, size_t outputs) {
    Numbers numbers(1);
    const std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::plain);
    const std::vector<uint16_t> w = numbers.bf16(outputs * depth, Kind::plain);
    std::vector<float> y(rows * outputs);
    const Aligned scratch(kScratchBytes);
    size_t most = 0;
    for (const Candidate &candidate : all_tables()) {
        most = candidate.table == nullptr
                   ? most
                   : std::max(most, candidate.table->packed_bytes(rows, depth));
    }
    const Aligned packed(most);
    const std::string shape =
        std::to_string(rows) + "x" + std::to_string(depth) + "x" + std::to_string(outputs);
    const auto pack = [&](const Table &table) {
        table.pack({x.data(), depth, rows, depth, packed.data()}, 0, rows);
    };
    line.run("pack " + shape, "GB/s", static_cast<double>(rows * depth * sizeof(uint16_t)), pack);
    line.run("pack, matmul " + shape, "GMAC/s", static_cast<double>(rows * depth * outputs),
             [&](const Table &table) {
                 pack(table);
                 table.matmul({packed.data(), w.data(), depth, y.data(), outputs, rows, outputs,
                               depth, scratch.data()});
             });
}

void bench_attention(const Line &line, size_t rows, size_t head_dim) {
    Numbers numbers(1);
    const std::vector<uint16_t> query = numbers.bf16(rows * head_dim, Kind::plain);
    const std::vector<uint16_t> keys = numbers.bf16(kPagePositions * head_dim, Kind::plain);
    const std::vector<uint16_t> values = numbers.bf16(kPagePositions * head_dim, Kind::plain);
    const std::vector<uint64_t> visible(rows, ~uint64_t{0});
    std::vector<float> maximum(rows), sum(rows), output(rows * head_dim);
    const Aligned scratch(kScratchBytes);
    AttentionBlock task{.query = nullptr,
                        .visible = visible.data(),
                        .keys = keys.data(),
                        .values = values.data(),
                        .rows = rows,
                        .head_dim = head_dim,
                        .scale = 0.1F,
                        .softcap = 0.0F,
                        .maximum = maximum.data(),
                        .sum = sum.data(),
                        .output = output.data(),
                        .weights = nullptr,
                        .next_keys = nullptr,
                        .next_values = nullptr,
                        .scratch = scratch.data()};
    line.run("attention_block " + std::to_string(rows) + " rows, head " + std::to_string(head_dim),
             "GMAC/s", static_cast<double>(2 * rows * kPagePositions * head_dim),
             [&](const Table &table) {
                 const Aligned packed(table.packed_bytes(rows, head_dim));
                 table.pack({query.data(), head_dim, rows, head_dim, packed.data()}, 0, rows);
                 task.query = packed.data();
                 table.attention_block(task);
             });
}

// One head of a recurrent layer, `rows` tokens: multiplications and additions by the state.
void bench_rule(const Line &line, const char *name, decltype(Table::delta_rule) Table::*entry,
                double operations, size_t rows) {
    constexpr size_t kDim = 128;
    Numbers numbers(1);
    const std::vector<float> keys = numbers.floats(rows * kDim, Kind::plain);
    const std::vector<float> values = numbers.floats(rows * kDim, Kind::plain);
    const std::vector<float> gates(rows, 0.5F);
    // As models have them: of whole lines, without which AVX2 loses a quarter.
    const Aligned state_at(kDim * kDim * sizeof(float)), between_at(kDim * kDim * sizeof(float));
    float *const state = static_cast<float *>(state_at.data());
    std::fill_n(state, kDim * kDim, 0.0F);
    std::vector<float> output(rows * kDim);
    line.run(name + (" " + std::to_string(rows)) + " rows, head " + std::to_string(kDim), "GMAC/s",
             operations * static_cast<double>(rows * kDim * kDim), [&](const Table &table) {
                 (table.*entry)({keys.data(), keys.data(), values.data(), gates.data(),
                                 gates.data(), state, static_cast<float *>(between_at.data()),
                                 state, output.data(), kDim, kDim, 1, kDim, rows, kDim, kDim});
             });
}

void bench_elements(const Line &line, size_t n) {
    Numbers numbers(1);
    const std::vector<float> x = numbers.floats(n, Kind::plain), z = numbers.floats(n, Kind::plain);
    const std::vector<uint16_t> row = numbers.bf16(n, Kind::plain);
    std::vector<float> y(n);
    std::vector<uint16_t> bits(n);
    for (const entries::Call &call : entries::kCalls) {
        y = x; // of what works in place
        entries::Operands operands{n,        x.data(),   z.data(), z.data(),   x.data(),
                                   z.data(), row.data(), y.data(), bits.data()};
        line.run(std::string(call.name) + " " + std::to_string(n), "GB/s",
                 static_cast<double>(call.element_bytes * n),
                 [&](const Table &table) { call.of(table, operands); });
    }
}

} // namespace

void bench(const std::string &part) {
    const FloatEnvironment environment;
    std::printf("one thread; median, and how many times the reference\n%-41s %8s", "", "reference");
    for (const Candidate &candidate : instruction_set_tables()) {
        std::printf(" %15s", candidate.name.c_str());
    }
    std::printf("\n");
    const Line line{part};
    for (const size_t rows : {1, 8, 512}) { // decode, a batch, prefill
        bench_products(line, rows, 2048, 5632);
    }
    for (const size_t rows : {8, 128}) {
        for (const size_t head_dim : {64, 128, 256}) {
            bench_attention(line, rows, head_dim);
        }
    }
    for (const size_t rows : {1, 512}) {
        bench_rule(line, "delta_rule", &Table::delta_rule, 3, rows);
        bench_rule(line, "selective_scan", &Table::selective_scan, 2, rows);
    }
    for (const size_t n : {2048, 8192}) {
        bench_elements(line, n);
    }
}
