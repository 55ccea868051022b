// Products by algorithms that are pinned ahead, outside the contract: near the exact value, and the
// same bits whenever, wherever and beside whatever they are computed. On the stand-in of the tests,
// and, where there is a module's GPU, by cuBLASLt.
#include <array>
#include <memory>
#include <thread>

#include "runtime/kernels/environment.h"
#include "tests/data_files.h"
#include "tests/device/under_test.h"
#include "tests/kernels/inputs.h"

using stasis::kernels::Activation;
using stasis::kernels::DeviceGatedProduct;
using stasis::kernels::DeviceMatrix;
using stasis::kernels::DeviceProduct;
using stasis::kernels::DeviceShape;
using stasis::kernels::gate_of;
using stasis::kernels::kActivations;
using under_test::DeviceError;
using under_test::DeviceQueue;
using under_test::Opened;
using under_test::There;

namespace {

constexpr size_t kDepth = 200, kOutputCounts[3] = {264, 64, 72};
constexpr size_t kRowCounts[] = {128, 512};
constexpr bool kBias[3] = {true, false, true};

std::vector<DeviceShape> all_shapes() {
    std::vector<DeviceShape> shapes;
    for (const size_t rows : kRowCounts) {
        for (size_t i = 0; i < 3; ++i) {
            shapes.push_back({rows, kOutputCounts[i], kDepth, kBias[i]});
        }
    }
    return shapes;
}

// Pins them. False, and said: there is no library to do so.
bool pin(const Opened &on, std::string *id = nullptr) {
    const std::vector<DeviceShape> shapes = all_shapes();
    char text[stasis::kernels::kDeviceIdBytes];
    std::memset(text, '\n', sizeof text);
    DeviceError error;
    if (!on.table.pin_products(on.device, shapes.data(), shapes.size(), text, &error)) {
        REQUIRE_MESSAGE(error.kind == DeviceError::unavailable, std::string(error.message));
        std::printf("SKIPPED: %s: %s\n", doctest::getContextOptions()->currentTest->m_name,
                    error.message);
        return false;
    }
    const void *end = std::memchr(text, 0, sizeof text);
    REQUIRE(end != nullptr);
    const std::string found = text;
    CHECK(std::all_of(found.begin(), found.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    CHECK(!found.empty());
    if (id != nullptr) {
        *id = found;
    }
    return true;
}

// Weights and biases, the same on every device.
struct Host {
    std::vector<uint16_t> w[3];
    std::vector<float> bias[3];
    explicit Host(Numbers &numbers) {
        for (size_t i = 0; i < 3; ++i) {
            w[i] = numbers.bf16(kOutputCounts[i] * kDepth, Kind::plain);
            bias[i] = numbers.floats(kOutputCounts[i], Kind::plain);
        }
    }
};

using Outputs = std::array<std::vector<float>, 3>;

// The three matrices on a device, and products with all of them in one task.
class Model {
  public:
    Model(const Opened &on, const Host &host) : on_(on) {
        for (size_t i = 0; i < 3; ++i) {
            w_[i] = std::make_unique<There<uint16_t>>(on, host.w[i]);
            bias_[i] = std::make_unique<There<float>>(on, host.bias[i]);
        }
    }

    DeviceMatrix matrix(size_t i) const {
        return {w_[i]->get(), nullptr, kBias[i] ? bias_[i]->get() : nullptr, kOutputCounts[i],
                kDepth};
    }

    Outputs products(const std::vector<uint16_t> &x, DeviceQueue *queue) const {
        const There<uint16_t> there_x(on_, x, queue);
        DeviceProduct task;
        task.x = there_x.get(), task.rows = x.size() / kDepth, task.count = 3, task.pinned = true;
        std::unique_ptr<There<float>> y[3];
        for (size_t i = 0; i < 3; ++i) {
            const std::vector<float> before(task.rows * kOutputCounts[i], 3.0F); // not added to
            y[i] = std::make_unique<There<float>>(on_, before, queue);
            task.w[i] = matrix(i), task.y[i] = y[i]->get();
        }
        on_.table.product(queue, task);
        DeviceError error;
        REQUIRE_MESSAGE(on_.table.finish(queue, &error), std::string(error.message));
        return {y[0]->values(), y[1]->values(), y[2]->values()};
    }
    Outputs products(const std::vector<uint16_t> &x) const { return products(x, on_.queue); }

  private:
    const Opened &on_;
    std::unique_ptr<There<uint16_t>> w_[3];
    std::unique_ptr<There<float>> bias_[3];
};

bool equal(const Outputs &a, const Outputs &b) {
    for (size_t i = 0; i < 3; ++i) {
        if (a[i].size() != b[i].size() || first_difference(a[i], b[i]) != -1) {
            return false;
        }
    }
    return true;
}

double wide(uint16_t bits) {
    return static_cast<double>(stasis::kernels::bf16_to_f32(bits));
}

// How many results are further from the exact one than sums in f32 may be, in whatever order and
// however each is rounded.
size_t count_far(const std::vector<uint16_t> &x, const Host &host, size_t i,
                 const std::vector<float> &y) {
    size_t far = 0;
    for (size_t at = 0; at < y.size(); ++at) {
        const size_t row = at / kOutputCounts[i], output = at % kOutputCounts[i];
        double exact = kBias[i] ? static_cast<double>(host.bias[i][output]) : 0.0;
        double sizes = std::fabs(exact);
        for (size_t k = 0; k < kDepth; ++k) {
            const double term = wide(x[row * kDepth + k]) * wide(host.w[i][output * kDepth + k]);
            exact += term, sizes += std::fabs(term);
        }
        const double bound = sizes * static_cast<double>(kDepth + 1) * 0x1p-23;
        far += std::fabs(static_cast<double>(y[at]) - exact) <= bound ? 0 : 1; // NaN is far
    }
    return far;
}

// A queue beside the one that a device is opened with.
struct Queue {
    const Opened &on;
    DeviceQueue *queue;
    explicit Queue(const Opened &of) : on(of) {
        DeviceError error;
        queue = on.table.create_queue(on.device, &error);
        REQUIRE(queue != nullptr);
    }
    ~Queue() { on.table.destroy_queue(queue); }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;
};

// Runs check(model, x) for numbers of that kind, of each number of rows, on each device that can.
template <typename Check>
void for_each_shape(const Host &host, Numbers &numbers, Kind kind, const Check &check) {
    under_test::for_each_device([&](const Opened &on) {
        if (pin(on)) {
            const Model model(on, host);
            for (const size_t rows : kRowCounts) {
                INFO("rows: ", rows);
                check(model, numbers.bf16(rows * kDepth, kind));
            }
        }
    });
}

} // namespace

TEST_CASE("device: pinned products are near the exact ones") {
    Numbers numbers(51);
    const Host host(numbers);
    for_each_shape(host, numbers, Kind::plain, [&](const Model &model, const auto &x) {
        const Outputs y = model.products(x);
        for (size_t i = 0; i < 3; ++i) {
            INFO("outputs: ", kOutputCounts[i]);
            CHECK(count_far(x, host, i, y[i]) == 0);
        }
    });
}

TEST_CASE("device: pinned products have the same bits again, on other queues and opened anew") {
    Numbers numbers(52);
    const Host host(numbers);
    under_test::for_each_device([&](const Opened &on) {
        std::string id, id_anew;
        if (!pin(on, &id)) {
            return;
        }
        const Opened anew(on.table);
        REQUIRE(pin(anew, &id_anew));
        CHECK(id == id_anew);
        const Model model(on, host), model_anew(anew, host);
        for (const size_t rows : kRowCounts) {
            const std::vector<uint16_t> x = numbers.bf16(rows * kDepth, Kind::cancel);
            const Outputs first = model.products(x);
            const Queue queue(on);
            CHECK(equal(model.products(x), first));
            CHECK(equal(model.products(x, queue.queue), first));
            CHECK(equal(model_anew.products(x), first));
        }
    });
}

TEST_CASE("device: pinned products of two threads at once have the bits that each has alone") {
    Numbers numbers(53);
    const Host host(numbers), other_host(numbers);
    under_test::for_each_device([&](const Opened &on) {
        if (!pin(on)) {
            return;
        }
        const Model model(on, host), other_model(on, other_host);
        const std::vector<uint16_t> x = numbers.bf16(512 * kDepth, Kind::plain);
        const Outputs alone = model.products(x), other_alone = other_model.products(x);
        const Queue queue(on);
        bool same = true, other_same = true;
        std::thread other([&] {
            for (int i = 0; i < 3; ++i) {
                other_same = equal(other_model.products(x, queue.queue), other_alone) && other_same;
            }
        });
        for (int i = 0; i < 3; ++i) {
            same = equal(model.products(x), alone) && same;
        }
        other.join();
        CHECK(same);
        CHECK(other_same);
    });
}

// As padding does, and other sequences.
TEST_CASE("device: a row of a pinned product does not depend on what the others hold") {
    Numbers numbers(54);
    const Host host(numbers);
    for_each_shape(host, numbers, Kind::cancel, [&](const Model &model, const auto &x) {
        const Outputs before = model.products(x);
        for (const uint16_t others : {0x0000, 0x7FC0, 0x7F80, 0x3F80}) { // 0, NaN, inf, 1
            const size_t row = numbers.below(static_cast<uint32_t>(x.size() / kDepth));
            std::vector<uint16_t> changed(x.size(), others);
            const auto *from = x.data() + row * kDepth;
            std::copy(from, from + kDepth, changed.begin() + static_cast<long>(row * kDepth));
            const Outputs after = model.products(changed);
            INFO("row ", row, " beside ", others);
            for (size_t i = 0; i < 3; ++i) {
                CHECK(std::memcmp(&after[i][row * kOutputCounts[i]],
                                  &before[i][row * kOutputCounts[i]],
                                  kOutputCounts[i] * sizeof(float)) == 0);
            }
        }
    });
}

TEST_CASE("device: a pinned gated product is the activation of pinned products") {
    Numbers numbers(55);
    const Host host(numbers);
    const stasis::kernels::Table &reference = stasis::kernels::reference_table();
    under_test::for_each_device([&](const Opened &on) {
        if (!pin(on)) {
            return;
        }
        const Model model(on, host);
        for (const Activation activation : kActivations) {
            const size_t rows = 128, n = rows * kOutputCounts[1];
            const std::vector<uint16_t> x = numbers.bf16(rows * kDepth, Kind::plain);
            const std::vector<float> product = model.products(x)[1];
            std::vector<uint16_t> expected(n);
            {
                const stasis::kernels::FloatEnvironment environment;
                gate_of(reference, activation)(product.data(), product.data(), n, expected.data());
            }
            const There<uint16_t> there_x(on, x), y(on, n);
            const There<float> gate_y(on, n), up_y(on, n);
            DeviceGatedProduct task;
            task.x = there_x.get(), task.rows = rows, task.activation = activation,
            task.pinned = true;
            task.gate = model.matrix(1), task.up = model.matrix(1);
            task.gate_y = gate_y.get(), task.up_y = up_y.get(), task.y = y.get();
            on.table.gated_product(on.queue, task);
            on.finish();
            CHECK(first_difference(y.values(), expected) == -1);
        }
    });
}

// The host's stand-in ends the program instead.
TEST_CASE("device: a module refuses products that it has not pinned, and goes on") {
    const under_test::DeviceTable *module = under_test::cuda_module();
    if (module == nullptr) {
        STASIS_SKIP("STASIS_CUDA_MODULE names no module");
    }
    Numbers numbers(56);
    const Host host(numbers);
    const Opened on(*module);
    const Model model(on, host);
    const There<uint16_t> x(on, numbers.bf16(128 * kDepth, Kind::plain));
    const There<float> y(on, 128 * kOutputCounts[0]);
    DeviceProduct task;
    task.x = x.get(), task.rows = 128, task.count = 1, task.pinned = true;
    task.w[0] = model.matrix(0), task.y[0] = y.get();
    const auto refused = [&] {
        DeviceError error;
        on.table.product(on.queue, task);
        CHECK(!on.table.finish(on.queue, &error));
        CHECK(error.kind == DeviceError::failed);
        return std::string(error.message);
    };
    CHECK(refused().find("no products were pinned") != std::string::npos);
    if (!pin(on)) {
        return;
    }
    task.rows = 127;
    CHECK(refused().find("a product of 127 rows, 264 outputs and depth 200 with a bias was not "
                         "pinned") != std::string::npos);
    task.rows = 128;
    on.table.product(on.queue, task);
    on.finish();
    const std::vector<DeviceShape> shapes = all_shapes();
    char id[stasis::kernels::kDeviceIdBytes];
    DeviceError error;
    CHECK(!on.table.pin_products(on.device, shapes.data(), shapes.size(), id, &error));
    CHECK(std::string(error.message).find("pinned already") != std::string::npos);
}
