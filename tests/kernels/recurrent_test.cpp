// The kernels of recurrent layers (C11): every table against the naive restatement, and against
// itself when rows, columns and channels are cut otherwise. All arrays lie beside pages that may
// not be touched.
#include <limits>

#include "runtime/kernels/environment.h"
#include "tests/kernels/guarded.h"
#include "tests/kernels/inputs.h"
#include "tests/share.h"

using namespace stasis::kernels;

namespace {

// A convolution with gaps between rows, which stay as they were.
struct ConvolutionCase {
    size_t rows, channels, taps, stride, width;
    bool plain, biased;
    std::vector<float> x, before, weights, bias;

    ConvolutionCase(size_t row_count, size_t channel_count, size_t tap_count, Kind kind)
        : rows(row_count), channels(channel_count), taps(tap_count), stride(channels + 3),
          width(channels + 1), plain(channels % 2 == 0), biased(channels % 3 != 0) {
        Numbers numbers(channels * 100 + rows * 10 + taps);
        x = numbers.floats(rows * stride, kind);
        before = numbers.floats((taps - 1) * width, kind);
        weights = numbers.floats(taps * width, Kind::plain);
        bias = numbers.floats(channels, Kind::plain);
    }

    // In calls of `most` rows and `wide` channels each.
    std::vector<float> run(const Table &table, Edge edge, size_t most, size_t wide) const {
        const Guarded<float> x_at(x, edge), before_at(before, edge), weights_at(weights, edge);
        const Guarded<float> bias_at(bias, edge);
        const Guarded<float> y(std::vector<float>(rows * stride, 7.0F), edge);
        std::vector<float> history = before; // those before the rows of a call
        for (size_t row = 0; row < rows; row += most) {
            const size_t count = std::min(most, rows - row);
            const Guarded<float> history_at(history, edge);
            for (size_t c = 0; c < channels; c += wide) {
                table.convolve({x_at.data() + row * stride + c, history_at.data() + c,
                                weights_at.data() + c, y.data() + row * stride + c, stride, stride,
                                width, count, std::min(wide, channels - c), taps, plain,
                                biased ? bias_at.data() + c : nullptr});
            }
            for (size_t r = row; r < row + count && taps > 1; ++r) {
                std::copy(history.begin() + static_cast<long>(width), history.end(),
                          history.begin());
                std::copy_n(x.begin() + static_cast<long>(r * stride), channels,
                            history.end() - static_cast<long>(width));
            }
        }
        return y.values();
    }
};

// A head of the gated delta rule or of the selective scan, with gaps everywhere; or, `far`, of
// whole lines of memory.
struct DeltaCase {
    decltype(Table::delta_rule) Table::*entry = &Table::delta_rule;
    float skip = 0.0F;
    size_t rows, key_dim, columns;
    bool far;
    size_t qk_stride = key_dim + 2, value_stride = columns + 3;
    size_t state_stride = far ? columns : columns + 1;
    std::vector<float> query, key, value, decay, beta, state;

    DeltaCase(size_t row_count, size_t keys, size_t column_count, Kind kind, bool is_far = false)
        : rows(row_count), key_dim(keys), columns(column_count), far(is_far) {
        Numbers numbers(columns * 1000 + key_dim * 10 + rows);
        query = numbers.floats(rows * qk_stride, kind);
        key = numbers.floats(rows * qk_stride, Kind::plain);
        value = numbers.floats(rows * value_stride, kind);
        state = numbers.floats(key_dim * state_stride, kind);
        for (std::vector<float> *gates : {&decay, &beta}) { // between 0 and 1
            *gates = numbers.floats(rows * 2, Kind::plain);
            for (float &gate : *gates) {
                gate = std::fabs(gate);
            }
        }
    }

