// The naive restatement; see naive.h. Steps are in the order of NUMERICS.md, clause by clause.
#include "tests/kernels/naive.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/kernels/soft_float.h"

namespace naive {

float from_bf16(uint16_t x) {
    uint32_t bits = x;
    bits *= 65536;
    return std::bit_cast<float>(bits);
}

// C6: MPFR rounds to 8 bits.
uint16_t to_bf16(float x) {
    if (std::isnan(x)) {
        return 0x7FC0;
    }
    const soft::Number wide(x);
    mpfr_t rounded;
    mpfr_init2(rounded, 8);
    mpfr_set(rounded, wide.value, MPFR_RNDN);
    const float y = mpfr_get_flt(rounded, MPFR_RNDN);
    mpfr_clear(rounded);
    return y == 0.0F ? 0 : static_cast<uint16_t>(std::bit_cast<uint32_t>(y) / 65536);
}

// C3
float exp(float x) {
    if (std::isnan(x)) {
        return x;
    }
    if (x < -87.0F) {
        return 0.0F;
    }
    if (x > 0x1.62e42ep+6F) {
        return std::numeric_limits<float>::infinity();
    }
    const float n = soft::sub(soft::fma(x, 0x1.715476p+0F, 12582912.0F), 12582912.0F);
    const float r = soft::fma(n, -0x1.7f7d1cp-20F, soft::fma(n, -0x1.62e4p-1F, x));
    float q = 0x1.6a235ep-10F;
    q = soft::fma(q, r, 0x1.123a68p-7F);
    q = soft::fma(q, r, 0x1.5558f4p-5F);
    q = soft::fma(q, r, 0x1.555490p-3F);
    q = soft::fma(q, r, 0x1.fffffcp-2F);
    q = soft::fma(q, r, 1.0F);
    q = soft::fma(q, r, 1.0F);
    return std::ldexp(q, static_cast<int>(n));
}

float tanh(float x) {
    if (std::isnan(x)) {
        return x;
    }
    const float a = std::fabs(x);
    if (a < 0.625F) {
        const float z = soft::mul(x, x);
        float q = -0x1.75e1c2p-8F;
        q = soft::fma(q, z, 0x1.522698p-6F);
        q = soft::fma(q, z, -0x1.b83c5ap-5F);
        q = soft::fma(q, z, 0x1.110726p-3F);
        q = soft::fma(q, z, -0x1.555532p-2F);
        return soft::fma(soft::mul(x, z), q, x);
    }
    const float e = exp(soft::mul(2.0F, a));
    const float y = soft::sub(1.0F, soft::div(2.0F, soft::add(e, 1.0F)));
    return std::signbit(x) ? -y : y;
}

float sigmoid(float x) {
    const float e = exp(-std::fabs(x));
    return soft::div(x < 0.0F ? e : 1.0F, soft::add(1.0F, e));
}

namespace {

// C4
float tree(std::vector<float> lanes) {
    for (size_t j = 0; j < 8; ++j) {
        lanes[j] = soft::add(lanes[j], lanes[j + 8]);
    }
    for (size_t j = 0; j < 4; ++j) {
        lanes[j] = soft::add(lanes[j], lanes[j + 4]);
    }
    lanes[0] = soft::add(lanes[0], lanes[2]);
    lanes[1] = soft::add(lanes[1], lanes[3]);
    return soft::add(lanes[0], lanes[1]);
}

float sum(const std::vector<float> &x) {
    std::vector<float> lanes(16, 0.0F);
    for (size_t i = 0; i < x.size(); ++i) {
        lanes[i % 16] = soft::add(lanes[i % 16], x[i]);
    }
    return tree(lanes);
}

} // namespace

float sum_of_squares(const float *x, size_t n) {
    std::vector<float> lanes(16, 0.0F);
    for (size_t j = 0; j < 16; ++j) {
        for (size_t i = j; i < n; i += 16) {
            lanes[j] = soft::fma(x[i], x[i], lanes[j]);
        }
    }
    return tree(lanes);
}

// C1
float block(const uint16_t *a, size_t a_step, const uint16_t *b, size_t b_step, size_t n) {
    float even = 0.0F;
    float odd = 0.0F;
    for (size_t i = 0; i < 32; ++i) {
        const float x = i < n ? from_bf16(a[i * a_step]) : 0.0F;
        const float y = i < n ? from_bf16(b[i * b_step]) : 0.0F;
        float &chain = i % 2 == 0 ? even : odd;
        chain = soft::fma(x, y, chain);
    }
    return soft::add(even, odd);
}

float dot(const uint16_t *a, size_t a_step, const uint16_t *b, size_t b_step, size_t n) {
    float c = 0.0F;
    for (size_t i = 0; i < n; i += 32) {
        c = soft::add(c, block(a + i * a_step, a_step, b + i * b_step, b_step, n - i));
    }
    return c;
}

void matmul(const Product &task) {
    for (size_t r = 0; r < task.rows; ++r) {
        for (size_t n = 0; n < task.outputs; ++n) {
            task.y[r * task.y_stride + n] =
                dot(task.x + r * task.x_stride, 1, task.w + n * task.w_stride, 1, task.depth);
        }
    }
}

namespace {

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y) {
    const float mean = soft::div(sum_of_squares(x, n), static_cast<float>(n));
    const float scale = soft::div(1.0F, soft::sqrt(soft::add(mean, eps)));
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(soft::mul(x[i], scale), weight[i]);
    }
}

