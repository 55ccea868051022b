// stasis info: the description of a model, its memory and metadata, and the digests that identify
// it.
#include <memory>
#include <optional>

#include "tools/cli/commands.h"
#include "tools/cli/estimate.h"
#include "tools/cli/model.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct InfoChoice {
    ModelChoice model;
    bool estimate = false, metadata = false, json = false;
    std::string key;
    uint64_t positions = 0; // 0: the context
};

std::string text_of(const stasis_metadata &metadata) {
    return {metadata.value, metadata.length};
}

int print_metadata(const stasis_model *model, bool json) {
    Json all = Json::object();
    auto metadata = sized<stasis_metadata>();
    stasis_error error{};
    size_t index = 0;
    for (; stasis_model_get_metadata_at(model, index, &metadata, &error) == STASIS_OK; ++index) {
        const std::string value = text_of(metadata);
        const bool left_out = metadata.kind == STASIS_METADATA_LEFT_OUT;
        if (!json) {
            print(visible(metadata.key) + (left_out ? ": left out, " : ": ") + visible(value) +
                  "\n");
        } else if (left_out) {
            all[metadata.key] = {{"left_out", value}};
        } else {
            all[metadata.key] =
                metadata.kind == STASIS_METADATA_JSON ? Json::parse(value) : Json(value);
        }
    }
    if (json) {
        print_json({{"metadata", all}});
    }
    return 0;
}

int print_key(const stasis_model *model, const std::string &key, bool json) {
    auto metadata = sized<stasis_metadata>();
    stasis_error error{};
    check(stasis_model_get_metadata(model, key.c_str(), &metadata, &error), error, "--key");
    const std::string value = text_of(metadata);
    if (metadata.kind == STASIS_METADATA_LEFT_OUT) {
        throw Failure("--key " + key + ": it was left out: " + value);
    }
    if (json) {
        const bool parsed = metadata.kind == STASIS_METADATA_JSON;
        print_json({{"key", key}, {"value", parsed ? Json::parse(value) : Json(value)}});
    } else {
        print(value + "\n");
    }
    return 0;
}

Json digest_list(const stasis_digest *digests, uint32_t count) {
    Json list = Json::array();
    for (uint32_t i = 0; i < count; ++i) {
        list.push_back(hex(digests[i]));
    }
    return list;
}

Json describe(const stasis_model_info &info) {
    Json layer_types = Json::array();
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        layer_types.push_back(info.layer_recurrent[layer] != 0 ? "linear_attention"
                              : info.layer_windows[layer] == 0 ? "full_attention"
                                                               : "sliding_attention");
    }
    const bool tokenizer = (info.flags & STASIS_MODEL_TOKENIZER) != 0;
    const std::string chat_template = info.chat_template;
    return {{"architecture", info.architecture},
            {"layers", info.layers},
            {"hidden", info.hidden},
            {"heads", info.heads},
            {"kv_heads", info.kv_heads},
            {"head_dim", info.head_dim},
            {"vocabulary", info.vocabulary},
            {"context", info.context},
            {"layer_types", layer_types},
            {"kernels", info.kernels},
            {"device", info.device},
            {"contract", contract_text(info.contract)},
            {"profile", info.profile[0] == '\0' ? Json() : Json(info.profile)},
            {"template", chat_template.empty() ? Json() : Json(chat_template)},
            {"weights", info.weight_types},
            {"weight_bytes", info.weight_bytes},
            {"state_bytes", info.state_bytes},
            {"experts", info.experts},
            {"experts_chosen", info.experts_chosen},
            {"mtp_bytes", info.mtp_bytes},
            {"global_kv_heads", info.global_kv_heads},
            {"global_head_dim", info.global_head_dim},
            {"layer_keys", std::vector<uint32_t>(info.layer_keys, info.layer_keys + info.layers)},
            {"ignored", info.ignored},
            {"converted", (info.flags & STASIS_MODEL_CONVERTED) != 0},
            {"digests",
             {{"model", hex(info.model)},
              {"embeddings", hex(info.embeddings)},
              {"norms", hex(info.norms)},
              {"attention", digest_list(info.attention, info.layers)},
              {"mlp", digest_list(info.mlp, info.layers)},
              {"head", hex(info.head)},
              {"tokenizer", tokenizer ? Json(hex(info.tokenizer)) : Json()}}}};
}

std::string layers_text(const stasis_model_info &info) {
    uint32_t local = 0, window = 0, recurrent = 0;
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        recurrent += info.layer_recurrent[layer];
        if (info.layer_windows[layer] != 0) {
            ++local;
            window = info.layer_windows[layer];
        }
    }
    std::string text = std::to_string(info.layers);
    if (recurrent != 0) {
        text += ", " + std::to_string(recurrent) + " of them recurrent, with " +
                std::to_string(info.state_bytes) + " bytes of state";
    }
    return local != 0
               ? text + ", " + std::to_string(local) + " of them see the last " +
                     std::to_string(window) + " positions"
               : text + (recurrent != 0 ? ", the others see everything" : ", all see everything");
}

