// The naive restatement of C11; see naive.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/naive.h"
#include "tests/kernels/soft_float.h"

namespace naive {

// C3
float softplus(float x) {
    const float e = exp(-std::fabs(x));
    const float twice = soft::div(e, soft::add(1.0F, soft::mul(0.5F, e)));
    const float s = soft::mul(0.5F, twice);
    const float z = soft::mul(s, s);
    float q = 0x1.1ed7bep-2F;
    q = soft::fma(q, z, 0x1.1ebd0ep-2F);
    q = soft::fma(q, z, 0x1.99d208p-2F);
    q = soft::fma(q, z, 0x1.555502p-1F);
    const float log = soft::fma(soft::mul(s, z), q, twice);
    return soft::add(x > 0.0F ? x : 0.0F, log);
}

namespace {

void l2_norm(const float *x, size_t n, float eps, float factor, float *y) {
    const float sum = sum_of_squares(x, n);
    const float scale = soft::div(1.0F, soft::sqrt(soft::add(sum, eps)));
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(soft::mul(x[i], scale), factor);
    }
}

void convolve(const stasis::kernels::Convolution &task) {
    for (size_t c = 0; c < task.channels; ++c) {
        std::vector<float> inputs; // those before the first row, and then all rows
        for (size_t t = 0; t + 1 < task.taps; ++t) {
            inputs.push_back(task.before[t * task.width + c]);
        }
        for (size_t r = 0; r < task.rows; ++r) {
            inputs.push_back(task.x[r * task.x_stride + c]);
        }
        for (size_t r = 0; r < task.rows; ++r) {
            float s = task.bias == nullptr ? 0.0F : task.bias[c];
            for (size_t t = 0; t < task.taps; ++t) {
                s = soft::fma(task.weights[t * task.width + c], inputs[r + t], s);
            }
            task.y[r * task.y_stride + c] = task.plain ? s : soft::mul(s, sigmoid(s));
        }
    }
}

void multiply(const float *a, const float *b, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(a[i], b[i]);
    }
}

void delta_gates(const float *a, const float *b, const float *rate, const float *bias, size_t n,
                 float *decay, float *beta) {
    for (size_t h = 0; h < n; ++h) {
        decay[h] = exp(soft::mul(rate[h], softplus(soft::add(a[h], bias[h]))));
        beta[h] = sigmoid(b[h]);
    }
}

void delta_rule(const stasis::kernels::DeltaRule &task) {
    for (size_t j = 0; j < task.columns; ++j) {
        std::vector<float> s(task.key_dim);
        for (size_t i = 0; i < task.key_dim; ++i) {
            s[i] = task.before[i * task.state_stride + j];
        }
        for (size_t r = 0; r < task.rows; ++r) {
            const float *k = task.key + r * task.qk_stride;
            const float *q = task.query + r * task.qk_stride;
            float known = 0.0F, output = 0.0F;
            for (size_t i = 0; i < task.key_dim; ++i) {
                s[i] = soft::mul(s[i], task.decay[r * task.gate_stride]);
                known = soft::fma(s[i], k[i], known);
            }
            const float change = soft::mul(soft::sub(task.value[r * task.value_stride + j], known),
                                           task.beta[r * task.gate_stride]);
            for (size_t i = 0; i < task.key_dim; ++i) {
                s[i] = soft::fma(k[i], change, s[i]);
                output = soft::fma(s[i], q[i], output);
            }
            task.output[r * task.value_stride + j] = output;
        }
        for (size_t i = 0; i < task.key_dim; ++i) {
            task.after[i * task.state_stride + j] = s[i];
        }
    }
}

void scan_gates(const float *dt, const float *rate, const float *bias, float least, float most,
                size_t n, float *decay, float *step) {
    for (size_t h = 0; h < n; ++h) {
        step[h] = softplus(soft::add(dt[h], bias[h]));
        if (step[h] < least) {
            step[h] = least;
        }
        if (step[h] > most) {
            step[h] = most;
        }
        decay[h] = exp(soft::mul(rate[h], step[h]));
    }
}

void selective_scan(const stasis::kernels::DeltaRule &task) {
    for (size_t j = 0; j < task.columns; ++j) {
        std::vector<float> s(task.key_dim);
        for (size_t i = 0; i < task.key_dim; ++i) {
            s[i] = task.before[i * task.state_stride + j];
        }
        for (size_t r = 0; r < task.rows; ++r) {
            const float x = task.value[r * task.value_stride + j];
            const float u = soft::mul(x, task.beta[r * task.gate_stride]);
            float output = 0.0F;
            for (size_t i = 0; i < task.key_dim; ++i) {
                const float past = soft::mul(s[i], task.decay[r * task.gate_stride]);
                s[i] = soft::fma(task.key[r * task.qk_stride + i], u, past);
                output = soft::fma(s[i], task.query[r * task.qk_stride + i], output);
            }
            task.output[r * task.value_stride + j] = soft::fma(task.skip, x, output);
        }
        for (size_t i = 0; i < task.key_dim; ++i) {
            task.after[i * task.state_stride + j] = s[i];
        }
    }
}

void silu_multiply(const float *gate, const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(soft::mul(gate[i], sigmoid(gate[i])), x[i]);
    }
}

void attention_finish_gated(const float *o, float l, const float *gate, size_t head_dim,
                            uint16_t *y) {
    for (size_t i = 0; i < head_dim; ++i) {
        y[i] = to_bf16(soft::mul(soft::div(o[i], l), sigmoid(gate[i])));
    }
}

} // namespace

void add_recurrent(stasis::kernels::Table &table) {
    table.l2_norm = l2_norm;
    table.convolve = convolve;
    table.multiply = multiply;
    table.delta_gates = delta_gates;
    table.delta_rule = delta_rule;
    table.scan_gates = scan_gates;
    table.selective_scan = selective_scan;
    table.silu_multiply = silu_multiply;
    table.attention_finish_gated = attention_finish_gated;
}

} // namespace naive
