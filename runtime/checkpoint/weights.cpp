// See weights.h. From a directory to weights in place and digests; what is read, and how, is in
// weights_plan.cpp and weights_read.cpp.
#include "runtime/checkpoint/weights.h"

#include <bit>

#include "runtime/checkpoint/weights_plan.h"
#include "runtime/checkpoint/weights_read.h"
#include "runtime/threads.h"

namespace stasis {

namespace {

// The digests of all tensors, beside the plan they belong to.
struct TensorDigests {
    const std::vector<PlannedTensor> &plan;
    const std::vector<Digest> &digests;

    void add(WeightGroup group, uint32_t layer, Sha256 &hash) const {
        for (size_t i = 0; i < plan.size(); ++i) {
            if (plan[i].group == group && plan[i].layer == layer) {
                hash.digest(digests[i]);
            }
        }
    }
};

Digest model_digest(const ModelIdentity &identity) {
    Sha256 hash;
    hash.text("stasis model").text(identity.architecture).u64(identity.config.size());
    for (const auto &[name, value] : identity.config) {
        hash.text(name).text(value);
    }
    hash.digest(identity.embeddings).digest(identity.norms).u64(identity.attention.size());
    for (size_t i = 0; i < identity.attention.size(); ++i) {
        hash.digest(identity.attention[i]).digest(identity.mlp[i]);
    }
    return hash.digest(identity.head).finish();
}

void fill_identity(const Config &config, const TensorDigests &tensors, ModelIdentity &identity) {
    identity.architecture = config.architecture;
    identity.config = describe(config);
    const auto digest = [&](const char *what, WeightGroup group, uint32_t layer) {
        Sha256 hash;
        hash.text(what).u32(layer);
        tensors.add(group, layer, hash);
        return hash.finish();
    };
    identity.embeddings = digest("stasis embeddings", WeightGroup::embeddings, 0);
    identity.attention.clear();
    identity.mlp.clear();
    for (uint32_t i = 0; i < config.layers; ++i) {
        identity.attention.push_back(digest("stasis attention", WeightGroup::attention, i));
        identity.mlp.push_back(digest("stasis mlp", WeightGroup::mlp, i));
    }
    identity.head =
        config.tied_head ? identity.embeddings : digest("stasis head", WeightGroup::head, 0);
    Sha256 norms; // with the two conventions that change what the same weights mean
    norms.text("stasis norms").u32(std::bit_cast<uint32_t>(config.norm_eps));
    norms.u32(config.norm_plus_one ? 1 : 0);
    tensors.add(WeightGroup::norms, 0, norms);
    identity.norms = norms.finish();
    identity.model = model_digest(identity);
}

} // namespace

Weights load_weights(const std::string &directory, const Config &config, const Memory &memory,
                     Threads &threads, const Watch &watch, ModelIdentity &identity) {
    Weights weights;
    weights.checkpoint = open_checkpoint(directory);
    if (config.fused_tensors) {
        split_fused(config, weights.checkpoint);
    }
    std::vector<PlannedTensor> plan = plan_weights(config, weights);
    find_tensors(weights.checkpoint, plan);
    const std::vector<Digest> digests = read_tensors(plan, memory, threads, watch, weights);
    // What was hashed above must be what will be computed with.
    weights.checkpoint.check_unchanged();
    if (config.tied_head) {
        weights.head = weights.embeddings;
    }
    fill_identity(config, {plan, digests}, identity);
    return weights;
}

} // namespace stasis
