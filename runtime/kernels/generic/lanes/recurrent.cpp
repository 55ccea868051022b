// The kernels of recurrent layers (C11). Lanes are channels, heads or columns of the state, so
// that no sum crosses them.
#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void convolve(const Convolution &task) {
    by_lanes(task.channels, [&](size_t channel, size_t count) STASIS_STEP {
        for (size_t row = 0; row < task.rows; ++row) {
            Lanes sum = task.bias == nullptr ? broadcast(0.0F) : load(task.bias + channel, count);
            for (size_t tap = 0; tap < task.taps; ++tap) {
                const size_t at = row + tap; // in `before`, and behind its end in x
                const float *inputs = at + 1 < task.taps
                                          ? task.before + at * task.width
                                          : task.x + (at + 1 - task.taps) * task.x_stride;
                sum = fma(load(task.weights + tap * task.width + channel, count),
                          load(inputs + channel, count), sum);
            }
            store(task.plain ? sum : sum * sigmoid(sum), task.y + row * task.y_stride + channel,
                  count);
        }
    });
}

void multiply(const float *a, const float *b, size_t n, float *y) {
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(load(a + i, count) * load(b + i, count), y + i, count); });
}

void delta_gates(const float *a, const float *b, const float *rate, const float *bias, size_t n,
                 float *decay, float *beta) {
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes past = softplus(load(a + i, count) + load(bias + i, count));
        store(exp(load(rate + i, count) * past), decay + i, count);
        store(sigmoid(load(b + i, count)), beta + i, count);
    });
}

// Vectors of columns that are computed together: their sums are chains that hide each other's
// latency, as far as there are registers.
#ifdef __AVX512F__
constexpr size_t kTogether = 4;
#else
constexpr size_t kTogether = 2;
#endif

// A row's numbers.
struct DeltaRow {
    const float *key, *query;
    float decay, beta;

    [[gnu::always_inline]] DeltaRow(const DeltaRule &task, size_t row)
        : key(task.key + row * task.qk_stride), query(task.query + row * task.qk_stride),
          decay(task.decay[row * task.gate_stride]), beta(task.beta[row * task.gate_stride]) {}
};

// Columns from `first` on: `vectors` vectors of 16, of which the last has `count` columns that
// exist. A row's change of the state and its decay by the next row are one pass over the state.
template <size_t vectors>
[[gnu::always_inline]] inline void delta_columns(const DeltaRule &task, size_t first,
                                                 size_t count) {
    float *const state = task.state + first;
    const auto width = [count](size_t v) STASIS_STEP { return v + 1 == vectors ? count : kLanes; };
    const auto load_state = [&](size_t i, size_t v) STASIS_STEP {
        return load(state + i * task.state_stride + v * kLanes, width(v));
    };
    const auto store_state = [&](Lanes x, size_t i, size_t v) STASIS_STEP {
        store(x, state + i * task.state_stride + v * kLanes, width(v));
    };

    Lanes known[vectors]; // what the state holds under the next row's key
    const auto decay_by = [&](const DeltaRow &row, size_t i, Lanes x, size_t v) STASIS_STEP {
        x = x * broadcast(row.decay);
        known[v] = fma(x, broadcast(row.key[i]), known[v]);
        return x;
    };
    for (size_t v = 0; v < vectors; ++v) {
        known[v] = broadcast(0.0F);
    }
    const DeltaRow first_row(task, 0);
    for (size_t i = 0; i < task.key_dim; ++i) {
        for (size_t v = 0; v < vectors; ++v) {
            store_state(decay_by(first_row, i, load_state(i, v), v), i, v);
        }
    }

    for (size_t r = 0; r < task.rows; ++r) {
        const DeltaRow row(task, r);
        const bool last = r + 1 == task.rows;
        const DeltaRow next(task, last ? r : r + 1);
        Lanes change[vectors], output[vectors];
        const size_t at = r * task.value_stride + first;
        for (size_t v = 0; v < vectors; ++v) {
            const Lanes value = load(task.value + at + v * kLanes, width(v));
            change[v] = (value - known[v]) * broadcast(row.beta);
            output[v] = known[v] = broadcast(0.0F);
        }
        const auto pass = [&](auto finish) STASIS_STEP {
            for (size_t i = 0; i < task.key_dim; ++i) {
                const Lanes key = broadcast(row.key[i]), query = broadcast(row.query[i]);
                for (size_t v = 0; v < vectors; ++v) {
                    const Lanes x = fma(key, change[v], load_state(i, v));
                    output[v] = fma(x, query, output[v]);
                    store_state(finish(i, x, v), i, v);
                }
            }
        };
        if (last) {
            pass([](size_t, Lanes x, size_t) STASIS_STEP { return x; });
        } else {
            pass([&](size_t i, Lanes x, size_t v) STASIS_STEP { return decay_by(next, i, x, v); });
        }
        for (size_t v = 0; v < vectors; ++v) {
            store(output[v], task.output + at + v * kLanes, width(v));
        }
    }
}

// Rows of the selective scan that are computed in one pass over the state, as far as there are
// registers.
#ifdef __AVX512F__
constexpr size_t kScanned = 2;
#else
constexpr size_t kScanned = 1;
#endif