    struct Result {
        std::vector<float> state, output;
    };
    // In calls of `most` rows and `wide` columns each.
    Result run(const Table &table, Edge edge, size_t most, size_t wide) const {
        const Guarded<float> query_at(query, edge), key_at(key, edge), value_at(value, edge);
        const Guarded<float> decay_at(decay, edge), beta_at(beta, edge), before_at(state, edge);
        const Guarded<float> output(std::vector<float>(rows * value_stride, 7.0F), edge);
        const Guarded<float> between(std::vector<float>(key_dim * wide, 8.0F), edge);
        const Guarded<float> after_at(std::vector<float>(state.size(), 9.0F), edge);
        if (far) { // or the kernels would not store by lines
            REQUIRE(reinterpret_cast<uintptr_t>(after_at.data()) % 64 == 0);
        }
        for (size_t row = 0; row < rows; row += most) {
            for (size_t c = 0; c < columns; c += wide) {
                const size_t from = row * value_stride + c;
                (table.*entry)({query_at.data() + row * qk_stride, key_at.data() + row * qk_stride,
                                value_at.data() + from, decay_at.data() + 2 * row,
                                beta_at.data() + 2 * row,
                                (row == 0 ? before_at : after_at).data() + c, between.data(),
                                after_at.data() + c, output.data() + from, qk_stride, value_stride,
                                2, state_stride, std::min(most, rows - row), key_dim,
                                std::min(wide, columns - c), skip, far});
            }
        }
        CHECK(first_difference(before_at.values(), state) == -1);
        return {after_at.values(), output.values()};
    }
};

void check_equal(const DeltaCase::Result &a, const DeltaCase::Result &b) {
    CHECK(first_difference(a.state, b.state) == -1);
    CHECK(first_difference(a.output, b.output) == -1);
}

} // namespace

TEST_CASE("convolve: all widths and taps, all kinds, equal the naive restatement, however cut") {
    const FloatEnvironment environment;
    for (size_t channels = 1; channels <= 67; ++channels) {
        const Kind kind = kKinds[channels % std::size(kKinds)];
        const size_t taps = 1 + channels / 6 % 4, rows = 1 + channels % 7;
        INFO("channels ", channels, " taps ", taps, " rows ", rows);
        const ConvolutionCase task(rows, channels, taps, kind);
        const std::vector<float> expected = task.run(naive::table(), Edge::back, rows, channels);
        for_each_table([&](const Table &table) {
            for (const Edge edge : kEdges) {
                CHECK(first_difference(task.run(table, edge, rows, channels), expected) == -1);
                CHECK(first_difference(task.run(table, edge, 1, 17), expected) == -1);
                CHECK(first_difference(task.run(table, edge, 2, 48), expected) == -1);
            }
        });
    }
}

namespace {

// Compares the tables with the naive restatement over widths, kinds and cuts.
void check_rule(decltype(Table::delta_rule) Table::*entry) {
    const FloatEnvironment environment;
    const size_t key_dims[] = {1, 2, 16, 33};
    for (size_t columns = 1; columns <= 131; columns += columns < 67 ? 1 : 32) {
        const Kind kind = kKinds[columns % std::size(kKinds)];
        const size_t key_dim = key_dims[columns / 6 % 4], rows = 1 + columns % 5;
        INFO("columns ", columns, " key_dim ", key_dim, " rows ", rows);
        DeltaCase task(rows, key_dim, columns, kind);
        task.entry = entry;
        task.skip = columns % 5 == 0 ? 0.0F : 0.7F;
        const DeltaCase::Result expected = task.run(naive::table(), Edge::back, rows, columns);
        for_each_table([&](const Table &table) {
            for (const Edge edge : kEdges) {
                check_equal(task.run(table, edge, rows, columns), expected);
                check_equal(task.run(table, edge, 1, columns), expected);
                check_equal(task.run(table, edge, 2, 19), expected);
            }
        });
    }
}

// Compares them with the reference, in the shape of models, over a prompt.
void check_prompt(decltype(Table::delta_rule) Table::*entry) {
    const FloatEnvironment environment;
    for (const bool far : {false, true}) {
        DeltaCase task(70, 128, 128, Kind::plain, far);
        task.entry = entry;
        task.skip = 1.25F;
        const DeltaCase::Result expected = task.run(reference_table(), Edge::back, 70, 128);
        for_each_table(
            [&](const Table &table) {
                check_equal(task.run(table, Edge::front, 70, 128), expected);
                check_equal(task.run(table, Edge::back, 13, 64), expected);
                check_equal(task.run(table, Edge::back, 1, 48), expected);
            },
            instruction_set_tables());
    }
}

} // namespace

TEST_CASE("delta_rule: all widths, all kinds, equal the naive restatement, however cut") {
    check_rule(&Table::delta_rule);
}

TEST_CASE("delta_rule: the shape of models, a prompt, equals the reference, however cut") {
    check_prompt(&Table::delta_rule);
}

