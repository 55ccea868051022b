// Quantizes a model: plans the tensors, then writes one after another through one buffer; see
// quantize.h.
#include "runtime/quantize/quantize.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "format/state/error.h"
#include "runtime/host/threads.h"
#include "runtime/model/family/family.h"
#include "runtime/model/gguf/checkpoint.h"
#include "runtime/model/gguf/config.h"
#include "runtime/model/gguf/describe.h"
#include "runtime/model/weights_plan.h"
#include "runtime/quantize/encoder.h"
#include "runtime/quantize/mixture.h"
#include "runtime/quantize/new_file.h"
#include "runtime/text/describe_tokenizer.h"

namespace stasis {

namespace {

// The version of the block layouts (general.quantization_version).
constexpr uint32_t kQuantizationVersion = 2;

// A tensor of the file and the source of its values.
struct Output {
    GgufEntry entry;
    EncodedSource source;
};

struct Plan {
    Config config;
    Checkpoint checkpoint;
    Weights places; // target of the planned tensors; stays empty
    std::vector<PlannedTensor> planned;
    std::deque<Tensor> fused; // tensors that replace several planned ones
    std::vector<float> rope_factors;
    std::vector<Output> outputs;
    uint64_t source_bytes = 0;
};

void refuse_gguf(const std::string &path) {
    struct stat status {};
    if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
        fail(Status::unsupported,
             "%s: a file, not a model directory; what a GGUF file holds is not quantized again",
             path.c_str());
    }
}

// Reports whether GGUF files interleave the rows of a matrix for RoPE.
bool has_pairs(const Plan &plan, const std::string &name) {
    return family_of(plan.config).gguf_pairs && (name.find(".attn_q.") != std::string::npos ||
                                                 name.find(".attn_k.") != std::string::npos);
}

// For a model with fused matrices, such as Phi-3, GGUF files are fused too. The first matrix then
// stands for all, whose rows follow each other. Returns false for the others, which are left out.
bool fuse(Plan &plan, PlannedTensor &planned) {
    const Config &config = plan.config;
    const auto is = [&](const char *part) { return planned.name.ends_with(part); };
    uint64_t rows = planned.shape[0];
    if (is(".k_proj.weight") || is(".v_proj.weight") || is(".up_proj.weight")) {
        return false;
    }
    std::string &name = planned.name;
    if (is(".q_proj.weight")) {
        rows = uint64_t{config.head_dim} * (config.heads + 2 * config.kv_heads);
        name.replace(name.size() - std::strlen("q_proj.weight"), std::string::npos,
                     "qkv_proj.weight");
    } else if (is(".gate_proj.weight")) {
        rows = 2 * uint64_t{config.intermediate};
        name.replace(name.size() - std::strlen("gate_proj.weight"), std::string::npos,
                     "gate_up_proj.weight");
    }
    Tensor &whole = plan.fused.emplace_back(*planned.tensor);
    whole.size_bytes = whole.size_bytes / planned.shape[0] * rows;
    whole.shape[0] = planned.shape[0] = rows;
    planned.tensor = &whole;
    return true;
}

Output output_of(const Plan &plan, const Mixture &mixture, const PlannedTensor &planned) {
    const std::string &name = planned.name;
    Output output;
    GgufEntry &entry = output.entry;
    entry.name = gguf_name(name.starts_with("lm_head.") ? name : "model." + name, plan.config);
    entry.shape = planned.shape;
    if (entry.name.empty()) {
        fail(Status::unsupported, "tensor %s: GGUF files have no name for it", name.c_str());
    }
    if (planned.matrix != nullptr) {
        entry.type = matrix_type(mixture, entry.name, plan.config.tied_head, planned.layer,
                                 plan.config.layers, planned.shape.back());
    }
    output.source.tensor = planned.tensor;
    output.source.name = name;
    output.source.plus_one = planned.stored == Stored::less_one;
    output.source.pairs_of = has_pairs(plan, entry.name) ? plan.config.head_dim : 0;
    return output;
}

void add_outputs(const Mixture &mixture, Plan &plan) {
    if (!plan.rope_factors.empty()) {
        Output factors{{"rope_freqs.weight", GgufType::f32, {plan.rope_factors.size()}}, {}};
        factors.source.own = plan.rope_factors.data();
        plan.outputs.push_back(std::move(factors));
    }
    for (PlannedTensor &planned : plan.planned) {
        if (!plan.config.fused_tensors || fuse(plan, planned)) {
            plan.outputs.push_back(output_of(plan, mixture, planned));
            plan.source_bytes += planned.tensor->size_bytes;
        }
    }
}

// Returns the head of the file, and sets the offsets of all tensors.
std::string write_head(const std::string &path, const Mixture &mixture, Plan &plan) {
    GgufMetadata metadata;
    describe_config(plan.config, metadata);
    metadata.integer("general.file_type", mixture.file_type);
    metadata.integer("general.quantization_version", kQuantizationVersion);
    describe_tokenizer(path, plan.config, metadata);
    std::vector<GgufEntry> entries;
    for (Output &output : plan.outputs) {
        entries.push_back(std::move(output.entry));
    }
    std::string head = gguf_head(metadata, entries);
    for (size_t i = 0; i < entries.size(); ++i) {
        plan.outputs[i].entry = std::move(entries[i]);
    }
    return head;
}

// Reads the head back and compares it with the configuration, before the long part.
void check_head(const File &file, const std::string &path, const Config &meant) {
    const GgufFile written = open_gguf(file.path());
    const Config given = read_config(written);
    check_described(meant, given);
    check_described_tokenizer(path, meant, written, given);
}

void write_tensors(const Plan &plan, const File &file, Threads &threads, const Watch &watch) {
    Encoder encoder(threads);
    uint64_t done = 0;
    watch.step(0, plan.source_bytes);
    for (const Output &output : plan.outputs) {
        const uint64_t rows = output.entry.shape.size() == 2 ? output.entry.shape[0] : 1;
        const EncodedShape shape{output.entry.type, rows, output.entry.shape.back()};
        const uint64_t step = encoder.rows_at_once(shape);
        for (uint64_t row = 0; row < rows; row += step) {
            const uint64_t end = std::min(rows, row + step);
            const auto &bytes = encoder.encode(output.source, shape, row, end);
            file.write(bytes.data(), bytes.size(),
                       output.entry.offset_bytes + row * encoder.row_bytes(shape));
            done += output.source.tensor == nullptr
                        ? 0
                        : output.source.tensor->size_bytes / rows * (end - row);
            watch.step(done, plan.source_bytes);
        }
    }
}

QuantizeReport report_on(const Plan &plan, uint64_t file_bytes) {
    QuantizeReport report{plan.source_bytes, file_bytes, {}};
    for (const Output &output : plan.outputs) {
        const GgufType type = output.entry.type;
        auto share = std::find_if(report.shares.begin(), report.shares.end(),
                                  [&](const QuantizedShare &found) { return found.type == type; });
        if (share == report.shares.end()) {
            share = report.shares.insert(share, QuantizedShare{type});
        }
        const GgufBlock block = gguf_block(type);
        ++share->tensors;
        share->bytes += output.entry.size_bytes;
        share->values += output.entry.size_bytes / block.size_bytes * block.elements;
    }
    std::stable_sort(
        report.shares.begin(), report.shares.end(),
        [](const QuantizedShare &a, const QuantizedShare &b) { return a.bytes > b.bytes; });
    return report;
}

} // namespace

