// Opens a model: description, weights, tokenizer, template, kernels, threads, pool; see model.h.
#include "runtime/session/model.h"

#include <functional>

#include "runtime/compute/backend.h"
#include "runtime/compute/device/weights.h"
#include "runtime/compute/profile.h"
#include "runtime/session/mtp_network.h"
#include "runtime/session/origin.h"
#include "runtime/session/step.h"

namespace stasis {

namespace {

// Returns the kernels of a name, which must be empty for a device.
const kernels::Table *choose_kernels(const std::string &name, const OpenDevice *device) {
    if (device != nullptr && !name.empty()) {
        fail(Status::unsupported, "kernels \"%s\": device \"%s\" has its own", name.c_str(),
             device->name.c_str());
    }
    return stasis::choose_kernels(name);
}

// Smaller models are hashed in some 20 ms.
constexpr uint64_t kKnownFromBytes = 64U << 20;

// Loads the weights. A host's functions are called by this thread alone, and its files can be
// neither mapped nor recognised. Weights that an option copies are coded, where the kernels have
// products for it; those of a host are read once (stasis_model_open_source).
void open_weights(Model &model, Checkpoint checkpoint, const Origin &origin,
                  const ModelOptions &options) {
    std::optional<Threads> alone;
    if (origin.of_host) {
        alone.emplace(1);
    }
    const bool map = !options.copy_weights && !origin.of_host;
    const bool code = !map && !origin.of_host && options.device == "cpu" &&
                      model.kernels->matmul_coded != nullptr;
    const WeightsPlace place{model.memory, map, origin.of_host ? UINT64_MAX : kKnownFromBytes,
                             options.verify_weights, code ? model.kernels : nullptr};
    model.weights = load_weights(std::move(checkpoint), model.config, place,
                                 alone ? *alone : *model.threads, options.watch, model.identity);
}

// Opens the tokenizer and the chat template, and adds both to the model's identity.
void open_text(Model &model, const Origin &origin, const ModelOptions &options) {
    const std::string &template_name = options.chat_template;
    model.tokenizer = origin.tokenizer(model.config);
    if (model.tokenizer == nullptr) {
        if (!template_name.empty()) {
            fail(Status::unsupported, "chat template \"%s\": the model has no tokenizer",
                 template_name.c_str());
        }
        return;
    }
    const Tokenizer &tokenizer = *model.tokenizer;
    model.chat = template_name.empty() ? origin.chat(tokenizer, options.date)
                                       : ChatTemplate::named(template_name, tokenizer.bos_text(),
                                                             tokenizer.eos_text());
    model.identity.tokenizer = tokenizer.digest();
    model.identity.tokenizer_type = tokenizer.type();
    model.identity.tokenizer_rules = tokenizer.rules();
    model.identity.chat_template = model.chat ? model.chat->name() : "";
}

// Returns what devices do not compute of an architecture; null: nothing.
const char *on_cpu_alone(const Config &config) {
    return config.experts.count != 0           ? "mixtures of experts"
           : config.recurrent.value_heads != 0 ? "recurrent layers"
           : config.joint_norms                ? "norms over all heads together"
           : config.query_growth != 0.0F       ? "queries whose scale grows by position"
           : config.long_rope_from() != 0      ? "the two sides of long RoPE"
           : config.bidirectional              ? "models whose attention looks both ways"
           : config.value_norm                 ? "norms of values"
           : config.rotary_dim != 0            ? "heads of which RoPE turns a part"
                                               : nullptr;
}

// Refuses integer weights that devices do not multiply with.
void check_types(const Checkpoint &checkpoint, const OpenDevice &device) {
    for (const auto &[name, tensor] : checkpoint.tensors) {
        const std::optional<kernels::Quant> quant = quant_of(tensor.type);
        if (quant && !kernels::device_multiplies(*quant)) {
            const std::string shown =
                checkpoint.name_in_file ? checkpoint.name_in_file(name) : name;
            fail(Status::unsupported,
                 "device \"%s\": tensor %s in %s is of type %s, which the CPU alone computes",
                 device.name.c_str(), shown.c_str(), tensor.file.c_str(), name_of(tensor.type));
        }
    }
}

} // namespace

void require_sessions(const Model &model) {
    if (model.config.bidirectional) {
        fail(Status::unsupported, "the model's attention looks both ways: it makes embeddings of "
                                  "whole texts, and has no sessions");
    }
}

Model::Model(const ModelOptions &options) : Network(options.memory) {}

Model::~Model() = default;

namespace {

// The device is opened before `find` reads anything, because reading weights takes long.
std::shared_ptr<Model> open_from(const std::function<Origin()> &find, const ModelOptions &options) {
    std::unique_ptr<OpenDevice> device;
    if (options.device != "cpu") {
        device = open_device(options.device, options.device_module);
    }
    auto model = std::make_shared<Model>(options);
    model->kernels = choose_kernels(options.kernels, device.get());

    // The description, the weights and the text.
    const Origin origin = find();
    model->config = origin.config();
    const Config &config = model->config;
    const char *refused = on_cpu_alone(config);
    if (device != nullptr && refused != nullptr) {
        fail(Status::unsupported, "device \"%s\": %s are computed by the CPU alone",
             device->name.c_str(), refused);
    }
    model->threads = options.thread_pool != nullptr ? options.thread_pool
                                                    : std::make_shared<Threads>(options.threads);
    Checkpoint checkpoint = origin.checkpoint(config);
    if (device != nullptr) {
        check_types(checkpoint, *device);
    }
    open_weights(*model, std::move(checkpoint), origin, options);
    open_text(*model, origin, options);
    if (config.long_rope_from() != 0) {
        model->short_identity = short_rope_identity(model->identity);
    }
    model->recommended = origin.recommended(model->config.vocabulary);
    model->embedding = origin.embedding(config.hidden);
    model->metadata = origin.metadata();
    model->describe_layers();
    check_rewinds(*model);

    // The backend, and the memory of its pages.
    PageMemory pages = host_pages(model->memory);
    if (device == nullptr) {
        model->backend = &kCpuBackend;
        model->device_name = "cpu";
        model->kernels_name = model->kernels->name;
    } else {
        model->backend = &kDeviceBackend;
        model->device_name = device->name;
        model->kernels_name = device->table->name;
        model->device =
            std::make_unique<DeviceModel>(std::move(device), config, model->weights, options.watch);
        model->device->ask_for_room([&pool = model->pool](size_t size_bytes) {
            return pool != nullptr && pool->make_room(size_bytes);
        });
        pages = model->device->pages().memory();
    }
    if (options.page_memory != nullptr) {
        pages = *options.page_memory;
    }

    // The profile, and the KV cache.
    model->profile = open_profile(*model, options.profile);
    const uint64_t budget = options.kv_budget_bytes == 0 ? UINT64_MAX : options.kv_budget_bytes;
    model->make_cache(pages, budget, options.state_budget_bytes);
    if (model->weights.mtp.present() && model->backend == &kCpuBackend) {
        model->mtp = mtp_network(*model, budget);
    }
    return model;
}

} // namespace

std::shared_ptr<Model> open_model(const std::string &path, const ModelOptions &options) {
    return open_from([&] { return Origin(path); }, options);
}

std::shared_ptr<Model> open_model(int descriptor, const ModelOptions &options) {
    return open_from([&] { return Origin(descriptor); }, options);
}

std::shared_ptr<Model> open_model(const HostFiles &host, const std::string &name,
                                  const ModelOptions &options) {
    return open_from([&] { return Origin(host, name); }, options);
}

} // namespace stasis
