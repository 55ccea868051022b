// The device's matrix products against the reference's: every kind of number, sizes on both sides
// of each limit of the kernels, and the cases around 2^-126 where a device must take care (C2).
#include <initializer_list>
#include <limits>
#include <memory>

#include "runtime/kernels/cuda/arithmetic.h"
#include "runtime/kernels/environment.h"
#include "tests/device/under_test.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"

using stasis::kernels::Activation;
using stasis::kernels::DeviceGatedProduct;
using stasis::kernels::DeviceMatrix;
using stasis::kernels::DeviceProduct;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::gate_of;
using stasis::kernels::kActivations;
using stasis::kernels::Table;
using under_test::Opened;
using under_test::There;
namespace host_grid = stasis::kernels::device::host_grid;

namespace {

// A matrix here and there, measured.
struct Weights {
    size_t outputs, depth;
    std::vector<uint16_t> w;
    std::vector<float> bias; // empty: none
    There<uint16_t> there_w;
    There<float> there_bias;
    There<uint32_t> least;

    Weights(const Opened &on, size_t outputs_, size_t depth_, std::vector<uint16_t> w_,
            std::vector<float> bias_ = {})
        : outputs(outputs_), depth(depth_), w(std::move(w_)), bias(std::move(bias_)),
          there_w(on, w), there_bias(on, bias.empty() ? std::vector<float>{0.0F} : bias),
          least(on, outputs_) {
        on.table.measure(on.queue, there_w.get(), outputs, depth, least.get());
        on.finish();
    }
    DeviceMatrix matrix() const {
        return {there_w.get(), least.get(), bias.empty() ? nullptr : there_bias.get(), outputs,
                depth};
    }
};

std::vector<float> expected(const std::vector<uint16_t> &x, size_t rows, const Weights &w) {
    const Table &reference = stasis::kernels::reference_table();
    std::vector<float> y(rows * w.outputs);
    const FloatEnvironment environment;
    multiply(reference, {x.data(), w.depth, w.w.data(), w.depth, y.data(), w.outputs, rows,
                         w.outputs, w.depth});
    for (size_t r = 0; r < rows && !w.bias.empty(); ++r) {
        reference.add(w.bias.data(), w.outputs, y.data() + r * w.outputs);
    }
    return y;
}

// Products of x with all matrices in one task.
std::vector<std::vector<float>> products(const Opened &on, const std::vector<uint16_t> &x,
                                         size_t rows, const std::vector<const Weights *> &weights) {
    const There<uint16_t> there_x(on, x);
    std::vector<std::unique_ptr<There<float>>> y;
    DeviceProduct task;
    task.x = there_x.get(), task.rows = rows, task.count = weights.size();
    for (size_t i = 0; i < weights.size(); ++i) {
        const std::vector<float> before(rows * weights[i]->outputs, 3.0F); // not added to
        y.push_back(std::make_unique<There<float>>(on, before));
        task.w[i] = weights[i]->matrix(), task.y[i] = y[i]->get();
    }
    on.table.product(on.queue, task);
    on.finish();
    std::vector<std::vector<float>> results;
    for (const auto &one : y) {
        results.push_back(one->values());
    }
    return results;
}

std::vector<uint16_t> gated(const Opened &on, const std::vector<uint16_t> &x, size_t rows,
                            const Weights &gate, const Weights &up, Activation activation) {
    const There<uint16_t> there_x(on, x), y(on, rows * gate.outputs);
    const There<float> gate_y(on, rows * gate.outputs), up_y(on, rows * gate.outputs);
    DeviceGatedProduct task;
    task.x = there_x.get(), task.rows = rows;
    task.gate = gate.matrix(), task.up = up.matrix(), task.activation = activation;
    task.gate_y = gate_y.get(), task.up_y = up_y.get(), task.y = y.get();
    on.table.gated_product(on.queue, task);
    on.finish();
    return y.values();
}

uint16_t bf16(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

struct Size {
    size_t rows, outputs, depth;
};

// Streams: rows on both sides of a group (8), outputs of a run (8); depths of a piece (8), a rule
// block (32), the ring of a warp, and odd ones whose rows begin anywhere.
constexpr Size kStreams[] = {{1, 1, 1},    {1, 8, 32},   {1, 9, 64},   {1, 67, 1056}, {1, 17, 40},
                             {1, 5, 2051}, {2, 13, 96},  {3, 7, 200},  {4, 8, 33},    {5, 19, 128},
                             {6, 10, 31},  {7, 3, 1024}, {8, 21, 300}, {8, 4, 1760},  {9, 65, 160},
                             {16, 3, 77},  {65, 70, 72}, {130, 1, 33}};

// Tiles of 32 rows and 64 outputs; 64 of them or more, or they are not used.
constexpr Size kTiles[] = {{9, 4050, 33},  {16, 4096, 64}, {2049, 3, 40},
                           {65, 1400, 37}, {130, 770, 72}, {64, 2048, 8}};

void check_products(const Opened &on, Numbers &numbers, const Size &size, Kind kind) {
    INFO("rows ", size.rows, ", outputs ", size.outputs, ", depth ", size.depth, ", kind ",
         static_cast<int>(kind));
    const Weights w(on, size.outputs, size.depth, numbers.bf16(size.outputs * size.depth, kind),
                    numbers.below(2) == 0 ? numbers.floats(size.outputs, kind)
                                          : std::vector<float>());
    const std::vector<uint16_t> x = numbers.bf16(size.rows * size.depth, kind);
    const std::vector<float> y = products(on, x, size.rows, {&w})[0];
    CHECK(first_difference(y, expected(x, size.rows, w)) == -1);
}

} // namespace

namespace {

// Puts numbers there; NaN, if there are none. Not for the thread sanitizer, which takes the grid's
// threads for ones that run at a time; volatile: not by a function that it knows.
__attribute__((no_sanitize("thread"))) void appear(const uint16_t *from, size_t count,
                                                   volatile uint16_t *there) {
    for (size_t i = 0; i < count; ++i) {
        there[i] = from != nullptr ? from[i] : uint16_t{0x7FC0};
    }
}

} // namespace

// The kernel before may still run while a product's threads begin to load weights: here x is only
// there as each thread has waited.
TEST_CASE("device: few rows wait for x, not for weights") {
    Numbers numbers(25);
    const Opened on(host_module::table());
    constexpr Size kSizes[] = {{1, 67, 1056}, {3, 7, 200}, {8, 21, 300}, {1, 5, 77}};
    for (const Size &size : kSizes) {
        const Weights w(on, size.outputs, size.depth,
                        numbers.bf16(size.outputs * size.depth, Kind::wide));
        const std::vector<uint16_t> x = numbers.bf16(size.rows * size.depth, Kind::wide);
        std::vector<uint16_t> there(x.size(), 0x7FC0);
        std::vector<float> y(size.rows * size.outputs);
        host_grid::on_thread = [&](bool waited) {
            appear(waited ? x.data() : nullptr, x.size(), there.data());
        };
        DeviceProduct task;
        task.x = there.data(), task.rows = size.rows, task.count = 1;
        task.w[0] = w.matrix(), task.y[0] = y.data();
        on.table.product(on.queue, task);
        host_grid::on_thread = nullptr;
        CHECK(first_difference(y, expected(x, size.rows, w)) == -1);
    }
}

TEST_CASE("device: products equal the reference's") {
    Numbers numbers(21);
    under_test::for_each_device([&](const Opened &on) {
        for (const Kind kind : kKinds) {
            for (const Size &size : kStreams) {
                check_products(on, numbers, size, kind);
            }
        }
    });
}

TEST_CASE("device: products of many rows equal the reference's") {
    Numbers numbers(20);
    under_test::for_each_device([&](const Opened &on) {
        for (const Size &size : kTiles) {
            check_products(on, numbers, size, Kind::wide);
        }
        for (const Kind kind : kKinds) { // 4 rule blocks are a round of a tile
            check_products(on, numbers, {40, 2000, 36 + numbers.below(250)}, kind);
        }
    });
}

TEST_CASE("device: three products of one input, each with its outputs and bias") {
    Numbers numbers(22);
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t rows : {1, 3, 12, 700}) {
            const size_t depth = rows == 700 ? 40 : 96;
            const auto make = [&](size_t outputs, bool bias) {
                return std::make_unique<Weights>(
                    on, outputs, depth, numbers.bf16(outputs * depth, Kind::wide),
                    bias ? numbers.floats(outputs, Kind::wide) : std::vector<float>());
            };
            const auto q = make(75, true), k = make(9, false), v = make(66, true);
            const std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::wide);
            const auto y = products(on, x, rows, {q.get(), k.get(), v.get()});
            CHECK(first_difference(y[0], expected(x, rows, *q)) == -1);
            CHECK(first_difference(y[1], expected(x, rows, *k)) == -1);
            CHECK(first_difference(y[2], expected(x, rows, *v)) == -1);
        }
    });
}

