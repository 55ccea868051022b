// Opening a model: description, weights, tokenizer, template, kernels, threads, pool; see model.h.
#include "runtime/model.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "runtime/checkpoint/json_file.h"
#include "runtime/device/weights.h"
#include "runtime/gguf/checkpoint.h"
#include "runtime/gguf/config.h"
#include "runtime/profile.h"
#include "runtime/rope.h"
#include "runtime/session.h"
#include "runtime/workspace.h"

namespace stasis {

namespace {

constexpr size_t kIdleMax = 16; // work spaces, and buffers of steps, kept for reuse

const kernels::Table *choose_kernels(const std::string &name, const OpenDevice *device) {
    if (device != nullptr && !name.empty()) {
        fail(Status::unsupported, "kernels \"%s\": device \"%s\" has its own", name.c_str(),
             device->name.c_str());
    }
    if (name.empty()) {
        return &kernels::best_table();
    }
    const kernels::Table *table = kernels::find_table(name.c_str());
    if (table == nullptr) {
        fail(Status::unsupported, "kernels \"%s\": not in this build or not on this machine",
             name.c_str());
    }
    return table;
}

// Layers with the same window share pages: one group for each, global layers first.
void group_layers(Model &model) {
    std::set<uint32_t> windows;
    for (const LayerConfig &layer : model.config.layer) {
        windows.insert(layer.window);
    }
    for (uint32_t window : windows) {
        LayerGroup group{window, {}};
        for (uint32_t layer = 0; layer < model.config.layers; ++layer) {
            if (model.config.layer[layer].window == window) {
                group.layers.push_back(layer);
            }
        }
        model.groups.push_back(std::move(group));
    }
    model.layer_places.resize(model.config.layers);
    for (uint32_t group = 0; group < model.groups.size(); ++group) {
        for (uint32_t i = 0; i < model.groups[group].layers.size(); ++i) {
            model.layer_places[model.groups[group].layers[i]] = {group, i};
        }
    }
}

// Where a model is read from: a directory, or a GGUF file.
struct Origin {
    std::string path;
    std::optional<GgufFile> gguf;

