// The promises of runtime/model/weights.h about digests: they distinguish what computes
// differently, name the group and layer, and depend on nothing else.
#include "runtime/model/weights.h"

#include <doctest/doctest.h>

#include "tests/runtime/edited_model.h"

namespace stasis {

namespace {

using Names = std::vector<std::string>;

} // namespace

TEST_CASE("load_weights: digests do not depend on shards, prefixes, order or threads") {
    const EditedModel sharded("zoo/llama-mha-bias-f16-sharded");
    CHECK(differences(load(sharded.source).identity, sharded.load().identity).empty());

    EditedModel multimodal("zoo/gemma3-multimodal-prefix");
    const ModelIdentity published = multimodal.load().identity;
    EditedModel renamed("zoo/gemma3-multimodal-prefix");
    renamed.tensors.clear();
    for (const auto &[name, tensor] : multimodal.tensors) {
        const std::string old_prefix = "language_model.model.";
        REQUIRE(name.substr(0, old_prefix.size()) == old_prefix);
        renamed.tensors["model.language_model." + name.substr(old_prefix.size())] = tensor;
    }
    CHECK(differences(published, renamed.load().identity).empty());

    for (const size_t count : {1, 2, 3, 7}) {
        CHECK(differences(published, load(multimodal.source, count).identity).empty());
    }
}

TEST_CASE("load_weights: one flipped bit changes its own group's digest, its layer named") {
    for (const std::string source : {"zoo/llama-gqa-untied", "zoo/gemma3-text"}) {
        EditedModel model(source);
        const ModelIdentity before = model.load().identity;
        for (auto &entry : model.tensors) {
            const std::string &name = entry.first;
            CAPTURE(name);
            std::string group = "norms";
            if (name.find("embed_tokens") != std::string::npos) {
                group = "embeddings";
            } else if (name.find("lm_head") != std::string::npos) {
                group = "head";
            } else if (name.find("_proj") != std::string::npos) {
                const std::string layer = name.substr(name.find("layers.") + 7, 1);
                group = (name.find("mlp") != std::string::npos ? "mlp " : "attention ") + layer;
            }
            Names expected{group, "model"};
            if (group == "embeddings" && source == "zoo/gemma3-text") {
                expected = {"embeddings", "head", "model"};
            }
            std::string &bytes = entry.second.bytes;
            char &byte = bytes[bytes.size() / 2 & ~size_t{1}];
            byte = static_cast<char>(byte ^ 1);
            CHECK(differences(before, model.load().identity) == expected);
            byte = static_cast<char>(byte ^ 1);
        }
        CHECK(differences(before, model.load().identity).empty());
    }
}

TEST_CASE("load_weights: tensors swapped between layers change both layers") {
    EditedModel model("zoo/llama-gqa-untied");
    const ModelIdentity before = model.load().identity;
    std::swap(model.tensors.at("model.layers.0.mlp.up_proj.weight"),
              model.tensors.at("model.layers.1.mlp.up_proj.weight"));
    CHECK(differences(before, model.load().identity) == Names{"mlp 0", "mlp 1", "model"});
}

TEST_CASE("load_weights: the norm conventions are in the norms' digest") {
    const EditedModel model("zoo/gemma3-text");
    const ModelIdentity before = model.load().identity;
    model.set_config("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-05");
    CHECK(differences(before, model.load().identity) == Names{"config", "norms", "model"});
}

TEST_CASE("load_weights: a tensor above one piece is hashed and checked to its end") {
    // 1.5 MiB of embeddings: two pieces.
    EditedModel model("zoo/llama-gqa-untied");
    const size_t rows = 12288;
    model.set_config("\"vocab_size\": 192", "\"vocab_size\": 12288");
    for (const char *name : {"model.embed_tokens.weight", "lm_head.weight"}) {
        model.tensors[name] = {"BF16", {rows, 64}, std::string(rows * 64 * 2, '\x01')};
    }
    const ModelIdentity before = model.load().identity;
    StoredTensor &head = model.tensors.at("lm_head.weight");
    for (const size_t index : {size_t{0}, size_t{524287}, size_t{524288}, rows * 64 - 1}) {
        CAPTURE(index);
        const StoredTensor saved = head;
        set_value<uint16_t>(head, index, 0x3F80);
        CHECK(differences(before, model.load().identity) == Names{"head", "model"});
        set_value<uint16_t>(head, index, 0x7F80);
        expect_refused(model, Status::nonfinite, {"lm_head.weight", std::to_string(index)});
        head = saved;
    }
}

TEST_CASE("load_weights: tensors without influence are let pass, and are in no digest") {
    EditedModel llama("zoo/llama3-tied-ropescaled");
    const ModelIdentity before = llama.load().identity;
    llama.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, "abcd"};
    llama.tensors["lm_head.weight"] = llama.tensors.at("model.embed_tokens.weight");
    CHECK(differences(before, llama.load().identity).empty());

    EditedModel gemma("zoo/gemma3-multimodal-prefix");
    const ModelIdentity text_only = gemma.load().identity;
    gemma.tensors["vision_tower.vision_model.post_layernorm.weight"] = {"F32", {1}, "abcd"};
    gemma.tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = {"I16", {1}, "ab"};
    CHECK(differences(text_only, gemma.load().identity).empty());
}

} // namespace stasis