TEST_CASE("device: gated products equal the reference's") {
    Numbers numbers(23);
    const Table &reference = stasis::kernels::reference_table();
    under_test::for_each_device([&](const Opened &on) {
        for (const Size &size : std::initializer_list<Size>{
                 {1, 9, 96}, {1, 3, 41}, {3, 6, 72}, {8, 5, 520}, {9, 7, 33}, {33, 1000, 64}}) {
            for (const Kind kind : kKinds) {
                const Activation activation = kActivations[numbers.below(std::size(kActivations))];
                INFO("rows ", size.rows, ", outputs ", size.outputs, ", depth ", size.depth,
                     ", kind ", static_cast<int>(kind), ", activation ",
                     static_cast<uint32_t>(activation));
                const auto make = [&](bool bias) {
                    return std::make_unique<Weights>(
                        on, size.outputs, size.depth, numbers.bf16(size.outputs * size.depth, kind),
                        bias ? numbers.floats(size.outputs, kind) : std::vector<float>());
                };
                const auto gate = make(true), up = make(false);
                const std::vector<uint16_t> x = numbers.bf16(size.rows * size.depth, kind);
                const std::vector<float> g = expected(x, size.rows, *gate);
                const std::vector<float> u = expected(x, size.rows, *up);
                std::vector<uint16_t> y(g.size());
                {
                    const FloatEnvironment environment;
                    gate_of(reference, activation)(g.data(), u.data(), g.size(), y.data());
                }
                CHECK(first_difference(gated(on, x, size.rows, *gate, *up, activation), y) == -1);
            }
        }
    });
}