std::string contract_parts(const stasis_model_info &info) {
    std::string text = contract_text(info.contract);
    if (info.contract_recurrent != 0) {
        text += ", recurrent " + std::to_string(info.contract_recurrent);
    }
    if (info.contract_experts != 0) {
        text += ", experts " + std::to_string(info.contract_experts);
    }
    return text;
}

void print_table(const stasis_model_info &info, const std::optional<Estimate> &estimate) {
    const bool converted = (info.flags & STASIS_MODEL_CONVERTED) != 0;
    const bool tokenizer = (info.flags & STASIS_MODEL_TOKENIZER) != 0;
    row("architecture", info.architecture);
    row("layers", layers_text(info));
    row("hidden", std::to_string(info.hidden));
    row("heads", std::to_string(info.heads) + " query, " + std::to_string(info.kv_heads) +
                     " key/value, of " + std::to_string(info.head_dim));
    if (info.global_kv_heads != info.kv_heads || info.global_head_dim != info.head_dim) {
        row("", std::to_string(info.heads) + " query, " + std::to_string(info.global_kv_heads) +
                    " key/value, of " + std::to_string(info.global_head_dim) +
                    " in layers that see all positions");
    }
    if (info.experts != 0) {
        row("experts", std::to_string(info.experts) + ", of which " +
                           std::to_string(info.experts_chosen) + " for each token");
    }
    row("vocabulary", std::to_string(info.vocabulary));
    row("context", std::to_string(info.context) + " positions");
    row("template", info.chat_template[0] != '\0' ? info.chat_template : "none recognised");
    row("weights", info.weight_types + std::string(converted ? "; matrices wider than bf16 are "
                                                               "rounded to it"
                                                             : ""));
    if (info.mtp_bytes != 0) {
        row("MTP head", "1 layer, " + megabytes(info.mtp_bytes));
    }
    if (info.ignored[0] != '\0') {
        row("ignored", info.ignored + std::string(" tensors"));
    }
    if (estimate) {
        print_memory(*estimate);
    }
    row("kernels", std::string(info.kernels) + " on " + info.device + ", " +
                       std::to_string(info.threads) + " threads");
    row("contract", contract_parts(info));
    if (info.profile[0] != '\0') {
        row("profile", info.profile);
    }

    print("digests\n");
    row("model", hex(info.model));
    row("embeddings", hex(info.embeddings));
    row("norms", hex(info.norms));
    row("head", hex(info.head));
    row("tokenizer", tokenizer ? hex(info.tokenizer) : "none");
    for (uint32_t layer = 0; layer < info.layers; ++layer) {
        row(("layer " + std::to_string(layer)).c_str(),
            "attention " + hex(info.attention[layer]).substr(0, 24) + "...  mlp " +
                hex(info.mlp[layer]).substr(0, 24) + "...");
    }
}

int run_info(const InfoChoice &choice) {
    if (choice.estimate) {
        const Estimate estimate = estimate_of(choice.model, choice.positions);
        if (choice.json) {
            print_json(describe(estimate));
        } else {
            print(visible(choice.model.path) + "\n");
            print_estimate(estimate);
        }
        return 0;
    }
    const Model model = open_model(choice.model, nullptr);
    if (!choice.key.empty()) {
        return print_key(model.get(), choice.key, choice.json);
    }
    if (choice.metadata) {
        return print_metadata(model.get(), choice.json);
    }
    const stasis_model_info info = model_info(model.get());
    std::optional<Estimate> estimate; // of a device's memory there is none
    if (std::string(info.device) == "cpu") {
        estimate = estimate_of(choice.model, choice.positions);
    }
    if (choice.json) {
        Json said = describe(info);
        said["memory"] = estimate ? describe(*estimate) : Json();
        print_json(said);
    } else {
        print(visible(choice.model.path) + "\n");
        print_table(info, estimate);
    }
    return 0;
}

} // namespace

void add_info(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<InfoChoice>();
    CLI::App *info_app = app.add_subcommand("info", "what a model is, and its digests");
    add_model(*info_app, choice->model);
    add_compute_options(*info_app, choice->model);
    CLI::Option *estimate =
        info_app->add_flag("--estimate", choice->estimate,
                           "what can be said at once: the model is not opened, no weight read");
    add_count(*info_app, "--positions", choice->positions,
              "of the session whose memory is said (default: the model's context)");
    CLI::Option *metadata = info_app->add_flag("--metadata", choice->metadata,
                                               "what the model's files say of it, by key");
    CLI::Option *key = info_app->add_option("--key", choice->key, "the metadata of one key alone");
    estimate->excludes(metadata, key);
    metadata->excludes(key);
    info_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    info_app->callback([=, &exit_code] { exit_code = run_info(*choice); });
}

} // namespace command