TEST_CASE("selective_scan: all widths, all kinds, equal the naive restatement, however cut") {
    check_rule(&Table::selective_scan);
}

TEST_CASE("selective_scan: the shape of models, a prompt, equals the reference, however cut") {
    check_prompt(&Table::selective_scan);
}

TEST_CASE("scan_gates: decay and step, all kinds and limits, equal the naive restatement") {
    const FloatEnvironment environment;
    const float none = std::numeric_limits<float>::infinity();
    for (size_t n = 1; n <= 67; ++n) {
        for (const Kind kind : kKinds) {
            Numbers numbers(n);
            const std::vector<float> dt = numbers.floats(n, kind);
            const std::vector<float> rate = numbers.floats(n, Kind::plain);
            const std::vector<float> bias = numbers.floats(n, Kind::plain);
            const float least = n % 3 == 0 ? 0.5F : 0.0F, most = n % 2 == 0 ? 0.75F : none;
            std::vector<float> expected[2] = {dt, dt};
            naive::table().scan_gates(dt.data(), rate.data(), bias.data(), least, most, n,
                                      expected[0].data(), expected[1].data());
            for_each_table([&](const Table &table) {
                for (const Edge edge : kEdges) {
                    const Guarded<float> rate_at(rate, edge), bias_at(bias, edge), decay(dt, edge),
                        step(dt, edge); // in the place of dt
                    table.scan_gates(step.data(), rate_at.data(), bias_at.data(), least, most, n,
                                     decay.data(), step.data());
                    CHECK(first_difference(decay.values(), expected[0]) == -1);
                    CHECK(first_difference(step.values(), expected[1]) == -1);
                }
            });
        }
    }
}

TEST_CASE("delta_gates: decay and beta, all kinds, equal the naive restatement") {
    const FloatEnvironment environment;
    for (size_t n = 1; n <= 67; ++n) {
        for (const Kind kind : kKinds) {
            Numbers numbers(n);
            std::vector<float> a = numbers.floats(n, kind), b = numbers.floats(n, kind);
            std::vector<float> rate = numbers.floats(n, Kind::plain);
            const std::vector<float> bias = numbers.floats(n, Kind::plain);
            for (size_t i = 0; i < n; ++i) { // where softplus bends and exp reaches its floor
                rate[i] = -std::fabs(rate[i]) * static_cast<float>(1 + numbers.below(30));
                a[i] *= kind == Kind::plain ? static_cast<float>(numbers.below(100)) : 1.0F;
            }
            std::vector<float> expected[2] = {a, a};
            naive::table().delta_gates(a.data(), b.data(), rate.data(), bias.data(), n,
                                       expected[0].data(), expected[1].data());
            for_each_table([&](const Table &table) {
                for (const Edge edge : kEdges) {
                    const Guarded<float> a_at(a, edge), b_at(b, edge), rate_at(rate, edge),
                        bias_at(bias, edge), decay(a, edge), beta(a, edge);
                    table.delta_gates(a_at.data(), b_at.data(), rate_at.data(), bias_at.data(), n,
                                      decay.data(), beta.data());
                    CHECK(first_difference(decay.values(), expected[0]) == -1);
                    CHECK(first_difference(beta.values(), expected[1]) == -1);
                }
            });
        }
    }
}

// Without a bias the decay is exp(rate * softplus(a)): a rate of -1 reaches the whole range, and -8
// shows each last bit of softplus where its constants matter.
TEST_CASE("delta_gates: softplus over the whole range equals the reference") {
    const FloatEnvironment environment;
    std::vector<float> a(std::begin(kSensitive), std::end(kSensitive));
    using stasis::test::first_case;
    using stasis::test::stride;
    for (uint64_t bits = 2003 * first_case(); bits < uint64_t{1} << 32; bits += 2003 * stride()) {
        a.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
    const size_t n = a.size();
    const std::vector<float> bias(n, 0.0F);
    for (const float rate : {-1.0F, -8.0F}) {
        const std::vector<float> rates(n, rate);
        const auto run = [&](const Table &table) {
            std::vector<float> decay(n), beta(n);
            table.delta_gates(a.data(), a.data(), rates.data(), bias.data(), n, decay.data(),
                              beta.data());
            return decay;
        };
        const std::vector<float> expected = run(reference_table());
        for_each_table(
            [&](const Table &table) { CHECK(first_difference(run(table), expected) == -1); },
            instruction_set_tables());
    }
}