TEST_CASE("device: depths that leave the streaming kernel fewer rows, or no room") {
    Numbers numbers(24);
    under_test::for_each_device([&](const Opened &on) {
        for (const Size &size : std::initializer_list<Size>{
                 {8, 3, 5632}, {3, 5, 9000}, {1, 5, 22016}, {1, 3, 28672}, {1, 2, 33000}}) {
            INFO("rows ", size.rows, ", depth ", size.depth);
            const Weights w(on, size.outputs, size.depth,
                            numbers.bf16(size.outputs * size.depth, Kind::wide));
            const std::vector<uint16_t> x = numbers.bf16(size.rows * size.depth, Kind::wide);
            const std::vector<float> y = products(on, x, size.rows, {&w})[0];
            CHECK(first_difference(y, expected(x, size.rows, w)) == -1);
        }
    });
}

TEST_CASE("device: the measure of weights is the exponent of the smallest that is not zero") {
    Numbers numbers(25);
    under_test::for_each_device([&](const Opened &on) {
        for (const Kind kind : kKinds) {
            for (const size_t depth : {1, 31, 200}) {
                const Weights w(on, 19, depth, numbers.bf16(19 * depth, kind));
                const std::vector<uint32_t> least = w.least.values();
                for (size_t n = 0; n < w.outputs; ++n) {
                    uint32_t smallest = stasis::kernels::device::kNoExponent;
                    for (size_t k = 0; k < depth; ++k) {
                        const uint32_t exponent = w.w[n * depth + k] >> 7 & 0xFFU;
                        smallest = exponent != 0 ? std::min(smallest, exponent) : smallest;
                    }
                    CHECK(least[n] == smallest);
                }
            }
        }
    });
}

