// Quantizes a model: plans the tensors, then writes one after another through one buffer; see
// quantize.h.
#include "runtime/quantize/quantize.h"

#include <sys/stat.h>

#include <algorithm>

#include "format/state/error.h"
#include "runtime/host/threads.h"
#include "runtime/model/embedding_rules.h"
#include "runtime/model/family/family.h"
#include "runtime/model/gguf/config.h"
#include "runtime/model/gguf/describe.h"
#include "runtime/model/weights_plan.h"
#include "runtime/quantize/encoder.h"
#include "runtime/quantize/mixture.h"
#include "runtime/quantize/new_file.h"
#include "runtime/quantize/outputs.h"
#include "runtime/text/describe_tokenizer.h"

namespace stasis {

namespace {

// The version of the block layouts (general.quantization_version).
constexpr uint32_t kQuantizationVersion = 2;

struct Plan {
    Config config;
    Checkpoint checkpoint;
    Weights places; // target of the planned tensors; stays empty
    std::vector<PlannedTensor> planned;
    std::vector<GgufFactors> rope_factors;
    EmbeddingRules embedding; // weights of dense layers are [outputs][inputs] here
    std::vector<QuantizedTensor> outputs;
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

// Returns the head of the file, and sets the offsets of all tensors.
std::string write_head(const std::string &path, const Mixture &mixture, Plan &plan) {
    GgufMetadata metadata;
    describe_config(plan.config, metadata);
    metadata.integer("general.file_type", mixture.file_type);
    metadata.integer("general.quantization_version", kQuantizationVersion);
    describe_embedding(plan.embedding, family_of(plan.config).gguf, metadata);
    describe_tokenizer(path, plan.config, metadata);
    std::vector<GgufEntry> entries;
    for (QuantizedTensor &output : plan.outputs) {
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
    for (const QuantizedTensor &output : plan.outputs) {
        uint64_t offset = output.entry.offset_bytes;
        for (const auto &[source, rows] : output.parts) {
            const EncodedShape shape{output.entry.type, rows, output.columns};
            const uint64_t step = encoder.rows_at_once(shape);
            for (uint64_t row = 0; row < shape.rows; row += step) {
                const uint64_t end = std::min(shape.rows, row + step);
                const auto &bytes = encoder.encode(source, shape, row, end);
                file.write(bytes.data(), bytes.size(), offset);
                offset += bytes.size();
                done += source.tensor == nullptr
                            ? 0
                            : source.tensor->size_bytes / shape.rows * (end - row);
                watch.step(done, plan.source_bytes);
            }
        }
    }
}

QuantizeReport report_on(const Plan &plan, uint64_t file_bytes) {
    QuantizeReport report{plan.source_bytes, file_bytes, {}};
    for (const QuantizedTensor &output : plan.outputs) {
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
    plan.checkpoint = open_checkpoint(path);
    rename_tensors(plan.config, plan.checkpoint);
    split_tensors(plan.config, plan.checkpoint);
    const bool mtp = has_mtp(plan.config, plan.checkpoint);
    plan.config.mtp_layers = mtp ? 1 : 0; // the file describes what it has
    plan.planned = plan_weights(plan.config, mtp, plan.places);
    find_tensors(plan.config, plan.checkpoint, plan.planned);
    plan.rope_factors = rope_factors(plan.config);
    plan.embedding = read_embedding_rules(path, plan.config.hidden);
    for (EmbeddingDense &dense : plan.embedding.dense) {
        dense.weights = dense.rows();
    }
    plan.outputs =
        plan_outputs(plan.config, mixture, plan.planned, plan.rope_factors, plan.embedding.dense);
    for (const PlannedTensor &planned : plan.planned) {
        plan.source_bytes += planned.tensor->size_bytes;
    }
    const std::string head = write_head(path, mixture, plan);
    uint64_t file_bytes = head.size();
    for (const QuantizedTensor &output : plan.outputs) {
        file_bytes = std::max(file_bytes, output.entry.offset_bytes + output.entry.size_bytes);
    }
    file_bytes = gguf_aligned(file_bytes);

    Threads threads(options.threads);
    write_new_file(out, options.replace, [&](const File &file) {
        file.write(head.data(), head.size(), 0);
        file.set_size(file_bytes);
        for (size_t i = 0; i < plan.rope_factors.size(); ++i) { // read back with the head
            const std::vector<float> &factors = plan.rope_factors[i].values;
            file.write(factors.data(), factors.size() * sizeof(float),
                       plan.outputs[i].entry.offset_bytes);
        }
        check_head(file, path, plan.config);
        write_tensors(plan, file, threads, options.watch);
        plan.checkpoint.check_unchanged();
    });
    return report_on(plan, file_bytes);
}

} // namespace stasis
