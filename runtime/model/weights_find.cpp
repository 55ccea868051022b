// Finds tensors by their names in the layouts of checkpoints; see weights_find.h.
#include "runtime/model/weights_find.h"

#include <map>
#include <set>
#include <string_view>

#include "format/state/error.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

namespace {

// The prefixes of names in checkpoints: a text model; a multimodal Gemma 3 as published; the same
// as newer tools write it, and a multimodal Qwen3.5; a model for embeddings (Qwen3 Embedding). Only
// multimodal ones may have a vision tower beside the text model.
struct Layout {
    const char *body;
    const char *head;
    bool multimodal;
};
constexpr Layout kLayouts[] = {
    {"model.", "", false},
    {"language_model.model.", "language_model.", true},
    {"model.language_model.", "", true},
    {"", "", false},
};

constexpr const char *kTowers[] = {"vision_tower.",       "multi_modal_projector.",
                                   "model.vision_tower.", "model.multi_modal_projector.",
                                   "model.visual.",       "model.embed_vision.",
                                   "model.audio_tower.",  "model.embed_audio."};
// MTP heads of Qwen3.5.
constexpr std::string_view kPredicting = "mtp.";

const Layout &find_layout(const Checkpoint &checkpoint) {
    for (const Layout &layout : kLayouts) {
        const std::string name = std::string(layout.body) + kEmbeddings;
        if (checkpoint.tensors.count(name) != 0 || checkpoint.refused.count(name) != 0) {
            return layout;
        }
    }
    fail(Status::corrupt, "tensor %s%s is missing from the checkpoint", kLayouts[0].body,
         kEmbeddings);
}

std::string stored_name(const Layout &layout, const std::string &name) {
    if (name.starts_with(kPredicting)) {
        return name;
    }
    return (name == kHead ? layout.head : layout.body) + name;
}

std::string shape_text(const std::vector<uint64_t> &shape) {
    std::string text = "[";
    for (const uint64_t dimension : shape) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
    }
    return text + "]";
}

// Reports whether a tensor cannot influence results. Such tensors are rotary frequencies that old
// tools saved although they follow from the config, the vision tower, what is not used of an MTP
// head, and a copy of the embeddings that some tools write as the head of a model with a tied head.
// (An untied head is in the plan, and so is not unknown.)
bool is_harmless(std::string_view name, const Layout &layout) {
    constexpr std::string_view kFrequencies = ".rotary_emb.inv_freq";
    if (name.size() > kFrequencies.size() &&
        name.substr(name.size() - kFrequencies.size()) == kFrequencies) {
        return true;
    }
    for (const std::string_view tower : kTowers) {
        if (layout.multimodal && name.substr(0, tower.size()) == tower) {
            return true;
        }
    }
    return name.starts_with(kPredicting) || name == stored_name(layout, kHead);
}

// Returns the length of the part of an ignored tensor's name that says what it belongs to.
size_t beginning_of(std::string_view name) {
    for (const std::string_view tower : kTowers) {
        if (name.starts_with(tower)) {
            return tower.size() - 1;
        }
    }
    return name.starts_with(kPredicting) ? kPredicting.size() - 1 : name.size();
}

const Tensor &find_of_kind(const Checkpoint &checkpoint, const std::string &name,
                           const std::vector<uint64_t> &shape, bool bytes) {
    const auto refused = checkpoint.refused.find(name);
    const auto found = checkpoint.tensors.find(name);
    const bool known = found != checkpoint.tensors.end();
    if (refused != checkpoint.refused.end() ||
        (known && (found->second.type == DataType::bytes) != bytes)) {
        fail(Status::unsupported, "tensor %s has dtype %s, which is not supported (%s)",
             name.c_str(), known ? name_of(found->second.type) : refused->second.c_str(),
             bytes ? "U8 is" : "BF16, F16 and F32 are");
    }
    if (!known) {
        fail(Status::corrupt, "tensor %s is missing from the checkpoint",
             shown_name(checkpoint, name).c_str());
    }
    if (found->second.shape != shape) {
        fail(Status::corrupt, "tensor %s in %s: %s asks for the shape %s, found %s",
             shown_name(checkpoint, name).c_str(), found->second.file.c_str(),
             checkpoint.description, shape_text(shape).c_str(),
             shape_text(found->second.shape).c_str());
    }
    return found->second;
}

} // namespace

bool has_mtp(const Config &config, const Checkpoint &checkpoint) {
    return config.mtp_layers == 1 &&
           (checkpoint.tensors.count(kMtpJoin) != 0 || checkpoint.refused.count(kMtpJoin) != 0);
}

const char *body_prefix(const Checkpoint &checkpoint) {
    return find_layout(checkpoint).body;
}

std::string shown_name(const Checkpoint &checkpoint, const std::string &name) {
    return checkpoint.name_in_file ? checkpoint.name_in_file(name) : name;
}

const Tensor &find_tensor(const Checkpoint &checkpoint, const std::string &name,
                          const std::vector<uint64_t> &shape) {
    return find_of_kind(checkpoint, name, shape, false);
}

const Tensor &find_bytes(const Checkpoint &checkpoint, const std::string &name,
                         const std::vector<uint64_t> &shape) {
    return find_of_kind(checkpoint, name, shape, true);
}

// Published files have tensors for keys and values of layers that use another's.
std::string find_tensors(const Config &config, const Checkpoint &checkpoint,
                         std::vector<PlannedTensor> &plan) {
    const Layout &layout = find_layout(checkpoint);
    std::set<std::string> planned, unused;
    for (uint32_t i = 0; i < config.layers; ++i) {
        for (const char *part : {"k_proj", "v_proj", "k_norm"}) {
            const std::string name =
                layout.body + ("layers." + std::to_string(i) + ".self_attn.") + part;
            if (!config.layer[i].own_keys()) {
                unused.insert({name + ".weight", name + ".bias"});
            }
        }
    }
    for (PlannedTensor &entry : plan) {
        const std::string name = stored_name(layout, entry.name);
        entry.shown = checkpoint.name_in_file ? checkpoint.name_in_file(name) : entry.name;
        entry.tensor = &find_tensor(checkpoint, name, entry.shape);
        planned.insert(name);
    }
    std::map<std::string, size_t> ignored; // number of tensors by the beginning of their names
    const auto check_known = [&](const std::string &name, const std::string &file) {
        if (planned.count(name) != 0) {
            return;
        }
        if (unused.count(name) != 0) {
            ++ignored["keys and values of layers that use another's"];
            return;
        }
        if (!is_harmless(name, layout)) {
            fail(Status::unsupported, "tensor %s%s is not part of the architecture in %s",
                 shown_name(checkpoint, name).c_str(), file.c_str(), checkpoint.description);
        }
        ++ignored[name.substr(0, beginning_of(name))];
    };
    for (const auto &[name, tensor] : checkpoint.tensors) {
        check_known(name, " in " + tensor.file);
    }
    for (const auto &[name, dtype] : checkpoint.refused) {
        check_known(name, "");
    }
    std::string text;
    for (const auto &[beginning, count] : ignored) {
        text += (text.empty() ? "" : ", ") + beginning + ": " + std::to_string(count);
    }
    return text;
}

} // namespace stasis
