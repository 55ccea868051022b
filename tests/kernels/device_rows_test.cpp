// The device's kernels that take a row at a time, against the reference's.
#include "runtime/kernels/environment.h"
#include "tests/device/fenced.h"
#include "tests/kernels/edges.h"

using stasis::kernels::DeviceEmbed;
using stasis::kernels::DeviceResidual;
using stasis::kernels::DeviceRow;
using stasis::kernels::FloatEnvironment;
using stasis::kernels::reference_table;
using stasis::kernels::Table;
using under_test::Fenced;
using under_test::Opened;
using under_test::There;

namespace {

constexpr size_t kRowCount = 3;
constexpr uint32_t kRowsLayer = 5;

// One call of `residual`, and what must come of it.
struct Residual {
    size_t hidden;
    float eps;
    bool adds, post;
    std::vector<float> wide, post_norm, stream, norm; // inputs
    std::vector<uint32_t> failed;
    std::vector<float> stream_after;
    std::vector<uint16_t> narrow;
    std::vector<uint32_t> failed_after;
};

void compute(Residual &x) {
    const Table &reference = reference_table();
    const FloatEnvironment environment;
    std::vector<float> wide = x.wide, normed(x.hidden);
    x.stream_after = x.stream, x.failed_after = x.failed;
    x.narrow.resize(x.stream.size());
    for (size_t r = 0; r < kRowCount; ++r) {
        float *term = wide.data() + r * x.hidden, *row = x.stream_after.data() + r * x.hidden;
        if (x.adds && x.post) {
            reference.rms_norm(term, x.post_norm.data(), x.hidden, x.eps, term);
        }
        if (x.adds) {
            reference.add(term, x.hidden, row);
        }
        reference.rms_norm(row, x.norm.data(), x.hidden, x.eps, normed.data());
        reference.round_bf16(normed.data(), x.hidden, x.narrow.data() + r * x.hidden);
        if (reference.find_nonfinite(normed.data(), x.hidden) < x.hidden) {
            x.failed_after[r] = std::min(x.failed[r], kRowsLayer);
        }
    }
}

// Makes the norm that comes first one on the edges of flushing.
void put_edges(Residual &x, const EdgeNorm &edges) {
    (x.adds ? x.post_norm : x.norm) = edges.weight;
    for (size_t i = 0; i < x.hidden; ++i) {
        (x.adds ? x.wide : x.stream)[i] = edges.x[i];
        if (x.adds) {
            x.stream[i] = 0.0F;
        }
    }
}

void check_residual(const Opened &on, const Residual &x, bool marks) {
    const There<float> wide(on, x.wide), post_norm(on, x.post_norm), norm(on, x.norm);
    const Fenced<float> stream(on, x.stream);
    const Fenced<uint16_t> narrow(on, std::vector<uint16_t>(x.stream.size()));
    const Fenced<uint32_t> failed(on, x.failed);
    DeviceResidual task;
    task.rows = kRowCount, task.hidden = x.hidden, task.eps = x.eps, task.layer = kRowsLayer;
    task.wide = x.adds ? wide.get() : nullptr;
    task.post_norm = x.post ? post_norm.get() : nullptr;
    task.stream = stream.get(), task.norm = norm.get(), task.narrow = narrow.get();
    task.failed = marks ? failed.get() : nullptr;
    on.table.residual(on.queue, task);
    on.finish();
    CHECK(first_difference(stream.values(), x.stream_after) == -1);
    CHECK(first_difference(narrow.values(), x.narrow) == -1);
    CHECK(failed.values() == (marks ? x.failed_after : x.failed));
}

} // namespace

TEST_CASE("device: the residual stream and its norms equal the reference") {
    Numbers numbers(1);
    size_t marked = 0;
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t hidden : {1, 2, 16, 67, 256, 640, 4133}) {
            for (const Kind kind : kKinds) {
                for (const size_t way : {0, 1, 2, 3, 4, 5}) {
                    const size_t n = kRowCount * hidden;
                    const float eps = numbers.below(3) == 0 ? 0.0F : 1e-6F;
                    Residual x{hidden,
                               eps,
                               way % 3 > 0,
                               way % 3 == 2,
                               numbers.floats(n, kind),
                               numbers.floats(hidden, kind),
                               numbers.floats(n, kind),
                               numbers.floats(hidden, kKinds[numbers.below(6)]),
                               {kRowsLayer - 1, kRowsLayer + 1, 0xFFFFFFFFU},
                               {},
                               {},
                               {}};
                    if (numbers.below(3) == 0) { // infinity, NaN
                        const uint32_t bits = 0x7F800000U + static_cast<uint32_t>(numbers.below(2));
                        x.stream[numbers.below(n)] = std::bit_cast<float>(bits);
                    } else if (hidden >= 16 && x.adds == x.post) {
                        put_edges(x, edge_norm(numbers, hidden, eps));
                    }
                    compute(x);
                    marked += x.failed_after != x.failed ? 1 : 0;
                    INFO("hidden ", hidden, ", kind ", static_cast<int>(kind), ", way ", way);
                    check_residual(on, x, way < 3);
                }
            }
        }
    });
    CHECK(marked > 20);
}