void round_bf16(const float *x, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = to_bf16(x[i]);
    }
}

void rope(float *x, const float *cosine, const float *sine, size_t n) {
    for (size_t i = 0; i < n / 2; ++i) {
        const float a = x[i];
        const float b = x[i + n / 2];
        x[i] = soft::fma(a, cosine[i], -soft::mul(b, sine[i]));
        x[i + n / 2] = soft::fma(b, cosine[i], soft::mul(a, sine[i]));
    }
}

} // namespace

// C5
void attention_block(const stasis::kernels::AttentionBlock &task, const uint16_t *query,
                     size_t query_stride) {
    constexpr size_t slots = 64;
    for (size_t r = 0; r < task.rows; ++r) {
        std::vector<bool> visible(slots);
        std::vector<float> s(slots);
        bool any = false;
        float m = 0.0F;
        for (size_t j = 0; j < slots; ++j) {
            visible[j] = ((task.visible[r] >> j) & 1) == 1;
            if (!visible[j]) {
                continue;
            }
            s[j] =
                dot(query + r * query_stride, 1, task.keys + j * task.head_dim, 1, task.head_dim);
            s[j] = soft::mul(s[j], task.scale);
            if (task.softcap != 0.0F) {
                s[j] = soft::mul(task.softcap, tanh(soft::div(s[j], task.softcap)));
            }
            m = !any || s[j] > m ? s[j] : m;
            any = true;
        }
        if (!any) {
            continue;
        }
        std::vector<uint16_t> p(slots, 0);
        std::vector<float> rounded(slots, 0.0F);
        std::vector<uint16_t> values(task.values, task.values + slots * task.head_dim);
        for (size_t j = 0; j < slots; ++j) {
            if (visible[j]) {
                p[j] = to_bf16(exp(soft::sub(s[j], m)));
                rounded[j] = from_bf16(p[j]);
            } else {
                for (size_t i = 0; i < task.head_dim; ++i) {
                    values[j * task.head_dim + i] = 0;
                }
            }
        }
        task.maximum[r] = m == 0.0F ? 0.0F : m;
        task.sum[r] = sum(rounded);
        if (task.weights != nullptr) {
            std::copy(p.begin(), p.end(), task.weights + r * slots);
        }
        for (size_t i = 0; i < task.head_dim; ++i) {
            const float o = dot(p.data(), 1, values.data() + i, task.head_dim, slots);
            task.output[r * task.head_dim + i] = o == 0.0F ? 0.0F : o;
        }
    }
}

namespace {

void attention_merge(const stasis::kernels::AttentionMerge &task) {
    for (size_t row = 0; row < task.rows; ++row) {
        const bool seen = task.visible[row] != 0, first = task.sum[row] == 0.0F;
        float &m = task.maximum[row], &l = task.sum[row];
        const float m_b = task.block_maximum[row], l_b = task.block_sum[row];
        const float maximum = m < m_b ? m_b : m;
        const float alpha = exp(soft::sub(m, maximum));
        const float beta = exp(soft::sub(m_b, maximum));
        const auto merged = [&](float x, float x_b) {
            return first ? x_b : soft::fma(x_b, beta, soft::mul(x, alpha));
        };
        for (size_t i = row * task.head_dim; seen && i < (row + 1) * task.head_dim; ++i) {
            task.output[i] = merged(task.output[i], task.block_output[i]);
        }
        l = seen ? merged(l, l_b) : l;
        m = seen ? (first ? m_b : maximum) : m;
    }
}

void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y) {
    for (size_t i = 0; i < head_dim; ++i) {
        y[i] = to_bf16(soft::div(o[i], l));
    }
}

} // namespace

