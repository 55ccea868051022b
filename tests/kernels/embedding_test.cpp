// C13: the vector of a text from its hidden states, restated number by number.
#include <cmath>
#include <cstring>

#include "runtime/kernels/embedding.h"
#include "runtime/kernels/environment.h"
#include "tests/kernels/inputs.h"
#include "tests/kernels/naive.h"

using namespace stasis::kernels;

namespace {

std::vector<uint16_t> hidden_rows(Numbers &numbers, size_t rows, size_t width) {
    std::vector<uint16_t> hidden(rows * width);
    for (uint16_t &value : hidden) {
        value = naive::to_bf16(numbers.next(Kind::plain));
    }
    return hidden;
}

// The clause, one number after the other. Lanes are summed by their definition, not by halving.
std::vector<float> restated(const std::vector<uint16_t> &hidden, size_t width, bool normalised) {
    const size_t rows = hidden.size() / width;
    std::vector<double> x(width);
    for (size_t i = 0; i < width; ++i) {
        double sum = 0;
        for (size_t row = 0; row < rows; ++row) {
            sum += double{bf16_to_f32(hidden[row * width + i])};
        }
        x[i] = sum / double(rows);
    }
    if (normalised) {
        const auto lane = [&](size_t j) {
            double sum = 0;
            for (size_t i = j; i < width; i += 16) {
                sum += x[i] * x[i];
            }
            return sum;
        };
        const auto eighth = [&](size_t j) { return lane(j) + lane(j + 8); };
        const auto fourth = [&](size_t j) { return eighth(j) + eighth(j + 4); };
        const double sum = (fourth(0) + fourth(2)) + (fourth(1) + fourth(3));
        for (double &each : x) {
            each /= std::max(std::sqrt(sum), 1e-12);
        }
    }
    return {x.begin(), x.end()};
}

// `cut`: rows of a call of add_hidden.
std::vector<float> computed(const std::vector<uint16_t> &hidden, size_t width, bool normalised,
                            size_t cut) {
    const size_t rows = hidden.size() / width;
    std::vector<double> sums(width);
    for (size_t row = 0; row < rows; row += cut) {
        add_hidden(hidden.data() + row * width, std::min(cut, rows - row), width, sums.data());
    }
    std::vector<float> vector(width);
    divide_sums(sums.data(), rows, width);
    store_embedding(sums.data(), width, normalised, vector.data());
    return vector;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

TEST_CASE("embedding: the vector is the restated one, however rows are cut into calls") {
    const FloatEnvironment environment;
    Numbers numbers(5);
    for (const size_t width : {1, 7, 16, 17, 64, 1000}) {
        for (const size_t rows : {1, 2, 3, 65, 200}) {
            const std::vector<uint16_t> hidden = hidden_rows(numbers, rows, width);
            for (const bool normalised : {false, true}) {
                const std::vector<float> expected = restated(hidden, width, normalised);
                for (const size_t cut : {size_t{1}, size_t{64}, rows}) {
                    CHECK(same_bits(computed(hidden, width, normalised, cut), expected));
                }
            }
        }
    }
}

TEST_CASE("embedding: a mean, its norm, and zeros") {
    const FloatEnvironment environment;
    const std::vector<uint16_t> two{0x4000, 0x4080, 0x4080, 0x4080}; // (2, 4), (4, 4)
    CHECK(computed(two, 2, false, 2) == std::vector<float>{3, 4});
    CHECK(computed(two, 2, true, 2) == std::vector<float>{0.6F, 0.8F});
    CHECK(computed({0, 0, 0}, 3, true, 1) == std::vector<float>{0, 0, 0});
}

TEST_CASE("apply_dense: each output is its own ascending sum") {
    const FloatEnvironment environment;
    Numbers numbers(6);
    for (const auto &[inputs, outputs] :
         std::initializer_list<std::pair<size_t, size_t>>{{1, 1}, {3, 17}, {64, 5}, {100, 33}}) {
        std::vector<float> weights(inputs * outputs), bias(outputs);
        std::vector<double> x(inputs), y(outputs, 1e9);
        const auto fill = [&](auto &all) {
            for (auto &each : all) {
                each = numbers.next(Kind::plain);
            }
        };
        fill(weights), fill(bias), fill(x);
        for (double &each : x) {
            each /= 3; // more bits than a float has
        }
        for (const float *given :
             {static_cast<const float *>(nullptr), static_cast<const float *>(bias.data())}) {
            apply_dense(weights.data(), given, inputs, outputs, x.data(), y.data());
            for (size_t o = 0; o < outputs; ++o) {
                double sum = given == nullptr ? 0.0 : double{given[o]};
                for (size_t i = 0; i < inputs; ++i) {
                    sum += double{weights[i * outputs + o]} * x[i];
                }
                CHECK(std::memcmp(&sum, &y[o], sizeof sum) == 0);
            }
        }
    }
}