// The same of `rows` rows of the selective scan, from row r on.
template <size_t vectors, size_t rows>
[[gnu::always_inline]] inline void scan_rows(const DeltaRule &task, size_t first, size_t count,
                                             size_t r) {
    const auto width = [count](size_t v) STASIS_STEP { return v + 1 == vectors ? count : kLanes; };
    const auto in_row = [&](size_t row, size_t v) STASIS_STEP {
        return (r + row) * task.value_stride + first + v * kLanes;
    };
    const float *const keys = task.key + r * task.qk_stride;
    const float *const queries = task.query + r * task.qk_stride;
    Lanes decay[rows], change[rows][vectors], output[rows][vectors];
    for (size_t row = 0; row < rows; ++row) {
        const size_t gate = (r + row) * task.gate_stride;
        decay[row] = broadcast(task.decay[gate]);
        for (size_t v = 0; v < vectors; ++v) {
            change[row][v] =
                load(task.value + in_row(row, v), width(v)) * broadcast(task.beta[gate]);
            output[row][v] = broadcast(0.0F);
        }
    }
    for (size_t i = 0; i < task.key_dim; ++i) {
        float *const state = task.state + first + i * task.state_stride;
        Lanes s[vectors];
        for (size_t v = 0; v < vectors; ++v) {
            s[v] = load(state + v * kLanes, width(v));
        }
        for (size_t row = 0; row < rows; ++row) {
            const Lanes b = broadcast(keys[row * task.qk_stride + i]);
            const Lanes c = broadcast(queries[row * task.qk_stride + i]);
            for (size_t v = 0; v < vectors; ++v) {
                s[v] = fma(b, change[row][v], s[v] * decay[row]);
                output[row][v] = fma(s[v], c, output[row][v]);
            }
        }
        for (size_t v = 0; v < vectors; ++v) {
            store(s[v], state + v * kLanes, width(v));
        }
    }
    for (size_t row = 0; row < rows; ++row) {
        for (size_t v = 0; v < vectors; ++v) {
            const Lanes x = load(task.value + in_row(row, v), width(v));
            store(fma(broadcast(task.skip), x, output[row][v]), task.output + in_row(row, v),
                  width(v));
        }
    }
}

template <size_t vectors>
[[gnu::always_inline]] inline void scan_columns(const DeltaRule &task, size_t first, size_t count) {
    size_t r = 0;
    for (; r + kScanned <= task.rows; r += kScanned) {
        scan_rows<vectors, kScanned>(task, first, count, r);
    }
    for (; r < task.rows; ++r) {
        scan_rows<vectors, 1>(task, first, count, r);
    }
}

// Calls step<vectors>(first column, columns of the last vector) until all columns are done.
template <typename Step>
[[gnu::always_inline]] inline void by_columns(size_t columns, const Step &step) {
    size_t column = 0;
    for (; column + kTogether * kLanes <= columns; column += kTogether * kLanes) {
        step.template operator()<kTogether>(column, kLanes);
    }
    for (; column + kLanes <= columns; column += kLanes) {
        step.template operator()<1>(column, kLanes);
    }
    if (column < columns) {
        step.template operator()<1>(column, columns - column);
    }
}

void delta_rule(const DeltaRule &task) {
    if (task.rows != 0) {
        by_columns(task.columns, [&]<size_t vectors>(size_t first, size_t count)
                                     STASIS_STEP { delta_columns<vectors>(task, first, count); });
    }
}

void selective_scan(const DeltaRule &task) {
    by_columns(task.columns, [&]<size_t vectors>(size_t first, size_t count)
                                 STASIS_STEP { scan_columns<vectors>(task, first, count); });
}

void scan_gates(const float *dt, const float *rate, const float *bias, float least, float most,
                size_t n, float *decay, float *step) {
    const Lanes low = broadcast(least), high = broadcast(most);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        Lanes size = softplus(load(dt + i, count) + load(bias + i, count));
        size = select(size < low, low, size);
        size = select(high < size, high, size);
        store(exp(load(rate + i, count) * size), decay + i, count);
        store(size, step + i, count);
    });
}

void silu_multiply(const float *gate, const float *x, size_t n, float *y) {
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes g = load(gate + i, count);
        store((g * sigmoid(g)) * load(x + i, count), y + i, count);
    });
}

void attention_finish_gated(const float *o, float l, const float *gate, size_t head_dim,
                            uint16_t *y) {
    const Lanes divisor = broadcast(l);
    by_lanes(head_dim, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes open = sigmoid(load(gate + i, count));
        store_bf16((load(o + i, count) / divisor) * open, y + i, count);
    });
}

} // namespace

void add_recurrent(Table &table) {
    table.convolve = convolve;
    table.multiply = multiply;
    table.delta_gates = delta_gates;
    table.delta_rule = delta_rule;
    table.scan_gates = scan_gates;
    table.selective_scan = selective_scan;
    table.silu_multiply = silu_multiply;
    table.attention_finish_gated = attention_finish_gated;
}

} // namespace stasis::kernels::STASIS_TABLE
