// Models: opening, description and memory statistics; see stasis.h. Must not know what a model's
// files contain.
#include "runtime/session/model.h"

#include <algorithm>

#include "abi/cancel.h"
#include "abi/handles.h"
#include "abi/model_options.h"
#include "abi/options.h"

namespace stasis::abi {

namespace {

// A runtime model with the tables that only the C interface needs. Handles and sessions share its
// ownership, so that it lives as long as any of them.
struct OpenedModel {
    std::shared_ptr<Model> model;
    std::vector<uint32_t> layer_windows, layer_keys;
    std::vector<stasis_token> bias_tokens; // of the recommended settings
    std::vector<float> bias;
    std::vector<uint8_t> layer_recurrent;
    std::vector<stasis_digest> attention, mlp;
    std::vector<const char *> prompt_names, prompts;
    void *allocator_user = nullptr;
    void (*allocator_release)(void *user) = nullptr;

    OpenedModel() = default;
    OpenedModel(const OpenedModel &) = delete;
    OpenedModel &operator=(const OpenedModel &) = delete;
    ~OpenedModel() {
        model.reset(); // returns its memory to the allocator first
        if (allocator_release != nullptr) {
            allocator_release(allocator_user);
        }
    }
};

// Returns the host's allocator, with null functions if `given` is null. Throws
// Error(invalid_argument) if a function is missing.
stasis_allocator read_allocator(const stasis_allocator *given) {
    const stasis_allocator allocator = read_struct(given, "options.allocator");
    if (given != nullptr) {
        require_zero(allocator.reserved, "options.allocator");
        require(reinterpret_cast<const void *>(allocator.allocate), "options.allocator.allocate");
        require(reinterpret_cast<const void *>(allocator.deallocate),
                "options.allocator.deallocate");
    }
    return allocator;
}

const char *text_or(const char *given, const char *otherwise) {
    return given != nullptr ? given : otherwise;
}

} // namespace

ModelOptions read_model_options(const stasis_model_options &given) {
    if (given.copy_weights > 1) {
        fail(Status::invalid_argument, "options.copy_weights is %u: expected 0 or 1",
             given.copy_weights);
    }
    if (given.verify_weights > 1) {
        fail(Status::invalid_argument, "options.verify_weights is %u: expected 0 or 1",
             given.verify_weights);
    }
    if (given.thread_pool != nullptr && given.threads != 0) {
        fail(Status::invalid_argument, "options.threads is %u: expected 0 beside thread_pool",
             given.threads);
    }
    const stasis_allocator allocator = read_allocator(given.allocator);
    ModelOptions options;
    options.threads = given.threads;
    if (given.thread_pool != nullptr) {
        options.thread_pool = given.thread_pool->threads;
    }
    options.device = text_or(given.device, "cpu");
    options.profile = text_or(given.profile, "");
    options.kernels = text_or(given.kernels, "");
    options.kv_budget_bytes = given.kv_budget_bytes;
    if (given.state_budget_bytes != 0) {
        options.state_budget_bytes = given.state_budget_bytes;
    }
    options.copy_weights = given.copy_weights != 0;
    options.verify_weights = given.verify_weights != 0;
    options.chat_template = text_or(given.chat_template, "");
    if (given.date != nullptr) {
        options.date = parse_date(given.date, "options.date");
    }
    options.memory = {allocator.user, allocator.allocate, allocator.deallocate};
    return options;
}

namespace {

std::shared_ptr<OpenedModel> open(const Caller &caller, const char *path,
                                  const stasis_model_options &given) {
    ModelOptions options = read_model_options(given);
    CallWatch watch(caller, given);
    options.watch = watch.watch();

    // Tables that stasis_model_info points to.
    auto opened = std::make_shared<OpenedModel>();
    opened->model = open_model(path, options);
    for (const LayerConfig &layer : opened->model->config.layer) {
        opened->layer_windows.push_back(layer.window);
        const auto own = static_cast<uint32_t>(opened->layer_keys.size());
        opened->layer_keys.push_back(layer.own_keys() ? own : layer.keys_of);
        opened->layer_recurrent.push_back(layer.recurrent ? 1 : 0);
    }
    for (const Digest &digest : opened->model->identity.attention) {
        opened->attention.push_back(to_abi(digest));
    }
    for (const Digest &digest : opened->model->identity.mlp) {
        opened->mlp.push_back(to_abi(digest));
    }
    for (const auto &[name, text] : opened->model->embedding.prompts) {
        opened->prompt_names.push_back(name.c_str());
        opened->prompts.push_back(text.c_str());
    }
    for (const auto &[token, bias] : opened->model->recommended.sampling.bias) {
        opened->bias_tokens.push_back(token);
        opened->bias.push_back(bias);
    }
    return opened;
}

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

void stasis_model_options_init(stasis_model_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_model_open(const char *path, const stasis_model_options *options,
                                stasis_model **model, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        require(model, "model");
        const stasis_model_options given = read_struct(options, "options");
        auto handle = std::make_unique<stasis_model>();
        const std::shared_ptr<OpenedModel> opened = open(caller, path, given);
        handle->model = std::shared_ptr<stasis::Model>(opened, opened->model.get());
        handle->layer_windows = opened->layer_windows.data();
        handle->layer_keys = opened->layer_keys.data();
        handle->bias_tokens = opened->bias_tokens.data();
        handle->bias = opened->bias.data();
        handle->layer_recurrent = opened->layer_recurrent.data();
        handle->attention = opened->attention.data();
        handle->mlp = opened->mlp.data();
        handle->prompt_names = opened->prompt_names.data();
        handle->prompts = opened->prompts.data();
        // The allocator's `release` is set last, so that a failed open does not release what the
        // host still owns.
        const stasis_allocator allocator = read_allocator(given.allocator);
        opened->allocator_user = allocator.user;
        opened->allocator_release = allocator.release;
        *model = handle.release();
    });
}

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