QuantizeReport quantize_model(const std::string &path, const std::string &out,
                              const QuantizeOptions &options) {
    const Mixture &mixture = find_mixture(options.type);
    refuse_gguf(path);

    // Plans the tensors and the head, whose size determines the file's.
    Plan plan;
    plan.config = read_config(path);
    if (plan.config.recurrent.value_heads != 0) {
        fail(Status::unsupported, "%s: GGUF files of %s are read, not written", path.c_str(),
             family_of(plan.config).shown);
    }
    plan.checkpoint = open_checkpoint(path);
    split_tensors(plan.config, plan.checkpoint);
    plan.planned = plan_weights(plan.config, plan.places);
    find_tensors(plan.checkpoint, plan.planned);
    plan.rope_factors = rope_factors(plan.config);
    add_outputs(mixture, plan);
    const std::string head = write_head(path, mixture, plan);
    uint64_t file_bytes = head.size();
    for (const Output &output : plan.outputs) {
        file_bytes = std::max(file_bytes, output.entry.offset_bytes + output.entry.size_bytes);
    }
    file_bytes = gguf_aligned(file_bytes);

    Threads threads(options.threads);
    write_new_file(out, options.replace, [&](const File &file) {
        file.write(head.data(), head.size(), 0);
        file.set_size(file_bytes);
        if (!plan.rope_factors.empty()) { // read back with the head
            file.write(plan.rope_factors.data(), plan.rope_factors.size() * sizeof(float),
                       plan.outputs[0].entry.offset_bytes);
        }
        check_head(file, path, plan.config);
        write_tensors(plan, file, threads, options.watch);
        plan.checkpoint.check_unchanged();
    });
    return report_on(plan, file_bytes);
}

} // namespace stasis
