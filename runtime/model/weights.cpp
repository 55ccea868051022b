// Loads weights: from a checkpoint to weights in memory and their digests; see weights.h.
// weights_plan.cpp lists the tensors, weights_read.cpp reads them.
#include "runtime/model/weights.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <optional>

#include "runtime/host/threads.h"
#include "runtime/model/known_digests.h"
#include "runtime/model/model_file.h"
#include "runtime/model/weights_plan.h"
#include "runtime/model/weights_read.h"

namespace stasis {

namespace {

// The digests of all tensors, with their plan.
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
    // The digest includes the two conventions that change the meaning of the same weights.
    Sha256 norms;
    norms.text("stasis norms").u32(std::bit_cast<uint32_t>(config.norm_eps));
    norms.u32(config.norm_plus_one ? 1 : 0);
    tensors.add(WeightGroup::norms, 0, norms);
    identity.norms = norms.finish();
    identity.model = model_digest(identity);
}

} // namespace

ModelIdentity short_rope_identity(const ModelIdentity &identity) {
    ModelIdentity changed = identity;
    changed.config.push_back(short_rope());
    changed.model = model_digest(changed);
    return changed;
}

namespace {

// Describes the stored types: matrices before vectors, the most frequent types first. Counts the
// bytes of the model and of its MTP head, whose types are not told.
void describe_types(const std::vector<PlannedTensor> &plan, Weights &weights) {
    struct Kind {
        bool vector;
        DataType type;
        size_t count;
    };
    std::vector<Kind> kinds;
    for (const PlannedTensor &planned : plan) {
        if (planned.group == WeightGroup::mtp) {
            weights.mtp.stored_bytes += planned.tensor->size_bytes;
            continue;
        }
        const Kind kind{planned.vector != nullptr, planned.tensor->type, 1};
        const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind &known) {
            return known.vector == kind.vector && known.type == kind.type;
        });
        found == kinds.end() ? kinds.push_back(kind) : void(++found->count);
        weights.stored_bytes += planned.tensor->size_bytes;
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const Kind &a, const Kind &b) {
        return a.vector != b.vector ? b.vector : a.count > b.count;
    });
    for (const Kind &kind : kinds) {
        const char *what = kind.vector ? (kind.count == 1 ? " vector" : " vectors")
                                       : (kind.count == 1 ? " matrix" : " matrices");
        weights.types += (weights.types.empty() ? "" : ", ") + std::string(name_of(kind.type)) +
                         ": " + std::to_string(kind.count) + what;
    }
}

// Loads the weights with the digests that an earlier process left, if it did, unless they are to be
// verified. Returns nothing if these are not the digests of what was read.
std::optional<Weights> load_once(const Checkpoint &checkpoint, const Config &config,
                                 const WeightsPlace &place, Threads &threads, const Watch &watch,
                                 ModelIdentity &identity) {
    Weights weights;
    std::vector<PlannedTensor> plan = plan_weights(config, has_mtp(config, checkpoint), weights);
    weights.ignored = find_tensors(config, checkpoint, plan);
    describe_types(plan, weights);

    const uint64_t bytes = weights.stored_bytes + weights.mtp.stored_bytes;
    std::optional<KnownDigests> known;
    if (bytes >= place.known_from_bytes) {
        known.emplace(checkpoint, plan);
    }
    std::optional<std::vector<Digest>> digests;
    if (known && !place.verify) {
        digests = known->find();
    }
    const bool found = digests.has_value();
    if (!read_tensors(plan, place, digests, threads, watch, weights)) {
        return std::nullopt;
    }
    // The weights hashed must be the weights computed with.
    checkpoint.check_unchanged();
    if (known && !found) {
        known->keep(*digests);
    }
    fill_identity(config, {plan, *digests}, identity);
    return weights;
}

} // namespace

void Weights::check_unchanged() const {
    stasis::check_unchanged(mapped);
}

WeightSizes measure_weights(Checkpoint checkpoint, const Config &config, bool map, bool code) {
    rename_tensors(config, checkpoint);
    split_tensors(config, checkpoint);
    Weights weights;
    std::vector<PlannedTensor> plan = plan_weights(config, has_mtp(config, checkpoint), weights);
    find_tensors(config, checkpoint, plan);
    describe_types(plan, weights);
    WeightSizes sizes;
    measure_tensors(plan, map, code, weights, sizes);
    for (const PlannedTensor &planned : plan) {
        const std::vector<uint64_t> &shape = planned.shape;
        if (planned.group == WeightGroup::mtp) {
            continue;
        }
        sizes.parameters +=
            std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
        if (const std::optional<kernels::Quant> quant = quant_of(planned.tensor->type)) {
            const bool by_32 = kernels::quant_block(*quant).elements == 32;
            bool &group = by_32 ? sizes.groups.by_32 : sizes.groups.by_256;
            group = group || planned.multiplied;
        }
    }
    sizes.stored_bytes = weights.stored_bytes;
    sizes.mtp_bytes = weights.mtp.stored_bytes;
    sizes.types = weights.types;
    return sizes;
}

Weights load_weights(Checkpoint checkpoint, const Config &config, const WeightsPlace &place,
                     Threads &threads, const Watch &watch, ModelIdentity &identity) {
    rename_tensors(config, checkpoint);
    split_tensors(config, checkpoint);
    std::optional<Weights> loaded = load_once(checkpoint, config, place, threads, watch, identity);
    if (!loaded) {
        WeightsPlace again = place;
        again.verify = true;
        loaded = load_once(checkpoint, config, again, threads, watch, identity);
    }
    Weights &weights = *loaded;
    for (const std::shared_ptr<ModelFile> &file : checkpoint.files) {
        if (file->mapped()) {
            weights.mapped.push_back(file);
        }
    }
    if (config.tied_head) {
        weights.head = weights.embeddings;
    }
    return std::move(weights);
}

} // namespace stasis