TEST_CASE("device: a row of a product does not depend on the rows beside it") {
    Numbers numbers(26);
    under_test::for_each_device([&](const Opened &on) {
        const size_t rows = 200, depth = 70, outputs = 600; // together they are tiles
        const Weights w(on, outputs, depth, numbers.bf16(outputs * depth, Kind::cancel));
        const std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::cancel);
        const std::vector<float> together = products(on, x, rows, {&w})[0];
        for (const size_t count : {1, 2, 4, 8, 10}) {
            const auto from = static_cast<long>(numbers.below(rows - count));
            const auto end = from + static_cast<long>(count);
            const std::vector<uint16_t> part(x.begin() + from * 70, x.begin() + end * 70);
            const std::vector<float> same(together.begin() + from * 600,
                                          together.begin() + end * 600);
            CHECK(first_difference(products(on, part, count, {&w})[0], same) == -1);
        }
    });
}

// The host grid reads any memory, so it can be given some that ends before a forbidden page.
TEST_CASE("device: products touch nothing beyond their matrices") {
    Numbers numbers(30);
    const Opened on(host_module::table());
    for (const Size &size : std::initializer_list<Size>{
             {3, 5, 40}, {1, 9, 1056}, {5, 3, 33}, {11, 4, 8}, {9, 4050, 33}, {65, 1410, 40}}) {
        for (const Edge edge : kEdges) {
            INFO("rows ", size.rows, ", outputs ", size.outputs, ", depth ", size.depth);
            const Weights w(on, size.outputs, size.depth,
                            numbers.bf16(size.outputs * size.depth, Kind::plain),
                            numbers.floats(size.outputs, Kind::plain));
            const std::vector<uint16_t> x = numbers.bf16(size.rows * size.depth, Kind::plain);
            const size_t aligned = size.depth % 8 == 0 ? 16 : 2;
            const Guarded<uint16_t> own_x(x, edge, aligned), own_w(w.w, edge, aligned);
            const Guarded<uint32_t> least(w.least.values(), edge);
            const Guarded<float> bias(w.bias, edge);
            const Guarded<float> y(std::vector<float>(size.rows * size.outputs), edge);
            DeviceProduct task;
            task.x = own_x.data(), task.rows = size.rows, task.count = 1;
            task.w[0] = {own_w.data(), least.data(), bias.data(), size.outputs, size.depth};
            task.y[0] = y.data();
            on.table.product(on.queue, task);
            on.finish();
            CHECK(first_difference(y.values(), expected(x, size.rows, w)) == -1);
        }
    }
}

TEST_CASE("device: what is not finite stays in its row and its output") {
    Numbers numbers(27);
    const float bad[] = {std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN()};
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t rows : {4, 1000}) {
            const size_t outputs = 70, depth = 100, row = rows - 2, output = 66;
            std::vector<uint16_t> x = numbers.bf16(rows * depth, Kind::plain);
            std::vector<uint16_t> w = numbers.bf16(outputs * depth, Kind::plain);
            const Weights before(on, outputs, depth, w);
            const std::vector<float> clean = expected(x, rows, before);
            x[row * depth + 37] = bf16(bad[numbers.below(2)]);
            w[output * depth + 99] = bf16(bad[numbers.below(2)]);
            const Weights weights(on, outputs, depth, w);
            const std::vector<float> y = products(on, x, rows, {&weights})[0];
            for (size_t r = 0; r < rows; ++r) {
                for (size_t n = 0; n < outputs; ++n) {
                    const bool reached = r == row || n == output;
                    const size_t i = r * outputs + n;
                    CHECK((reached ? !std::isfinite(y[i]) : y[i] == clean[i]));
                }
            }
        }
    });
}

