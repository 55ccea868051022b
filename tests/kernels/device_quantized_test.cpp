// Integer weights on the device (C8) against their naive restatement: every type, shapes on both
// sides of each limit of the kernels, integers and scales at their extremes, products of scales
// around 2^-126.
#include <memory>

#include "runtime/kernels/environment.h"
#include "tests/device/under_test.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/quantized_case.h"

using quantized_case::kDeviceTypes;
using quantized_case::Product;
using quantized_case::random_product;
using stasis::kernels::Activation;
using stasis::kernels::DeviceEmbed;
using stasis::kernels::DeviceGatedProduct;
using stasis::kernels::DeviceMatrix;
using stasis::kernels::DeviceProduct;
using stasis::kernels::DeviceRow;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::gate_of;
using stasis::kernels::kActivations;
using stasis::kernels::Quant;
using stasis::kernels::quant_block;
using stasis::kernels::Table;
using under_test::Opened;
using under_test::There;

namespace {

std::vector<float> expected(const Product &p) {
    const FloatEnvironment environment;
    return quantized_case::expected(p, p.outputs);
}

void add_bias(const std::vector<float> &bias, std::vector<float> &y) {
    const FloatEnvironment environment;
    for (size_t at = 0; at < y.size() && !bias.empty(); at += bias.size()) {
        stasis::kernels::reference_table().add(bias.data(), bias.size(), y.data() + at);
    }
}

// The rows of a product, quantized there in both groups where their depth allows it.
struct Rows {
    There<uint16_t> x;
    std::unique_ptr<There<uint8_t>> quantized[2];

    Rows(const Opened &on, const std::vector<uint16_t> &values, size_t rows, size_t depth)
        : x(on, values) {
        for (const size_t group : {32, 256}) {
            if (depth % group == 0) {
                auto &to = quantized[group == 32 ? 0 : 1];
                to = std::make_unique<There<uint8_t>>( // nothing there means anything yet
                    on, std::vector<uint8_t>(on.table.quantized_bytes(rows, depth, group), 0xFF));
                on.table.quantize(on.queue, {x.get(), rows, depth, group, to->get()});
            }
        }
    }
    template <typename Task> void enter(Task &task, size_t rows) const {
        task.x = x.get(), task.rows = rows;
        for (size_t i = 0; i < 2; ++i) {
            task.quantized[i] = quantized[i] != nullptr ? quantized[i]->get() : nullptr;
        }
    }
};

// A matrix there: of blocks, or of bf16 values.
struct Matrix {
    There<uint8_t> strips;
    There<float> bias;
    DeviceMatrix matrix;

    Matrix(const Opened &on, const Product &p, const std::vector<float> &bias_ = {})
        : strips(on, p.strips()), bias(on, bias_.empty() ? std::vector<float>{0.0F} : bias_) {
        matrix.outputs = p.outputs, matrix.depth = p.depth();
        matrix.strips = strips.get(), matrix.quant = p.type;
        matrix.bias = bias_.empty() ? nullptr : bias.get();
    }
};

std::vector<float> product(const Opened &on, const Product &p, const std::vector<float> &bias) {
    const Rows rows(on, p.x, p.rows, p.depth());
    const Matrix w(on, p, bias);
    const There<float> y(on, std::vector<float>(p.rows * p.outputs, 3.0F)); // not added to
    DeviceProduct task;
    rows.enter(task, p.rows);
    task.count = 1, task.w[0] = w.matrix, task.y[0] = y.get();
    on.table.product(on.queue, task);
    on.finish();
    return y.values();
}

void check(const Opened &on, const Product &p, const std::vector<float> &bias = {}) {
    INFO("type ", static_cast<int>(p.type), " rows ", p.rows, " outputs ", p.outputs, " blocks ",
         p.blocks);
    std::vector<float> y = expected(p);
    add_bias(bias, y);
    CHECK(first_difference(product(on, p, bias), y) == -1);
}

} // namespace

