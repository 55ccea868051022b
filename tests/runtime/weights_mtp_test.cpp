// MTP heads: what is loaded of them, from directories and GGUF files; which are ignored, and what
// is refused by name.
#include "runtime/model/weights.h"

#include <functional>

#include "runtime/model/gguf/checkpoint.h"
#include "runtime/model/gguf/config.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/gguf_hybrid.h"
#include "tests/runtime/mtp_head.h"

namespace stasis {

using namespace test;

namespace {

const char *const kHybrids[] = {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe"};
const char kDense[] = "zoo/qwen3_5-dense";

// A hybrid with an MTP head, whose tensors a test may change.
struct WithHead : EditedModel {
    explicit WithHead(const char *model) : EditedModel(model) { add_mtp_head(tensors); }

    std::vector<std::string> names() const {
        std::vector<std::string> out;
        for (const auto &[name, tensor] : tensors) {
            if (name.starts_with(kMtp)) {
                out.push_back(name);
            }
        }
        return out;
    }
};

std::string matrix_bytes(const Matrix &matrix) {
    REQUIRE(matrix.data != nullptr);
    return {reinterpret_cast<const char *>(matrix.data), matrix.rows * matrix.columns * 2};
}

// The names of a head's matrices and norms, dense or with experts.
std::vector<std::pair<std::string, const Matrix *>> matrices_of(const MtpWeights &mtp) {
    const LayerWeights &layer = mtp.layer;
    std::vector<std::pair<std::string, const Matrix *>> out = {
        {"mtp.fc", &mtp.join},
        {"mtp.layers.0.self_attn.q_proj", &layer.query},
        {"mtp.layers.0.self_attn.k_proj", &layer.key},
        {"mtp.layers.0.self_attn.v_proj", &layer.value},
        {"mtp.layers.0.self_attn.o_proj", &layer.output}};
    const auto add = [&](const std::string &name, const Mlp &mlp) {
        out.emplace_back("mtp.layers.0.mlp." + name + "gate_proj", &mlp.gate);
        out.emplace_back("mtp.layers.0.mlp." + name + "up_proj", &mlp.up);
        out.emplace_back("mtp.layers.0.mlp." + name + "down_proj", &mlp.down);
    };
    if (layer.experts.each.empty()) {
        add("", layer.mlp);
        return out;
    }
    out.emplace_back("mtp.layers.0.mlp.gate", &layer.experts.router);
    out.emplace_back("mtp.layers.0.mlp.shared_expert_gate", &layer.experts.shared_gate);
    add("shared_expert.", layer.experts.shared);
    for (size_t i = 0; i < layer.experts.each.size(); ++i) {
        add("experts." + std::to_string(i) + ".", layer.experts.each[i]);
    }
    return out;
}

std::vector<std::pair<std::string, const float *>> norms_of(const MtpWeights &mtp) {
    return {{"mtp.pre_fc_norm_embedding", mtp.embedding_norm},
            {"mtp.pre_fc_norm_hidden", mtp.hidden_norm},
            {"mtp.norm", mtp.final_norm},
            {"mtp.layers.0.input_layernorm", mtp.layer.attention_norm},
            {"mtp.layers.0.post_attention_layernorm", mtp.layer.mlp_norm},
            {"mtp.layers.0.self_attn.q_norm", mtp.layer.query_norm},
            {"mtp.layers.0.self_attn.k_norm", mtp.layer.key_norm}};
}

// Compares a head with the tensors, which are of BF16 and as directories store them.
void expect_values(const MtpWeights &mtp, const StoredTensors &tensors) {
    REQUIRE(mtp.present());
    for (const auto &each : matrices_of(mtp)) {
        const std::string &name = each.first;
        const Matrix *matrix = each.second;
        CAPTURE(name);
        const StoredTensor &tensor = tensors.at(name + ".weight");
        CHECK(tensor.shape == std::vector<uint64_t>{matrix->rows, matrix->columns});
        CHECK(matrix_bytes(*matrix) == tensor.bytes);
    }
    for (const auto &each : norms_of(mtp)) {
        const std::string &name = each.first;
        const float *norm = each.second;
        CAPTURE(name);
        const std::vector<float> values = values_of(tensors.at(name + ".weight"));
        REQUIRE(norm != nullptr);
        for (size_t i = 0; i < values.size(); ++i) {
            CHECK(norm[i] == 1.0F + values[i]);
        }
    }
}

void expect_edit_ignored(const char *model, const std::string &ignored,
                         const std::function<void(WithHead &)> &edit) {
    WithHead edited(model);
    edit(edited);
    CAPTURE(ignored);
    const Loaded loaded = edited.load();
    CHECK_FALSE(loaded.weights.mtp.present());
    CHECK(loaded.weights.mtp.stored_bytes == 0);
    CHECK(loaded.weights.ignored == ignored);
}

struct LoadedFile {
    TemporaryDirectory folder;
    Loaded loaded;

    explicit LoadedFile(const std::string &bytes) {
        write_bytes(folder.file("m.gguf"), bytes);
        const GgufFile file = open_gguf(folder.file("m.gguf"));
        loaded.config = read_config(file);
        Threads threads(2);
        static const Memory heap;
        loaded.weights = load_weights(checkpoint_of(file, loaded.config), loaded.config, {heap},
                                      threads, {}, loaded.identity);
    }
};

// The dense hybrid with its head as a GGUF file.
GgufHybrid file_with_head() {
    GgufHybrid model(test_data(kDense));
    add_mtp_head(model.tensors);
    model.predicting = true;
    return model;
}

} // namespace

TEST_CASE("load_weights: an MTP head is loaded, and is no part of the model's identity") {
    for (const char *name : kHybrids) {
        CAPTURE(name);
        const Loaded plain = EditedModel(name).load();
        const WithHead model(name);
        const Loaded loaded = model.load();
        CHECK_FALSE(plain.weights.mtp.present());
        expect_values(loaded.weights.mtp, model.tensors);
        CHECK(matrices_of(loaded.weights.mtp).size() + norms_of(loaded.weights.mtp).size() ==
              model.names().size());
        CHECK(differences(plain.identity, loaded.identity).empty());
        CHECK(loaded.weights.ignored == "");
        CHECK(loaded.weights.types == plain.weights.types);
        CHECK(loaded.weights.stored_bytes == plain.weights.stored_bytes);
        uint64_t head_bytes = 0;
        for (const std::string &part : model.names()) {
            head_bytes += model.tensors.at(part).bytes.size();
        }
        CHECK(loaded.weights.mtp.stored_bytes == head_bytes);
        CHECK(loaded.weights.storage.empty()); // mapped
    }
}

TEST_CASE("load_weights: an MTP head of other types is rounded as other matrices are") {
    WithHead model(kDense);
    const StoredTensors narrow = model.tensors;
    for (const char *name : {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.mlp.up_proj.weight",
                             "mtp.layers.0.self_attn.q_norm.weight"}) {
        StoredTensor &tensor = model.tensors.at(name);
        std::string wide;
        for (const float value : values_of(tensor)) {
            wide += gguf_number(value);
        }
        tensor = {"F32", tensor.shape, wide};
    }
    const Loaded loaded = model.load();
    expect_values(loaded.weights.mtp, narrow);
    CHECK_FALSE(loaded.weights.converted); // none of the model's

    StoredTensor &key = model.tensors.at("mtp.layers.0.self_attn.k_proj.weight");
    key.dtype = "F16";
    for (size_t at = 0; at < key.bytes.size(); at += 2) {
        key.bytes.replace(at, 2, "\x01\x3E"); // 1.5 and a step, which bf16 does not have
    }
    const Loaded halves = model.load();
    const Matrix &rounded = halves.weights.mtp.layer.key;
    CHECK(std::all_of(rounded.data, rounded.data + rounded.rows * rounded.columns,
                      [](uint16_t bits) { return bits == 0x3FC0; }));
}

TEST_CASE("load_weights: experts of an MTP head may be one tensor") {
    WithHead model("zoo/qwen3_5-moe");
    const StoredTensors apart = model.tensors;
    const std::string experts = "mtp.layers.0.mlp.experts.";
    const auto join = [&](const std::vector<std::string> &parts, const std::string &fused) {
        StoredTensor whole{"BF16", {8, 0, 0}, ""};
        for (int i = 0; i < 8; ++i) {
            for (const std::string &part : parts) {
                const std::string name = experts + std::to_string(i) + "." + part + ".weight";
                const StoredTensor tensor = model.tensors.at(name);
                whole.shape = {8, tensor.shape[0] * parts.size(), tensor.shape[1]};
                whole.bytes += tensor.bytes;
                model.tensors.erase(name);
            }
        }
        model.tensors[experts + fused] = whole;
    };
    join({"gate_proj", "up_proj"}, "gate_up_proj");
    join({"down_proj"}, "down_proj");
    expect_values(model.load().weights.mtp, apart);
}

TEST_CASE("load_weights: wrong tensors of an MTP head are refused by name") {
    for (const char *hybrid : kHybrids) {
        for (const std::string &name : WithHead(hybrid).names()) {
            const auto refused = [&](Status status, const char *part, const auto &edit) {
                WithHead model(hybrid);
                edit(model.tensors);
                expect_refused(model, status, {name, part});
            };
            if (name != "mtp.fc.weight") {
                refused(Status::corrupt, "missing",
                        [&](StoredTensors &tensors) { tensors.erase(name); });
            }
            refused(Status::corrupt, "shape",
                    [&](StoredTensors &tensors) { tensors.at(name).shape.push_back(1); });
            refused(Status::nonfinite, "index 3", [&](StoredTensors &tensors) {
                tensors.at(name).bytes.replace(6, 2, "\x80\x7F");
            });
            refused(Status::unsupported, "I16",
                    [&](StoredTensors &tensors) { tensors.at(name).dtype = "I16"; });
        }
    }
}

TEST_CASE("load_weights: MTP heads that are not used are ignored and named") {
    const std::string all = "mtp: " + std::to_string(WithHead(kDense).names().size());
    const std::string without = "mtp: " + std::to_string(WithHead(kDense).names().size() - 1);
    const std::string count = "\"mtp_num_hidden_layers\": ", own = "dedicated_embeddings\": ";
    expect_edit_ignored(kDense, without,
                        [](WithHead &model) { model.tensors.erase("mtp.fc.weight"); });
    expect_edit_ignored(kDense, all,
                        [&](WithHead &model) { model.set_config(count + "1", count + "0"); });
    expect_edit_ignored(kDense, all,
                        [&](WithHead &model) { model.set_config(count + "1", count + "2"); });
    expect_edit_ignored(kDense, all,
                        [&](WithHead &model) { model.set_config(own + "false", own + "true"); });

    WithHead more(kDense);
    more.tensors["mtp.layers.1.self_attn.q_proj.weight"] = {"F32", {1}, std::string(4, '\0')};
    more.tensors["mtp.layers.0.self_attn.q_proj.scale"] = {"I16", {1}, std::string(2, '\0')};
    const Loaded loaded = more.load();
    CHECK(loaded.weights.mtp.present());
    CHECK(loaded.weights.ignored == "mtp: 2");
}

TEST_CASE("load_weights: an MTP head of a GGUF file is the directory's") {
    for (const bool listed : {false, true}) {
        GgufHybrid model = file_with_head();
        model.listed = listed;
        const LoadedFile file(model.bytes());
        CHECK(file.loaded.config.layers == model.config.layers);
        expect_values(file.loaded.weights.mtp, model.tensors);
        CHECK(file.loaded.weights.ignored == "");
        const LoadedFile plain(GgufHybrid(test_data(kDense)).bytes());
        CHECK_FALSE(plain.loaded.weights.mtp.present());
        CHECK(differences(plain.loaded.identity, file.loaded.identity).empty());
    }
    GgufHybrid integers = file_with_head();
    integers.integers = true;
    const LoadedFile file(integers.bytes());
    const MtpWeights &mtp = file.loaded.weights.mtp;
    CHECK(mtp.present());
    for (const auto &each : matrices_of(mtp)) {
        CAPTURE(each.first);
        CHECK(each.second->strips != nullptr);
    }
    CHECK(mtp.groups.by_32);
    CHECK_FALSE(mtp.groups.by_256);
}

TEST_CASE("load_weights: groups of integers of an MTP head are its own") {
    GgufHybrid model = file_with_head();
    model.integers_of = kMtp;
    const LoadedFile file(model.bytes());
    CHECK(file.loaded.weights.mtp.groups.by_32);
    CHECK_FALSE(file.loaded.weights.groups.by_32);
}

TEST_CASE("load_weights: wrong tensors of a GGUF file's MTP head are refused by name") {
    for (const auto &[name, shown] : {std::pair{"mtp.norm.weight", "nextn.shared_head_norm.weight"},
                                      {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
                                      {"mtp.layers.0.self_attn.v_proj.weight", "attn_v.weight"}}) {
        const std::string in_file = "tensor blk.8." + std::string(shown);
        GgufHybrid model = file_with_head();
        REQUIRE(model.config.layers == 8);
        model.tensors.erase(name);
        expect_error(Status::corrupt, {in_file, "missing"},
                     [&] { const LoadedFile file(model.bytes()); });
        model = file_with_head();
        model.tensors.at(name).bytes.replace(6, 2, "\x80\x7F");
        expect_error(Status::nonfinite, {in_file, "index 3"},
                     [&] { const LoadedFile file(model.bytes()); });
    }
    GgufHybrid model = file_with_head();
    model.tensors.at("mtp.fc.weight").shape = {128, 64};
    expect_error(Status::corrupt, {"blk.8.nextn.eh_proj.weight", "[64, 128]"},
                 [&] { const LoadedFile file(model.bytes()); });
}

TEST_CASE("load_weights: a GGUF file's MTP head that is not used is ignored and named") {
    const size_t count = WithHead(kDense).names().size();
    for (const char *own : {"mtp.embed_tokens.weight", "mtp.shared_head_head.weight"}) {
        GgufHybrid model = file_with_head();
        model.tensors[own] = {"BF16", {1, 64}, std::string(128, '\0')};
        const LoadedFile file(model.bytes());
        CHECK_FALSE(file.loaded.weights.mtp.present());
        CHECK(file.loaded.weights.ignored == "mtp: " + std::to_string(count + 1));
    }
    GgufHybrid model = file_with_head();
    model.tensors.erase("mtp.fc.weight");
    const LoadedFile file(model.bytes());
    CHECK_FALSE(file.loaded.weights.mtp.present());
    CHECK(file.loaded.weights.ignored == "mtp: " + std::to_string(count - 1));

    model = file_with_head();
    model.tensors["mtp.more.weight"] = {"BF16", {1, 64}, std::string(128, '\0')};
    const LoadedFile more(model.bytes());
    CHECK(more.loaded.weights.mtp.present());
    CHECK(more.loaded.weights.ignored == "mtp: 1");
}

} // namespace stasis