// A bf16 with a partner that is on the edge.
static float edge_bf16(Numbers &numbers) {
    for (;;) {
        const float x = stasis::kernels::bf16_to_f32(numbers.bf16(1, Kind::wide)[0]);
        if (std::fabs(x) < 1.0F && on_edge(x, partner(x))) {
            return x;
        }
    }
}

TEST_CASE("device: embeddings of either width equal the reference") {
    constexpr size_t kVocabulary = 23;
    Numbers numbers(2);
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t hidden : {1, 67, 256, 640}) {
            for (const Kind kind : kKinds) {
                const float edge = edge_bf16(numbers);
                const float scales[] = {1.0F, numbers.next(kind), partner(edge)};
                const float scale = scales[numbers.below(3)];
                std::vector<uint16_t> narrow = numbers.bf16(kVocabulary * hidden, kind);
                std::vector<float> wide = numbers.floats(kVocabulary * hidden, kind);
                for (size_t i = 0; i < kVocabulary * hidden; i += 3) {
                    wide[i] = i % 2 == 0 ? edge : -edge;
                    narrow[i] = stasis::kernels::f32_to_bf16(wide[i]);
                }
                std::vector<DeviceRow> rows(kRowCount);
                std::vector<float> expected[2];
                for (DeviceRow &row : rows) {
                    row.token = static_cast<uint32_t>(numbers.below(kVocabulary));
                    const size_t at = expected[0].size(), from = row.token * hidden;
                    const FloatEnvironment environment;
                    for (std::vector<float> &all : expected) {
                        all.resize(at + hidden);
                    }
                    reference_table().embed(&narrow[from], scale, hidden, &expected[0][at]);
                    reference_table().embed_wide(&wide[from], scale, hidden, &expected[1][at]);
                }
                const There<uint16_t> there_narrow(on, narrow);
                const There<float> there_wide(on, wide);
                const There<DeviceRow> there_rows(on, rows);
                for (const bool is_wide : {false, true}) {
                    const Fenced<float> stream(on, std::vector<float>(kRowCount * hidden));
                    DeviceEmbed task;
                    task.pass.row_count = kRowCount, task.pass.rows = there_rows.get();
                    task.narrow = is_wide ? nullptr : there_narrow.get();
                    task.wide = is_wide ? there_wide.get() : nullptr;
                    task.scale = scale, task.hidden = hidden, task.stream = stream.get();
                    on.table.embed(on.queue, task);
                    on.finish();
                    CHECK(first_difference(stream.values(), expected[is_wide ? 1 : 0]) == -1);
                }
            }
        }
    });
}

TEST_CASE("device: capped logits equal the reference") {
    Numbers numbers(3);
    under_test::for_each_device([&](const Opened &on) {
        for (const size_t n : {1, 255, 256, 257, 1000}) {
            for (const Kind kind : kKinds) {
                for (const float cap : {30.0F, 0x1.8p-3F, std::fabs(edge_factor(numbers, -20)),
                                        std::fabs(edge_factor(numbers, -5))}) {
                    std::vector<float> x = numbers.floats(n, kind);
                    std::copy_n(kSensitive, std::min(n, std::size(kSensitive)), x.begin());
                    x[numbers.below(n)] = -0.0F;
                    x[0] = 0x1p-126F, x[n / 2] = -0x1p-126F; // of the cap's edge
                    if (numbers.below(3) == 0) {
                        x[numbers.below(n)] = -__builtin_inff();
                    }
                    const Fenced<float> there(on, x);
                    on.table.softcap(on.queue, there.get(), n, cap);
                    on.finish();
                    const FloatEnvironment environment;
                    reference_table().softcap(x.data(), n, cap);
                    CHECK(first_difference(there.values(), x) == -1);
                }
            }
        }
    });
}
