// Compares a stored state with the model, element by element; see check.h.
#include "runtime/snapshot/check.h"

#include <algorithm>

#include "format/state/elements.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

namespace {

[[noreturn]] void refuse(Element element, const std::string &where, const std::string &stored,
                         const std::string &model) {
    const std::string name = element_name(element);
    fail(Status::model_mismatch, "%s differ%s: %sthe snapshot has %s, the model has %s",
         name.c_str(), name.back() == 's' ? "" : "s", where.c_str(), stored.c_str(), model.c_str());
}

void check_digest(Element element, const char *where, const Digest &stored, const Digest &model) {
    if (stored != model) {
        refuse(element, where, to_hex(stored), to_hex(model));
    }
}

// Compares names and values in order; `element_of` returns the element of a name.
template <typename ElementOf>
void check_pairs(const ElementOf &element_of,
                 const std::vector<std::pair<std::string, std::string>> &stored,
                 const std::vector<std::pair<std::string, std::string>> &model) {
    const auto text = [](const auto &pairs, size_t i) {
        return i < pairs.size() ? pairs[i].first + " = " + pairs[i].second : "nothing";
    };
    for (size_t i = 0; i < std::max(stored.size(), model.size()); ++i) {
        if (text(stored, i) != text(model, i)) {
            const std::string &name = i < model.size() ? model[i].first : stored[i].first;
            refuse(element_of(name), "", text(stored, i), text(model, i));
        }
    }
}

void check_layers(const char *what, const std::vector<Digest> &stored,
                  const std::vector<Digest> &model) {
    for (size_t layer = 0; layer < std::min(stored.size(), model.size()); ++layer) {
        const std::string where = "layer " + std::to_string(layer) + what;
        check_digest(Element::attention_weights, where.c_str(), stored[layer], model[layer]);
    }
}

// Parts for layers that few models have are named where they differ.
void check_contract(const ContractId &stored, const ContractId &ours) {
    if (stored.core != ours.core || stored.kv != ours.kv || stored.sampling != ours.sampling) {
        fail(Status::version,
             "KV format version differs: the snapshot was computed under contract "
             "%u.%u.%u, this build computes under %u.%u.%u",
             stored.core, stored.kv, stored.sampling, ours.core, ours.kv, ours.sampling);
    }
    const auto check = [](const char *part, uint32_t there, uint32_t here) {
        if (there != here) {
            fail(Status::version,
                 "KV format version differs: the snapshot's %s were computed under version %u of "
                 "their contract, this build computes the model's under %u (0: there are none)",
                 part, there, here);
        }
    };
    check("recurrent layers", stored.recurrent, ours.recurrent);
    check("experts", stored.experts, ours.experts);
}

} // namespace

ContractId contract_of(const Config &config, const std::vector<Sampling> &samplings) {
    return {kernels::kContractCore, kernels::kContractKv, sampling_version(samplings),
            config.recurrent.value_heads != 0 ? kernels::kContractRecurrent : 0,
            config.experts.count != 0 ? kernels::kContractExperts : 0};
}

RecurrentShape recurrent_shape_of(const Config &config) {
    RecurrentShape shape;
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        if (config.layer[layer].recurrent) {
            shape.layers.push_back(layer);
        }
    }
    if (!shape.layers.empty()) {
        const Recurrent &from = config.recurrent;
        shape.key_heads = from.key_heads;
        shape.value_heads = from.value_heads;
        shape.key_dim = from.key_dim;
        shape.value_dim = from.value_dim;
        shape.taps = from.taps;
    }
    return shape;
}

bool has_long_rope(const ModelIdentity &stored, const Model &model) {
    return model.config.long_rope_from() != 0 &&
           (stored.config.empty() || stored.config.back() != short_rope());
}

void check_identity(const ModelIdentity &stored, const Model &opened) {
    const ModelIdentity &model = opened.identity_of(has_long_rope(stored, opened));
    if (stored.architecture != model.architecture) {
        refuse(Element::model_config, "architecture: ", stored.architecture, model.architecture);
    }
    check_pairs(config_element, stored.config, model.config);
    check_digest(Element::token_embeddings, "", stored.embeddings, model.embeddings);
    check_digest(Element::layer_norm, "", stored.norms, model.norms);
    check_layers(": ", stored.attention, model.attention);
    check_layers(", its MLP: ", stored.mlp, model.mlp);
    check_digest(Element::logits, "output head: ", stored.head, model.head);
    check_digest(Element::model_config, "identity: ", stored.model, model.model);
    const auto tokenizer = [](std::string_view) { return Element::tokenizer; };
    check_pairs(tokenizer, stored.tokenizer_rules, model.tokenizer_rules);
    check_digest(Element::tokenizer, "", stored.tokenizer, model.tokenizer);
    if (stored.chat_template != model.chat_template) {
        refuse(Element::tokenizer, "chat template: ", stored.chat_template, model.chat_template);
    }
    require_sessions(opened); // last, so that another model's snapshot is a mismatch
}

void check_geometry(const State &state, const Model &model) {
    const Config &config = model.config;
    const bool same = state.layers == config.layers && state.kv_heads == config.kv_heads &&
                      state.head_dim == config.head_dim && state.hidden_size == config.hidden &&
                      state.vocabulary == config.vocabulary;
    if (!same) {
        fail(Status::model_mismatch,
             "KV cache differs in shape: the snapshot has %u layers of %u "
             "heads of %u, the model %u of %u of %u",
             state.layers, state.kv_heads, state.head_dim, config.layers, config.kv_heads,
             config.head_dim);
    }

    check_contract(state.contract, contract_of(config, state.samplings));
    if (state.page_positions != kPage) {
        fail(Status::version, "KV format version differs: pages of %u positions, expected %llu",
             state.page_positions, Number{kPage});
    }

    // Each layer group must have the same window and layers, and all pages of the log.
    bool groups =
        state.groups.size() == model.groups.size() && state.pages.size() == model.groups.size();
    for (size_t i = 0; groups && i < model.groups.size(); ++i) {
        groups = state.groups[i].window == model.groups[i].window &&
                 state.groups[i].layers == model.groups[i].layers &&
                 state.groups[i].kv_heads == model.groups[i].kv_heads &&
                 state.groups[i].head_dim == model.groups[i].head_dim &&
                 state.pages[i].size() == (state.log.size() + kPage - 1) / kPage;
    }
    if (!groups || state.sharing != model.sharing) {
        fail(Status::model_mismatch, "attention mask differs: layer groups, their heads or windows "
                                     "are not the model's");
    }
    if (state.recurrent != recurrent_shape_of(config)) {
        fail(Status::model_mismatch, "KV cache differs in shape: recurrent layers, their heads or "
                                     "sizes are not the model's");
    }
}

} // namespace stasis