    explicit Origin(const std::string &given) : path(given) {
        struct stat status {};
        if (stat(path.c_str(), &status) != 0) {
            fail(errno == ENOENT || errno == ENOTDIR ? Status::not_found : Status::io,
                 "cannot open %s: %s", path.c_str(), std::strerror(errno));
        }
        if (S_ISREG(status.st_mode)) {
            gguf = open_gguf(path);
        }
    }
    Config config() const { return gguf ? read_config(*gguf) : read_config(path); }
    Checkpoint checkpoint(const Config &config) const {
        return gguf ? checkpoint_of(*gguf, config) : open_checkpoint(path);
    }
    std::unique_ptr<Tokenizer> tokenizer(const Config &config) const {
        if (!gguf) {
            return Tokenizer::open(path, config.vocabulary, config.bos, config.end_tokens);
        }
        const std::string kind = gguf->text("tokenizer.ggml.model").value_or("none");
        if (kind == "none" || kind == "no_vocab") {
            return nullptr;
        }
        return Tokenizer::open_gguf(*gguf, config.vocabulary, config.bos, config.end_tokens);
    }
    std::optional<ChatTemplate> chat(const Tokenizer &tokenizer) const {
        if (!gguf) {
            return ChatTemplate::recognise(path);
        }
        const std::optional<std::string> text = gguf->text("tokenizer.chat_template");
        return text
                   ? ChatTemplate::recognise_text(*text, tokenizer.bos_text(), tokenizer.eos_text())
                   : std::nullopt;
    }
    // What cannot be used of it is refused when it is asked for: a model opens as it always did.
    RecommendedSampling recommended() const {
        if (gguf) {
            return recommended_sampling(*gguf);
        }
        const std::string text = read_generation_config(path);
        return recommended_sampling(text.empty() ? Json() : parse_json(text, kGenerationConfig));
    }
};

void open_text(Model &model, const Origin &origin, const std::string &template_name) {
    model.tokenizer = origin.tokenizer(model.config);
    if (model.tokenizer == nullptr) {
        if (!template_name.empty()) {
            fail(Status::unsupported, "chat template \"%s\": the model has no tokenizer",
                 template_name.c_str());
        }
        return;
    }
    const Tokenizer &tokenizer = *model.tokenizer;
    model.chat = template_name.empty() ? origin.chat(tokenizer)
                                       : ChatTemplate::named(template_name, tokenizer.bos_text(),
                                                             tokenizer.eos_text());
    model.identity.tokenizer = tokenizer.digest();
    model.identity.tokenizer_type = tokenizer.type();
    model.identity.tokenizer_rules = tokenizer.rules();
    model.identity.chat_template = model.chat ? model.chat->name() : "";
}

} // namespace

Model::Model(const ModelOptions &options) : memory(options.memory) {
    idle_.reserve(kIdleMax); // so that giving back cannot fail
    idle_steps_.reserve(kIdleMax);
}

Model::~Model() = default;

uint64_t Model::scratch_bytes() const {
    std::lock_guard lock(mutex_);
    return scratch_bytes_;
}

WorkspaceLease::WorkspaceLease(Model &model) : model_(model) {
    if (model.device != nullptr) {
        model.device->on().require_this_process();
    }
    {
        std::lock_guard lock(model.mutex_);
        if (!model.idle_.empty()) {
            workspace_ = std::move(model.idle_.back());
            model.idle_.pop_back();
            model.scratch_bytes_ -= workspace_->size_bytes();
            return;
        }
    }
    workspace_ = std::make_unique<Workspace>(model.memory, *model.kernels, model.threads->count(),
                                             model.device.get());
}

WorkspaceLease::~WorkspaceLease() {
    std::lock_guard lock(model_.mutex_);
    if (model_.idle_.size() < kIdleMax) {
        model_.scratch_bytes_ += workspace_->size_bytes();
        model_.idle_.push_back(std::move(workspace_));
    }
}

StepLease::StepLease(Model &model) : model_(model) {
    {
        std::lock_guard lock(model.mutex_);
        if (!model.idle_steps_.empty()) {
            buffers_ = std::move(model.idle_steps_.back());
            model.idle_steps_.pop_back();
            return;
        }
    }
    buffers_ = std::make_unique<StepBuffers>();
}

StepLease::~StepLease() {
    buffers_->clear(); // errors are not kept
    std::lock_guard lock(model_.mutex_);
    if (model_.idle_steps_.size() < kIdleMax) {
        model_.idle_steps_.push_back(std::move(buffers_));
    }
}

std::shared_ptr<Model> open_model(const std::string &path, const ModelOptions &options) {
    std::unique_ptr<OpenDevice> device;
    if (options.device != "cpu") {
        device = open_device(options.device, options.device_module);
    }
    auto model = std::make_shared<Model>(options);
    model->kernels = choose_kernels(options.kernels, device.get());
    const Origin origin(path);
    model->config = origin.config();
    const Config &config = model->config;
    model->threads = std::make_unique<Threads>(options.threads);
    model->weights =
        load_weights(origin.checkpoint(config), config, {model->memory, !options.copy_weights},
                     *model->threads, options.watch, model->identity);
    open_text(*model, origin, options.chat_template);
    model->recommended = origin.recommended();
    for (const Rope &rope : config.ropes) {
        model->rope_frequencies.push_back(stasis::rope_frequencies(rope, config.head_dim));
    }
    group_layers(*model);
    if (device != nullptr) {
        model->device =
            std::make_unique<DeviceModel>(std::move(device), config, model->weights, options.watch);
    }
    model->profile = open_profile(*model, options.profile);
    std::vector<PageShape> shapes;
    for (const LayerGroup &group : model->groups) {
        shapes.push_back({group.layers.size(), config.kv_heads, config.head_dim});
    }
    const uint64_t budget = options.kv_budget_bytes == 0 ? UINT64_MAX : options.kv_budget_bytes;
    PageMemory pages =
        model->device != nullptr ? model->device->pages().memory() : host_pages(model->memory);
    if (options.page_memory != nullptr) {
        pages = *options.page_memory;
    }
    model->pool = std::make_unique<PagePool>(pages, budget, std::move(shapes));
    if (model->device != nullptr) {
        model->device->ask_for_room(
            [&pool = *model->pool](size_t size_bytes) { return pool.make_room(size_bytes); });
    }
    model->log_nodes = std::make_unique<NodePool>(model->memory, sizeof(TokenLog::Node));
    model->table_nodes = std::make_unique<NodePool>(model->memory, sizeof(PageTable::Node));
    return model;
}

} // namespace stasis