TEST_CASE("device: products of integer weights equal the restatement's") {
    Numbers numbers(31);
    under_test::for_each_device([&](const Opened &on) {
        for (const Quant type : kDeviceTypes) {
            for (const Kind kind : kKinds) {
                check(on, random_product(numbers, type, 1, 5, 1, kind));
                check(on, random_product(numbers, type, 3, 17, 2, kind));
            }
            for (const size_t rows : {2, 4, 5, 8, 9, 23}) { // each kernel, whole groups and not
                const size_t outputs = 1 + numbers.below(40);
                const Product p = random_product(numbers, type, rows, outputs, 3, Kind::wide);
                check(on, p, numbers.floats(outputs, Kind::wide));
            }
            // A chunk is 32 blocks of 32 or 8 of 256; two are on the way at a time.
            const bool large = quant_block(type).elements == 256;
            for (const size_t blocks : {7, 8, 9, 16, 17, 26}) {
                check(on, random_product(numbers, type, 1 + numbers.below(3), 16,
                                         large ? blocks : 4 * blocks - 3));
            }
        }
    });
}

TEST_CASE("device: integers, scales and activations at their extremes") {
    Numbers numbers(32);
    under_test::for_each_device([&](const Opened &on) {
        for (const Quant type : kDeviceTypes) {
            for (const uint8_t fill : quantized_case::kFills) {
                check(on, quantized_case::extreme_product(numbers, type, fill, 1));
                check(on, quantized_case::extreme_product(numbers, type, fill, 10));
            }
            check(on, quantized_case::tiny_product(numbers, type, 20));
        }
    });
}

// Every scale of activations at which a product with some f16 can be below 2^-126, with each of
// those f16 and some above: plain multiplication is enough, as quant_product.cu says.
TEST_CASE("device: products of scales around 2^-126") {
    Numbers numbers(33);
    constexpr uint16_t kFirst = (127 - 100) << 7, kEnd = (127 - 93) << 7;
    for (const Quant type : {Quant::q8_0, Quant::q4_1}) {
        Product p = random_product(numbers, type, kEnd - kFirst, 48, 1);
        std::fill(p.x.begin(), p.x.end(), uint16_t{0});
        for (size_t row = 0; row < p.rows; ++row) {
            const auto largest = static_cast<uint16_t>(kFirst + row);
            p.x[row * p.depth() + row % 32] = largest;
            p.x[row * p.depth() + (row + 7) % 32] = static_cast<uint16_t>(largest - 0x40) | 0x8000;
        }
        for (size_t output = 0; output < p.outputs; ++output) {
            set_scales(p, output, static_cast<uint16_t>((output % 2 << 15) | (output + 1)));
        }
        const std::vector<float> y = expected(p);
        under_test::for_each_device(
            [&](const Opened &on) { CHECK(first_difference(product(on, p, {}), y) == -1); });
    }
}

TEST_CASE("device: one input's products with matrices of several types") {
    Numbers numbers(34);
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t rows : {1, 3, 12}) {
            const Quant types[][2] = {{Quant::q4_k, Quant::q8_0}, {Quant::q5_0, Quant::q6_k}};
            for (const auto &[first, second] : types) {
                const auto of = [&](Quant type, size_t outputs) {
                    const size_t blocks = 512 / quant_block(type).elements;
                    return random_product(numbers, type, rows, outputs, blocks);
                };
                Product a = of(first, 37), b = of(second, 5);
                b.x = a.x;
                const std::vector<float> bias = numbers.floats(b.outputs, Kind::plain);
                const std::vector<uint16_t> values = numbers.bf16(9 * 512, Kind::plain);
                const There<uint16_t> there(on, values);
                const There<uint32_t> least(on, 9);
                on.table.measure(on.queue, there.get(), 9, 512, least.get());
                const Rows x(on, a.x, rows, 512);
                const Matrix wa(on, a), wb(on, b, bias);
                const There<float> ya(on, rows * a.outputs), yb(on, rows * b.outputs);
                const There<float> yc(on, rows * 9);
                DeviceProduct task;
                x.enter(task, rows);
                task.count = 3;
                task.w[0] = wa.matrix, task.y[0] = ya.get();
                task.w[1] = {there.get(), least.get(), nullptr, 9, 512}, task.y[1] = yc.get();
                task.w[2] = wb.matrix, task.y[2] = yb.get();
                on.table.product(on.queue, task);
                on.finish();
                std::vector<float> with_bias = expected(b), of_values(rows * 9);
                add_bias(bias, with_bias);
                const FloatEnvironment environment;
                multiply(stasis::kernels::reference_table(),
                         {a.x.data(), 512, values.data(), 512, of_values.data(), 9, rows, 9, 512});
                CHECK(first_difference(ya.values(), expected(a)) == -1);
                CHECK(first_difference(yb.values(), with_bias) == -1);
                CHECK(first_difference(yc.values(), of_values) == -1);
            }
        }
    });
}

