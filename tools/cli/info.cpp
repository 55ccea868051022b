// stasis info: the description of a model, and the digests that identify it.
#include <cstdio>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/model.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct InfoChoice {
    ModelChoice model;
    bool json = false;
};

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

void print_table(const stasis_model_info &info) {
    const auto row = [](const char *name, const std::string &value) {
        print("  " + std::string(name) + std::string(14 - std::string(name).size(), ' ') +
              visible(value) + "\n");
    };
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
        char megabytes[40];
        std::snprintf(megabytes, sizeof megabytes, "%.1f MB",
                      static_cast<double>(info.mtp_bytes) / 1e6);
        row("MTP head", std::string("1 layer, ") + megabytes);
    }
    if (info.ignored[0] != '\0') {
        row("ignored", info.ignored + std::string(" tensors"));
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
    const Model model = open_model(choice.model, nullptr);
    const stasis_model_info info = model_info(model.get());
    if (choice.json) {
        print_json(describe(info));
    } else {
        print(visible(choice.model.path) + "\n");
        print_table(info);
    }
    return 0;
}

} // namespace

void add_info(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<InfoChoice>();
    CLI::App *info_app = app.add_subcommand("info", "what a model is, and its digests");
    add_model(*info_app, choice->model);
    add_compute_options(*info_app, choice->model);
    info_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    info_app->callback([=, &exit_code] { exit_code = run_info(*choice); });
}

} // namespace command
