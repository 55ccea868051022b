// Models: description and memory statistics; see stasis.h. Must not know what a model's
// files contain.
#include "runtime/session/model.h"

#include <algorithm>

#include "abi/handles.h"
#include "abi/options.h"

namespace stasis::abi {

namespace {

// Describes the model. Texts and tables are not copied: they live as long as the model.
stasis_model_info describe(const stasis_model &handle) {
    const Model &model = *handle.model;
    const Config &config = model.config;
    stasis_model_info info{};
    info.flags = (model.weights.converted ? STASIS_MODEL_CONVERTED : 0U) |
                 (model.tokenizer != nullptr ? STASIS_MODEL_TOKENIZER : 0U);
    write_field(config.architecture, info.architecture, sizeof info.architecture);
    info.layers = config.layers;
    info.hidden = config.hidden;
    info.heads = config.heads;
    info.kv_heads = config.kv_heads;
    info.head_dim = config.head_dim;
    info.vocabulary = config.vocabulary;
    info.context = config.context;
    info.page_positions = kPage;
    info.threads = static_cast<uint32_t>(model.threads->count());
    info.contract[0] = kernels::kContractCore;
    info.contract[1] = kernels::kContractKv;
    info.contract[2] = kernels::kContractSampling;

    info.end_token_count = static_cast<uint32_t>(config.end_tokens.size());
    info.end_tokens = config.end_tokens.data();
    info.layer_windows = handle.layer_windows;
    info.bos = config.bos.empty() ? -1 : int64_t{config.bos.front()};
    write_field(model.kernels_name, info.kernels, sizeof info.kernels);
    write_field(model.device_name, info.device, sizeof info.device);
    static_assert(sizeof info.profile == kernels::kDeviceIdBytes);
    write_field(model.profile, info.profile, sizeof info.profile);
    write_field(model.identity.chat_template, info.chat_template, sizeof info.chat_template);

    info.model = to_abi(model.identity.model);
    info.embeddings = to_abi(model.identity.embeddings);
    info.norms = to_abi(model.identity.norms);
    info.head = to_abi(model.identity.head);
    info.tokenizer = to_abi(model.identity.tokenizer);
    info.attention = handle.attention;
    info.mlp = handle.mlp;
    info.weight_types = model.weights.types.c_str();
    info.weight_bytes = model.weights.stored_bytes;
    info.layer_recurrent = handle.layer_recurrent;
    info.state_bytes = model.state_size() * sizeof(float);
    info.experts = config.experts.count;
    info.experts_chosen = config.experts.chosen;
    info.contract_recurrent = model.recurrent_layers != 0 ? kernels::kContractRecurrent : 0;
    info.contract_experts = config.experts.count != 0 ? kernels::kContractExperts : 0;
    info.ignored = model.weights.ignored.c_str();
    info.mtp_bytes = model.weights.mtp.stored_bytes;
    info.global_kv_heads = config.kv_heads_of({});
    info.global_head_dim = config.head_dim_of({});
    info.layer_keys = handle.layer_keys;
    return info;
}

// Converts recommended settings. Fields that models do not recommend stay 0: off.
stasis_sampling sampling_of(const Sampling &sampling) {
    stasis_sampling to{};
    to.seed = sampling.seed;
    to.temperature = sampling.temperature;
    to.top_k = sampling.top_k;
    to.top_p = sampling.top_p;
    to.min_p = sampling.min_p;
    to.repetition_penalty = sampling.repetition_penalty;
    // The runtime's 0 is the whole log, which the ABI writes as UINT32_MAX; its 0 is the default.
    to.penalty_window = sampling.penalty_window == 0 ? UINT32_MAX : sampling.penalty_window;
    to.typical_p = sampling.v2.typical_p;
    to.xtc_probability = sampling.v2.xtc_probability;
    to.xtc_threshold = sampling.v2.xtc_threshold;
    return to; // without biases
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_model_close(stasis_model *model) {
    enter(nullptr, [&] { delete model; });
}

stasis_status stasis_model_get_info(const stasis_model *model, stasis_model_info *info,
                                    stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(info, "info");
        write_struct(describe(*model), info, "info");
    });
}

stasis_status stasis_model_get_stats(const stasis_model *model, stasis_model_stats *stats,
                                     stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(stats, "stats");
        const stasis::Model &runtime = *model->model;
        stasis_model_stats now{};
        now.kv_budget_bytes = runtime.pool->budget_bytes();
        now.kv_used_bytes = runtime.pool->used_bytes();
        now.kv_cached_bytes = runtime.pool->cached_bytes();
        now.kv_known_bytes = runtime.pool->idle_bytes();
        now.kv_free_bytes = runtime.pool->room_bytes();
        // Sessions may release pages between the two readings, so the difference could be negative.
        const uint64_t held = runtime.held_bytes;
        now.kv_shared_bytes = held - std::min(held, now.kv_used_bytes);
        now.scratch_bytes = runtime.scratch_bytes();
        if (runtime.mtp != nullptr) {
            const stasis::PagePool &pages = *runtime.mtp->pool;
            now.scratch_bytes +=
                runtime.mtp->scratch_bytes() + pages.used_bytes() + pages.cached_bytes();
        }
        now.state_budget_bytes = runtime.states->budget_bytes();
        now.state_used_bytes = runtime.states->used_bytes();
        now.state_cached_bytes = runtime.states->free_bytes();
        write_struct(now, stats, "stats");
    });
}

stasis_status stasis_model_recommended_sampling(const stasis_model *model,
                                                stasis_sampling *sampling, stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(sampling, "sampling");
        const stasis::RecommendedSampling &recommended = model->model->recommended;
        if (!recommended.refusal.empty()) {
            fail(stasis::Status::corrupt, "%s", recommended.refusal.c_str());
        }
        stasis_sampling settings = sampling_of(recommended.sampling);
        settings.bias_count = static_cast<uint32_t>(recommended.sampling.bias.size());
        settings.bias_tokens = model->bias_tokens;
        settings.bias = model->bias;
        write_struct(settings, sampling, "sampling");
    });
}