namespace {

// bf16(act(gate) * up) of two products.
std::vector<uint16_t> activated(const std::vector<float> &gate, const std::vector<float> &up,
                                Activation activation) {
    const FloatEnvironment environment;
    const Table &reference = stasis::kernels::reference_table();
    std::vector<uint16_t> y(gate.size());
    gate_of(reference, activation)(gate.data(), up.data(), y.size(), y.data());
    return y;
}

} // namespace

TEST_CASE("device: gated products of integer weights, of one type, of two, beside bf16") {
    Numbers numbers(35);
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t rows : {1, 2, 4, 11}) {
            for (const Quant type : kDeviceTypes) {
                const Quant other = rows == 2 ? Quant::q5_1 : type;
                const auto of = [&](Quant own) {
                    return random_product(numbers, own, rows, 21, 256 / quant_block(own).elements);
                };
                const Activation activation = kActivations[numbers.below(std::size(kActivations))];
                const bool values = rows == 4;
                INFO("type ", static_cast<int>(type), " rows ", rows);
                Product gate = of(type), up = of(other);
                up.x = gate.x;
                const std::vector<float> bias = numbers.floats(21, Kind::plain);
                const Rows x(on, gate.x, rows, 256);
                const Matrix gate_w(on, gate, bias), up_w(on, up);
                const std::vector<uint16_t> w = numbers.bf16(21 * 256, Kind::plain);
                const There<uint16_t> there(on, w), y(on, rows * 21);
                const There<uint32_t> least(on, 21);
                const There<float> gate_y(on, rows * 21), up_y(on, rows * 21);
                on.table.measure(on.queue, there.get(), 21, 256, least.get());
                DeviceGatedProduct task;
                x.enter(task, rows);
                task.gate = gate_w.matrix, task.up = up_w.matrix, task.activation = activation;
                task.gate_y = gate_y.get(), task.up_y = up_y.get(), task.y = y.get();
                std::vector<float> g = expected(gate), u = expected(up);
                add_bias(bias, g);
                if (values) {
                    task.up = {there.get(), least.get(), nullptr, 21, 256};
                    const FloatEnvironment environment;
                    multiply(stasis::kernels::reference_table(),
                             {gate.x.data(), 256, w.data(), 256, u.data(), 21, rows, 21, 256});
                }
                on.table.gated_product(on.queue, task);
                on.finish();
                CHECK(first_difference(y.values(), activated(g, u, activation)) == -1);
            }
        }
    });
}

TEST_CASE("device: products of integer weights touch nothing outside their arrays") {
    Numbers numbers(36);
    const Opened on(host_module::table());
    for (const Quant type : kDeviceTypes) {
        for (const Edge edge : kEdges) {
            const size_t outputs = 1 + numbers.below(30), rows = 1 + numbers.below(10);
            const Product p = random_product(numbers, type, rows, outputs, 1 + numbers.below(9));
            const size_t group = p.elements();
            const size_t bytes = on.table.quantized_bytes(rows, p.depth(), group);
            const Guarded<uint16_t> x(p.x, edge, 16);
            const Guarded<uint8_t> quantized(std::vector<uint8_t>(bytes, 0xFF), edge, 16);
            const Guarded<uint8_t> strips(p.strips(), edge, 16);
            const Guarded<float> bias(numbers.floats(outputs, Kind::plain), edge);
            const Guarded<float> y(std::vector<float>(rows * outputs), edge);
            on.table.quantize(on.queue, {x.data(), rows, p.depth(), group, quantized.data()});
            DeviceProduct task;
            task.rows = rows, task.count = 1, task.y[0] = y.data();
            task.w[0].outputs = outputs, task.w[0].depth = p.depth();
            task.w[0].strips = strips.data(), task.w[0].quant = type;
            task.w[0].bias = bias.data();
            task.quantized[group == 32 ? 0 : 1] = quantized.data();
            on.table.product(on.queue, task);
            on.finish();
            std::vector<float> expected_y = expected(p);
            add_bias(bias.values(), expected_y);
            CHECK(first_difference(y.values(), expected_y) == -1);
        }
    }
}

