// Computes mixtures of experts; see experts.h. The rows are grouped by expert, so that an expert's
// weights are read once for all rows of a slice that chose it.
#include "runtime/compute/cpu/experts.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "runtime/compute/cpu/products.h"
#include "runtime/compute/cpu/rows.h"
#include "runtime/compute/network.h"

namespace stasis {

namespace {

// The rows [begin, begin + rows) of a pass in one layer.
struct Slice {
    Pass &pass;
    const ExpertWeights &weights;
    size_t begin, rows;

    const Network &network() const { return pass.network; }
    const Experts &experts() const { return pass.network.config.experts; }
    CpuScratch &work() const { return *pass.cpu; }
    ExpertScratch &scratch() const { return pass.cpu->experts; }
};

// Stores the indices of the `count` largest of n logits, ascending. Of equal ones the lower index
// comes first (C12). Logits that are not finite may be chosen or not; their row has failed.
void choose(const float *logits, size_t n, uint32_t *chosen, size_t count) {
    size_t held = 0; // in descending order of their logits
    for (uint32_t expert = 0; expert < n; ++expert) {
        size_t at = held;
        while (at > 0 && logits[expert] > logits[chosen[at - 1]]) {
            --at;
        }
        if (at == count) {
            continue;
        }
        held = std::min(held + 1, count);
        std::copy_backward(chosen + at, chosen + held - 1, chosen + held);
        chosen[at] = expert;
    }
    std::sort(chosen, chosen + count);
}

// Chooses the experts of each row, and their shares.
void route(const Slice &slice) {
    const kernels::Table &table = *slice.network().kernels;
    const Experts &experts = slice.experts();
    ExpertScratch &scratch = slice.scratch();
    slice.network().threads->run(slice.rows, 4, [&](size_t from, size_t to) {
        for (size_t row = from; row < to; ++row) {
            float *logits = scratch.logits + (slice.begin + row) * experts.count;
            uint32_t *chosen = scratch.chosen + row * experts.chosen;
            float *share = scratch.share + row * experts.chosen;
            if (table.find_nonfinite(logits, experts.count) != experts.count) {
                slice.work().bad[slice.begin + row] = 1;
            }
            choose(logits, experts.count, chosen, experts.chosen);
            table.softmax(logits, experts.count, logits);
            float sum = 0.0F;
            for (size_t i = 0; i < experts.chosen; ++i) {
                share[i] = logits[chosen[i]];
                sum += share[i];
            }
            for (size_t i = 0; i < experts.chosen && experts.renormalised; ++i) {
                share[i] /= sum;
            }
            for (size_t i = 0; i < experts.chosen && slice.weights.scales != nullptr; ++i) {
                share[i] *= slice.weights.scales[chosen[i]];
            }
        }
    });
}

// Groups the assignments by expert, and within a group by row.
void group_rows(const Slice &slice) {
    const Experts &experts = slice.experts();
    ExpertScratch &scratch = slice.scratch();
    const size_t assignments = slice.rows * experts.chosen;
    std::fill(scratch.counts.begin(), scratch.counts.end(), 0);
    for (size_t i = 0; i < assignments; ++i) {
        ++scratch.counts[scratch.chosen[i]];
    }
    scratch.groups.clear();
    size_t begin = 0;
    for (uint32_t expert = 0; expert < experts.count; ++expert) {
        const size_t rows = scratch.counts[expert];
        if (rows != 0) {
            scratch.groups.push_back({expert, begin, rows, {}, 0});
        }
        scratch.counts[expert] = begin; // from here on the next place in the group
        begin += rows;
    }
    for (size_t i = 0; i < assignments; ++i) {
        const size_t place = scratch.counts[scratch.chosen[i]]++;
        scratch.place[i] = static_cast<uint32_t>(place);
        scratch.row[place] = static_cast<uint32_t>(i / experts.chosen);
    }
}

size_t padded(size_t size_bytes) {
    return (size_bytes + 63) / 64 * 64;
}

// Gives each group memory for its rows as packed for some matrices, of the given depth.
template <typename FormsOf>
void place_packed(const Slice &slice, size_t depth, const FormsOf &forms_of) {
    const kernels::Table &table = *slice.network().kernels;
    std::vector<ExpertGroup> &groups = slice.scratch().groups;
    const auto place = [&](uint8_t *base) {
        size_t used = 0;
        const auto take = [&](size_t size_bytes) {
            uint8_t *at = base == nullptr ? nullptr : base + used;
            used += padded(size_bytes);
            return at;
        };
        for (ExpertGroup &group : groups) {
            const PackedForms forms = forms_of(group);
            group.packed = {};
            if (forms.plain) {
                group.packed.plain = take(table.packed_bytes(group.rows, depth));
            }
            for (const size_t size : {32, 256}) {
                if (size == 32 ? forms.groups.by_32 : forms.groups.by_256) {
                    group.packed.quantized[size == 32 ? 0 : 1] =
                        take(table.quantized_bytes(group.rows, depth, size));
                }
            }
        }
        return used;
    };
    place(slice.scratch().fit_packed(place(nullptr))); // first to measure, then to set the pointers
}

// Copies the input of each group together, and packs it.
void pack_inputs(const Slice &slice) {
    ExpertScratch &scratch = slice.scratch();
    const size_t hidden = slice.network().config.hidden;
    const uint16_t *from = slice.work().narrow + slice.begin * hidden;
    const auto forms_of = [&](const ExpertGroup &group) {
        const Mlp &mlp = slice.weights.each[group.expert];
        return PackedForms({&mlp.gate, &mlp.up});
    };
    place_packed(slice, hidden, forms_of);
    slice.network().threads->run(scratch.groups.size(), 1, [&](size_t index, size_t) {
        const ExpertGroup &group = scratch.groups[index];
        uint16_t *input = scratch.input + group.begin * hidden;
        for (size_t i = 0; i < group.rows; ++i) {
            std::memcpy(input + i * hidden, from + scratch.row[group.begin + i] * hidden,
                        hidden * sizeof(uint16_t));
        }
        pack_rows(*slice.network().kernels, input, hidden, group.rows, forms_of(group),
                  group.packed);
    });
}

void pack_inner(const Slice &slice) {
    ExpertScratch &scratch = slice.scratch();
    const size_t width = slice.experts().intermediate;
    const auto forms_of = [&](const ExpertGroup &group) {
        return PackedForms({&slice.weights.each[group.expert].down});
    };
    place_packed(slice, width, forms_of);
    slice.network().threads->run(scratch.groups.size(), 1, [&](size_t index, size_t) {
        const ExpertGroup &group = scratch.groups[index];
        pack_rows(*slice.network().kernels, scratch.inner + group.begin * width, width, group.rows,
                  forms_of(group), group.packed);
    });
}

// Calls work(group, begin, count, thread) for all outputs of all groups, split over threads.
template <typename Work> void each_output(const Slice &slice, size_t outputs, const Work &work) {
    Threads &threads = *slice.network().threads;
    std::vector<ExpertGroup> &groups = slice.scratch().groups;
    size_t total = 0;
    for (ExpertGroup &group : groups) {
        group.first_item = total;
        total += Items(threads.count(), outputs, group.rows).count;
    }
    threads.run(total, 1, [&](size_t item, size_t, size_t thread) {
        const auto after = std::upper_bound(
            groups.begin(), groups.end(), item,
            [](size_t wanted, const ExpertGroup &group) { return wanted < group.first_item; });
        const ExpertGroup &group = *std::prev(after);
        const Items items(threads.count(), outputs, group.rows);
        const size_t begin = items.begin(item - group.first_item);
        work(group, begin, items.begin(item - group.first_item + 1) - begin, thread);
    });
}

void multiply_experts(const Slice &slice) {
    ExpertScratch &scratch = slice.scratch();
    const size_t hidden = slice.network().config.hidden, width = slice.experts().intermediate;
    pack_inputs(slice);
    each_output(
        slice, width, [&](const ExpertGroup &group, size_t begin, size_t count, size_t thread) {
            multiply_gated(slice.pass, slice.weights.each[group.expert], group.packed, group.rows,
                           begin, count, thread, scratch.inner + group.begin * width);
        });
    pack_inner(slice);
    each_output(
        slice, hidden, [&](const ExpertGroup &group, size_t begin, size_t count, size_t thread) {
            multiply(slice.pass, slice.weights.each[group.expert].down, group.packed, group.rows,
                     begin, count, thread, scratch.output + group.begin * hidden + begin, hidden);
        });
}

// Adds up what the experts of each row gave, by ascending expert, and the shared one last.
void combine(const Slice &slice) {
    const kernels::Table &table = *slice.network().kernels;
    const Experts &experts = slice.experts();
    const ExpertScratch &scratch = slice.scratch();
    const size_t hidden = slice.network().config.hidden;
    slice.network().threads->run(slice.rows, 4, [&](size_t from, size_t to) {
        for (size_t row = from; row < to; ++row) {
            float *y = slice.work().wide + (slice.begin + row) * hidden;
            std::fill_n(y, hidden, 0.0F);
            for (size_t i = row * experts.chosen; i < (row + 1) * experts.chosen; ++i) {
                table.add_scaled(scratch.output + scratch.place[i] * hidden, scratch.share[i],
                                 hidden, y);
            }
            if (experts.shared != 0) {
                const size_t at = slice.begin + row;
                table.add_scaled(scratch.shared_output + at * hidden, scratch.shared_gate[at],
                                 hidden, y);
            }
        }
    });
}

// Computes the router's logits, and the shared expert with its share.
void multiply_shared(Pass &pass, const ExpertWeights &weights) {
    const Network &network = pass.network;
    const size_t rows = pass.row_count;
    ExpertScratch &scratch = pass.cpu->experts;
    if (network.config.experts.shared == 0) {
        pack(pass, pass.cpu->narrow, rows, {&weights.router});
        multiply_packed(pass, {{weights.router, scratch.logits}}, rows);
        return;
    }
    pack(pass, pass.cpu->narrow, rows,
         {&weights.router, &weights.shared_gate, &weights.shared.gate, &weights.shared.up});
    multiply_packed(
        pass, {{weights.router, scratch.logits}, {weights.shared_gate, scratch.shared_gate}}, rows);
    multiply_gated(pass, weights.shared, rows, scratch.shared_inner);
    network.kernels->sigmoid(scratch.shared_gate, rows, scratch.shared_gate);
    pack(pass, scratch.shared_inner, rows, {&weights.shared.down});
    multiply_packed(pass, {{weights.shared.down, scratch.shared_output}}, rows);
}

// Beside an MLP (Gemma4TextDecoderLayer.forward of transformers, modeling_gemma4.py): norms the
// MLP's result and keeps it; norms and scales the stream for the router.
void keep_mlp(Pass &pass, const ExpertWeights &weights) {
    const Network &network = pass.network;
    const kernels::Table &table = *network.kernels;
    const CpuScratch &work = *pass.cpu;
    const size_t hidden = network.config.hidden;
    const float eps = network.config.norm_eps;
    const float scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(network.config.hidden)));
    each_row(network, pass.row_count, [&](size_t row) {
        float *wide = work.wide + row * hidden;
        table.rms_norm(wide, weights.post_mlp_norm, hidden, eps,
                       work.experts.mlp_output + row * hidden);
        table.rms_norm(work.stream + row * hidden, weights.router_scale, hidden, eps, wide);
        table.embed_wide(wide, scale, hidden, wide);
        table.round_bf16(wide, hidden, work.narrow + row * hidden);
    });
}