// A sum that is 2^-126 - 2^-151 before its last rounding, which makes it 2^-126: on a device that
// decides before rounding the plain fma gives 0. Its terms, in units of 2^-151:
// 2^25 + 130 * 128 - 129 * 129 = 2^25 - 1. And, all but the first twice as large, one that is
// 2^-126 - 2^-150, which is tiny, but for a device that looks at the denormal. `shift` moves
// factors of 2 from w to x.
TEST_CASE("device: sums that round up to the smallest normal number are kept, no others") {
    Numbers numbers(28);
    const auto scaled = [](float value, int exponent) { return bf16(std::ldexp(value, exponent)); };
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t rows : {1, 5, 8, 20, 1100}) {
            for (const int shift : {-30, 0, 30}) {
                for (const int twice_chain : {0, 1, 2, 3}) {
                    const int chain = twice_chain % 2, twice = twice_chain / 2;
                    const size_t depth = 80, outputs = 66, k = 32 + chain;
                    const size_t n = rows % 2 == 0 ? 65 : 0;
                    std::vector<uint16_t> x(rows * depth), w(outputs * depth);
                    const size_t at = (rows - 1) * depth + k, to = n * depth + k;
                    const int a = -75 + shift, b = -76 - shift + twice;
                    x[at] = scaled(128, a), w[to] = scaled(128, b + 11 - twice);
                    x[at + 2] = scaled(130, a), w[to + 2] = scaled(128, b);
                    x[at + 4] = scaled(129, a), w[to + 4] = scaled(-129, b);
                    const Weights weights(on, outputs, depth, w);
                    const std::vector<float> y = products(on, x, rows, {&weights})[0];
                    INFO("rows ", rows, ", shift ", shift, ", chain ", chain, ", twice ", twice);
                    CHECK(y[(rows - 1) * outputs + n] == (twice == 0 ? 0x1p-126F : 0.0F));
                    CHECK(first_difference(y, expected(x, rows, weights)) == -1);
                }
            }
        }
    });
}

// The same of `up` in a gated product (a gate as small as that vanishes anyway); and of the product
// of the activation with `up`: with g = 2^-59 (1 + 2^-13), whose sigmoid is 1/2, and
// up = 2^-66 (1 - 2^-13) it is 2^-126 (1 - 2^-26).
TEST_CASE("device: gated products keep what rounds up to the smallest normal number") {
    const auto scaled = [](float value, int exponent) { return bf16(std::ldexp(value, exponent)); };
    under_test::for_each_device([&](const Opened &on) {
        const std::vector<uint16_t> terms = {scaled(128, -75), 0, scaled(130, -75), 0,
                                             scaled(129, -75), 0, bf16(1.0F),       0};
        const Weights large(on, 1, 8, {0, 0, 0, 0, 0, 0, scaled(1, 20), 0});
        const Weights small(on, 1, 8,
                            {scaled(128, -65), 0, scaled(128, -76), 0, scaled(-129, -76), 0, 0, 0});
        CHECK(gated(on, terms, 1, large, small, Activation::silu)[0] == scaled(1, -106));
        for (const Activation activation : kActivations) {
            for (const size_t rows : {1, 2100}) { // 2100: by tiles
                std::vector<uint16_t> x(rows * 2);
                x[rows * 2 - 2] = bf16(1.0F), x[rows * 2 - 1] = scaled(1, -13);
                const Weights gate(on, 1, 2, {scaled(1, -59), scaled(1, -59)});
                const Weights up(on, 1, 2, {scaled(1, -66), scaled(-1, -66)});
                CHECK(gated(on, x, rows, gate, up, activation)[rows - 1] == scaled(1, -126));
            }
        }
    });
}