TEST_CASE("device: what is not finite shows in its row of integer products, in no others") {
    Numbers numbers(37);
    under_test::for_each_device([&](const Opened &on) {
        for (const Quant type : kDeviceTypes) {
            for (const uint16_t bad : {uint16_t{0x7F80}, uint16_t{0xFF80}, uint16_t{0x7FC1}}) {
                Product p = random_product(numbers, type, 3, 19, 2);
                const std::vector<float> clean = expected(p);
                p.x[p.depth() + numbers.below(p.depth())] = bad;
                const std::vector<float> y = product(on, p, {});
                size_t finite = 0, different = 0;
                for (size_t n = 0; n < p.outputs; ++n) {
                    finite += std::isfinite(y[p.outputs + n]) ? 1 : 0;
                    for (const size_t at : {n, 2 * p.outputs + n}) {
                        different += std::memcmp(&y[at], &clean[at], sizeof(float)) != 0 ? 1 : 0;
                    }
                }
                CHECK(finite == 0);
                CHECK(different == 0);
            }
        }
    });
}

TEST_CASE("device: embeddings from blocks equal the restatement's") {
    Numbers numbers(38);
    under_test::for_each_device([&](const Opened &on) {
        for (const Quant type : kDeviceTypes) {
            for (const float scale : {1.0F, 25.25F, -0x1.8p-110F}) { // the last: some are flushed
                INFO("type ", static_cast<int>(type), " scale ", scale);
                Product p = random_product(numbers, type, 1, 37, 3);
                for (size_t block = 0; block < p.outputs * p.blocks; block += 2) {
                    set_scales(p, block, static_cast<uint16_t>(numbers.bits() & 0x83FFU));
                }
                const Matrix table(on, p);
                std::vector<DeviceRow> rows;
                for (const uint32_t token : {0U, 36U, 16U, 15U, 31U, 5U}) {
                    rows.push_back({rows.size(), token, 0});
                }
                const There<DeviceRow> there(on, rows);
                const There<float> stream(on, rows.size() * p.depth());
                DeviceEmbed task;
                task.pass.row_count = rows.size(), task.pass.rows = there.get();
                task.strips = table.strips.get(), task.quant = type;
                task.scale = scale, task.hidden = p.depth(), task.stream = stream.get();
                on.table.embed(on.queue, task);
                on.finish();
                std::vector<float> y(rows.size() * p.depth());
                const FloatEnvironment environment;
                for (size_t r = 0; r < rows.size(); ++r) {
                    naive::embed(type, p.w.data() + rows[r].token * p.stride(), scale, p.depth(),
                                 y.data() + r * p.depth());
                }
                CHECK(first_difference(stream.values(), y) == -1);
            }
        }
    });
}

// 127 * 2^-10 times 2113665 * 2^-144 is 2^-126 less 2^-154: not tiny once it is rounded (C2).
TEST_CASE("device: an embedding that rounds up to 2^-126 is kept") {
    Numbers numbers(39);
    Product p = random_product(numbers, Quant::q8_0, 1, 1, 1);
    std::fill(p.w.begin(), p.w.end(), uint8_t{127});
    set_scales(p, 0, 0x1400);
    under_test::for_each_device([&](const Opened &on) {
        const Matrix table(on, p);
        const There<DeviceRow> row(on, std::vector<DeviceRow>{{0, 0, 0}});
        const There<float> stream(on, p.depth());
        DeviceEmbed task;
        task.pass.row_count = 1, task.pass.rows = row.get();
        task.strips = table.strips.get(), task.quant = p.type;
        task.scale = 0x1.020408p-123F, task.hidden = p.depth(), task.stream = stream.get();
        on.table.embed(on.queue, task);
        on.finish();
        CHECK(first_difference(stream.values(), std::vector<float>(p.depth(), 0x1p-126F)) == -1);
    });
}
