// The kernels of recurrent layers, token by token (C11): Gated DeltaNet (Yang, Kautz and
// Hatamizadeh, "Gated Delta Networks", 2024), Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024)
// and short convolutions.
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void convolve(const Convolution &task) {
    for (size_t row = 0; row < task.rows; ++row) {
        for (size_t channel = 0; channel < task.channels; ++channel) {
            float sum = task.bias == nullptr ? 0.0F : task.bias[channel];
            for (size_t tap = 0; tap < task.taps; ++tap) {
                const size_t at = row + tap; // in `before`, and behind its end in x
                const float *inputs = at + 1 < task.taps
                                          ? task.before + at * task.width
                                          : task.x + (at + 1 - task.taps) * task.x_stride;
                sum = fma(task.weights[tap * task.width + channel], inputs[channel], sum);
            }
            task.y[row * task.y_stride + channel] = task.plain ? sum : sum * sigmoid(sum);
        }
    }
}

void delta_gates(const float *a, const float *b, const float *rate, const float *bias, size_t n,
                 float *decay, float *beta) {
    for (size_t head = 0; head < n; ++head) {
        decay[head] = exp(rate[head] * softplus(a[head] + bias[head]));
        beta[head] = sigmoid(b[head]);
    }
}

// Rows change the state where the last one leaves it.
void take_state(const DeltaRule &task) {
    for (size_t i = 0; i < task.key_dim; ++i) {
        for (size_t j = 0; j < task.columns; ++j) {
            task.after[i * task.state_stride + j] = task.before[i * task.state_stride + j];
        }
    }
}

void delta_rule(const DeltaRule &task) {
    take_state(task);
    for (size_t row = 0; row < task.rows; ++row) {
        const float *key = task.key + row * task.qk_stride;
        const float *query = task.query + row * task.qk_stride;
        const float decay = task.decay[row * task.gate_stride];
        const float beta = task.beta[row * task.gate_stride];
        for (size_t j = 0; j < task.columns; ++j) {
            float *column = task.after + j;
            const size_t stride = task.state_stride;
            float known = 0.0F; // what the state holds under this key
            for (size_t i = 0; i < task.key_dim; ++i) {
                column[i * stride] = column[i * stride] * decay;
                known = fma(column[i * stride], key[i], known);
            }
            const size_t at = row * task.value_stride + j;
            const float change = (task.value[at] - known) * beta;
            float output = 0.0F;
            for (size_t i = 0; i < task.key_dim; ++i) {
                column[i * stride] = fma(key[i], change, column[i * stride]);
                output = fma(column[i * stride], query[i], output);
            }
            task.output[at] = output;
        }
    }
}

void scan_gates(const float *dt, const float *rate, const float *bias, float least, float most,
                size_t n, float *decay, float *step) {
    for (size_t head = 0; head < n; ++head) {
        float size = softplus(dt[head] + bias[head]);
        size = size < least ? least : size;
        step[head] = most < size ? most : size;
        decay[head] = exp(rate[head] * step[head]);
    }
}

void selective_scan(const DeltaRule &task) {
    take_state(task);
    for (size_t row = 0; row < task.rows; ++row) {
        const float *b = task.key + row * task.qk_stride;
        const float *c = task.query + row * task.qk_stride;
        const float decay = task.decay[row * task.gate_stride];
        const float step = task.beta[row * task.gate_stride];
        for (size_t j = 0; j < task.columns; ++j) {
            const size_t at = row * task.value_stride + j;
            const float x = task.value[at];
            const float change = x * step;
            float output = 0.0F;
            for (size_t i = 0; i < task.key_dim; ++i) {
                float *s = task.after + i * task.state_stride + j;
                *s = fma(b[i], change, *s * decay);
                output = fma(*s, c[i], output);
            }
            task.output[at] = fma(task.skip, x, output);
        }
    }
}

void silu_multiply(const float *gate, const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = (gate[i] * sigmoid(gate[i])) * x[i];
    }
}

void multiply(const float *a, const float *b, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = a[i] * b[i];
    }
}

void attention_finish_gated(const float *o, float l, const float *gate, size_t head_dim,
                            uint16_t *y) {
    for (size_t i = 0; i < head_dim; ++i) {
        y[i] = f32_to_bf16((o[i] / l) * sigmoid(gate[i]));
    }
}

} // namespace

void add_recurrent(Table &table) {
    table.convolve = convolve;
    table.delta_gates = delta_gates;
    table.delta_rule = delta_rule;
    table.scan_gates = scan_gates;
    table.selective_scan = selective_scan;
    table.silu_multiply = silu_multiply;
    table.multiply = multiply;
    table.attention_finish_gated = attention_finish_gated;
}

} // namespace stasis::kernels::STASIS_REFERENCE
