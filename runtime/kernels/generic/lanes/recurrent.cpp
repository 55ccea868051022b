// The kernels of recurrent layers (C11). Lanes are channels, heads or columns of the state, so
// that no sum crosses them.
#include <cassert>

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

// Asks for a piece of a row of the state that is read soon: states of large models lie in memory,
// and pieces of rows are what a processor does not see coming. Behind the last row there is the
// next head, or nothing.
template <size_t vectors>
[[gnu::always_inline]] inline void fetch_state(const float *row, size_t stride) {
    constexpr size_t kRowsAhead = 32;
    const uintptr_t ahead = reinterpret_cast<uintptr_t>(row) + kRowsAhead * stride * sizeof(float);
    for (size_t v = 0; v < vectors; ++v) {
        __builtin_prefetch(reinterpret_cast<const void *>(ahead + v * kLanes * sizeof(float)), 0,
                           2);
    }
}

// Whether all of the state that the last row leaves can be stored by whole lines, past the caches.
[[gnu::always_inline]] inline bool stores_far(const DeltaRule &task) {
    return task.far && reinterpret_cast<uintptr_t>(task.after) % (kLanes * sizeof(float)) == 0 &&
           task.state_stride % kLanes == 0 && task.columns % kLanes == 0;
}

// What the state holds under the first row's key, after its decay.
template <size_t vectors, typename Decayed>
[[gnu::always_inline]] inline void sum_known(const DeltaRule &task, const float *before,
                                             const float *key, const Decayed &decayed,
                                             Lanes *known) {
    for (size_t v = 0; v < vectors; ++v) {
        known[v] = broadcast(0.0F);
    }
    for (size_t i = 0; i < task.key_dim; ++i) {
        fetch_state<vectors>(before + i * task.state_stride, task.state_stride);
        for (size_t v = 0; v < vectors; ++v) {
            known[v] = fma(decayed(i, v), broadcast(key[i]), known[v]);
        }
    }
}

// Columns from `first` on: `vectors` vectors of 16, of which the last has `count` columns that
// exist. A row's change of the state and its decay by the next row are one pass over the state.
template <size_t vectors>
[[gnu::always_inline]] inline void delta_columns(const DeltaRule &given, size_t first,
                                                 size_t count) {
    const DeltaRule task = given; // which no store here can change: it stays in registers
    const float *const before = task.before + first;
    float *const between = task.between + first, *const after = task.after + first;
    const auto width = [count](size_t v) STASIS_STEP { return v + 1 == vectors ? count : kLanes; };
    const auto place = [](size_t stride, size_t i, size_t v)
                           STASIS_STEP { return i * stride + v * kLanes; };

    const DeltaRow first_row(task, 0);
    const auto decayed = [&](size_t i, size_t v) STASIS_STEP {
        return load(before + place(task.state_stride, i, v), width(v)) * broadcast(first_row.decay);
    };
    Lanes known[vectors]; // what the state holds under the next row's key
    sum_known<vectors>(task, before, first_row.key, decayed, known);

    const auto kept = [&](size_t i, size_t v) STASIS_STEP {
        return load(between + place(task.columns, i, v), width(v));
    };
    const bool far = stores_far(task);
    const auto leave = [&](Lanes x, size_t i, size_t v) STASIS_STEP {
        float *to = after + place(task.state_stride, i, v);
        far ? store_far(x, to) : store(x, to, width(v));
    };
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
        const auto keep = [&](Lanes x, size_t i, size_t v) STASIS_STEP {
            x = x * broadcast(next.decay);
            known[v] = fma(x, broadcast(next.key[i]), known[v]);
            store(x, between + place(task.columns, i, v), width(v));
        };
        const auto pass = [&](const auto &decayed_state, const auto &put) STASIS_STEP {
            for (size_t i = 0; i < task.key_dim; ++i) {
                const Lanes key = broadcast(row.key[i]), query = broadcast(row.query[i]);
                for (size_t v = 0; v < vectors; ++v) {
                    const Lanes x = fma(key, change[v], decayed_state(i, v));
                    output[v] = fma(x, query, output[v]);
                    put(x, i, v);
                }
            }
        };
        if (r == 0 && last) {
            pass(decayed, leave);
        } else if (r == 0) {
            pass(decayed, keep);
        } else if (last) {
            pass(kept, leave);
        } else {
            pass(kept, keep);
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

// Where a pass over the state reads it from and where to, from the first of the columns on.
struct StatePass {
    const float *from;
    float *to;
    size_t from_stride, to_stride;
    bool far; // stores past the caches

    [[gnu::always_inline]] StatePass(const DeltaRule &task, size_t first, size_t r, size_t rows)
        : from((r == 0 ? task.before : task.between) + first),
          to((r + rows == task.rows ? task.after : task.between) + first),
          from_stride(r == 0 ? task.state_stride : task.columns),
          to_stride(r + rows == task.rows ? task.state_stride : task.columns),
          far(r + rows == task.rows && stores_far(task)) {}
};

// The same of `rows` rows of the selective scan, from row r on.
template <size_t vectors, size_t rows>
[[gnu::always_inline]] inline void scan_rows(const DeltaRule &task, size_t first, size_t count,
                                             size_t r) {
    const StatePass state(task, first, r, rows);
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
        const float *const from = state.from + i * state.from_stride;
        if (r == 0) {
            fetch_state<vectors>(from, state.from_stride);
        }
        Lanes s[vectors];
        for (size_t v = 0; v < vectors; ++v) {
            s[v] = load(from + v * kLanes, width(v));
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
            float *to = state.to + i * state.to_stride + v * kLanes;
            state.far ? store_far(s[v], to) : store(s[v], to, width(v));
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

// Calls step<vectors>(first column, columns of the last vector) until all columns are done, and
// lets other threads see the state.
template <typename Step>
[[gnu::always_inline]] inline void by_columns(const DeltaRule &task, const Step &step) {
    assert(task.rows > 0);
    const size_t columns = task.columns;
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
    if (task.far) {
        finish_far_stores();
    }
}

void delta_rule(const DeltaRule &task) {
    by_columns(task, [&]<size_t vectors>(size_t first, size_t count)
                         STASIS_STEP { delta_columns<vectors>(task, first, count); });
}

void selective_scan(const DeltaRule &task) {
    by_columns(task, [&]<size_t vectors>(size_t first, size_t count)
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