// C10: MPFR with the 53 bits of an f64.
uint64_t received(uint16_t p, double share) {
    mpfr_t product, floor;
    mpfr_inits2(53, product, floor, static_cast<mpfr_ptr>(nullptr));
    mpfr_set_flt(product, from_bf16(p), MPFR_RNDN);
    mpfr_mul_d(product, product, share, MPFR_RNDN);
    mpfr_mul_2ui(product, product, 32, MPFR_RNDN);
    mpfr_floor(floor, product);
    const uint64_t result = mpfr_get_uj(floor, MPFR_RNDN);
    mpfr_clears(product, floor, static_cast<mpfr_ptr>(nullptr));
    return result;
}

namespace {

// C3, activations
void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = to_bf16(soft::mul(soft::mul(gate[i], sigmoid(gate[i])), up[i]));
    }
}

void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        const float square = soft::mul(gate[i], gate[i]);
        const float u = soft::mul(gate[i], soft::fma(square, 0x1.2444f2p-4F, 0x1.988454p+0F));
        y[i] = to_bf16(soft::mul(soft::mul(gate[i], sigmoid(u)), up[i]));
    }
}

void limited_gate(const float *gate, const float *up, size_t n, float limit, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        const float x = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        const float activated = soft::mul(x, sigmoid(soft::mul(x, 0x1.b3b646p+0F)));
        y[i] = to_bf16(soft::mul(activated, soft::add(u, 1.0F)));
    }
}

// C7, steps 5 and 7
size_t first_largest(const float *x, size_t n) {
    return static_cast<size_t>(std::max_element(x, x + n) - x);
}

void draw_powers(const float *logits, size_t n, float temperature, float best, float *scaled,
                 float *powers) {
    for (size_t i = 0; i < n; ++i) {
        const float quotient = soft::div(logits[i], temperature);
        scaled[i] = std::isinf(quotient) ? std::copysign(FLT_MAX, quotient) : quotient;
        const float below = soft::sub(scaled[i], best);
        const bool counts = below >= -28.0F && !(std::isinf(logits[i]) && logits[i] < 0.0F);
        powers[i] = counts ? exp(below) : 0.0F;
    }
}

// C12
void softmax(const float *x, size_t n, float *y) {
    std::vector<float> powers(x, x + n);
    const float m = *std::max_element(powers.begin(), powers.end());
    for (float &power : powers) {
        power = exp(soft::sub(power, m));
    }
    const float total = sum(powers);
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::div(powers[i], total);
    }
}

void add_scaled(const float *x, float factor, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::fma(x[i], factor, y[i]);
    }
}

void sigmoid_of(const float *x, size_t n, float *y) {
    std::transform(x, x + n, y, sigmoid);
}

void add(const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::add(y[i], x[i]);
    }
}

void embed(const uint16_t *row, float scale, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(from_bf16(row[i]), scale);
    }
}

void embed_wide(const float *row, float scale, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = soft::mul(row[i], scale);
    }
}

void softcap(float *x, size_t n, float cap) {
    for (size_t i = 0; i < n; ++i) {
        x[i] = soft::mul(cap, tanh(soft::div(x[i], cap)));
    }
}

// C9: 0x1.ffp+127 is half-way between the largest bf16 and 2^128, and rounds to infinity.
size_t find_nonfinite(const float *x, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        if (!(std::fabs(x[i]) < 0x1.ffp+127F)) {
            return i;
        }
    }
    return n;
}

} // namespace

const stasis::kernels::Table &table() {
    static const stasis::kernels::Table entries = [] {
        stasis::kernels::Table made = {};
        made.name = "naive";
        made.rms_norm = rms_norm;
        made.round_bf16 = round_bf16;
        made.rope = rope;
        made.attention_merge = attention_merge;
        made.attention_finish = attention_finish;
        add_recurrent(made);
        made.softmax = softmax;
        made.add_scaled = add_scaled;
        made.sigmoid = sigmoid_of;
        made.silu_gate = silu_gate;
        made.gelu_gate = gelu_gate;
        made.limited_gate = limited_gate;
        made.add = add;
        made.embed = embed;
        made.embed_wide = embed_wide;
        made.softcap = softcap;
        made.find_nonfinite = find_nonfinite;
        made.first_largest = first_largest;
        made.draw_powers = draw_powers;
        return made;
    }();
    return entries;
}

} // namespace naive