void norm_for_experts(Pass &pass, const ExpertWeights &weights) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const size_t hidden = network.config.hidden;
    each_row(network, pass.row_count, [&](size_t row) {
        float *wide = work.wide + row * hidden;
        network.kernels->rms_norm(work.stream + row * hidden, weights.norm, hidden,
                                  network.config.norm_eps, wide);
        network.kernels->round_bf16(wide, hidden, work.narrow + row * hidden);
    });
}

void add_mlp(Pass &pass, const ExpertWeights &weights) {
    const Network &network = pass.network;
    const CpuScratch &work = *pass.cpu;
    const size_t hidden = network.config.hidden;
    each_row(network, pass.row_count, [&](size_t row) {
        float *wide = work.wide + row * hidden;
        network.kernels->rms_norm(wide, weights.post_norm, hidden, network.config.norm_eps, wide);
        network.kernels->add(work.experts.mlp_output + row * hidden, hidden, wide);
    });
}

} // namespace

void run_experts(Pass &pass, size_t layer) {
    const ExpertWeights &weights = pass.network.weights.layers[layer].experts;
    const Experts &experts = pass.network.config.experts;
    assert(weights.each.size() == experts.count);
    if (experts.beside_mlp) {
        keep_mlp(pass, weights);
        multiply_shared(pass, weights);
        norm_for_experts(pass, weights);
    } else {
        multiply_shared(pass, weights);
    }
    for (size_t begin = 0; begin < pass.row_count; begin += kExpertRows) {
        const Slice slice{pass, weights, begin, std::min(pass.row_count - begin, kExpertRows)};
        route(slice);
        group_rows(slice);
        multiply_experts(slice);
        combine(slice);
    }
    if (experts.beside_mlp) {
        add_mlp(pass, weights);
    }
}

} // namespace stasis
