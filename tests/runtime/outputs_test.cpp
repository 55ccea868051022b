// GGUF files of mixtures of experts and of hybrids, as quantizing writes them: what is in them,
// that they compute what their directories do, and what they cannot say.
#include "runtime/quantize/outputs.h"

#include "runtime/model/gguf/config.h"
#include "runtime/quantize/quantize.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/gguf_hybrid.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/mtp_head.h"
#include "tests/runtime/passes.h"

namespace stasis {

using namespace test;

namespace {

// A GGUF file of a directory.
struct Written {
    Written(const std::string &source, const std::string &type) {
        QuantizeOptions options;
        options.type = type;
        options.threads = 2;
        quantize_model(source, path(), options);
    }

    std::string path() const { return folder.file("m.gguf"); }
    std::shared_ptr<Model> open(const char *table = nullptr) const {
        ModelOptions options;
        options.threads = 2;
        if (table != nullptr) {
            options.kernels = table;
        }
        return open_model(path(), options);
    }

    TemporaryDirectory folder;
};

std::string bytes_in(const GgufFile &file, const std::string &name) {
    const GgufTensor &tensor = file.tensor(name);
    std::string bytes(tensor.size_bytes, '\0');
    file.files[tensor.file]->read(bytes.data(), bytes.size(), tensor.offset_bytes);
    return bytes;
}

std::string as_f32(const StoredTensor &tensor) {
    std::string bytes;
    for (const float value : values_of(tensor)) {
        bytes += gguf_number(value);
    }
    return bytes;
}

// Zeroes a value head's columns of the output's product, so that the order of heads does not
// matter.
void silence_head(EditedModel &edited, size_t head) {
    const Config config = read_config(edited.source);
    const size_t unit = config.recurrent.value_dim * sizeof(uint16_t);
    for (auto &[name, tensor] : edited.tensors) {
        for (size_t row = 0; row < config.hidden && name.find("linear_attn.out_proj") < name.size();
             ++row) {
            const size_t at = (row * config.recurrent.value_heads + head) * unit;
            std::fill_n(tensor.bytes.data() + at, unit, '\0');
        }
    }
    write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
}

void expect_tables_agree(const std::string &source, const std::string &type) {
    const Written written(source, type);
    const auto file = written.open();
    const std::vector<uint32_t> tokens = tokens_for(*file, 70);
    const PassedLog whole = passed_log(*file, tokens, tokens.size());
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        if (kernels::find_table(*name) != nullptr) {
            INFO("table: ", *name);
            const auto forced = written.open(*name);
            CHECK(same_log(passed_log(*forced, tokens, 33), whole));
        }
    }
}

} // namespace

TEST_CASE("plan_outputs: the experts of a layer are one tensor, and their weights are F32") {
    const std::string source = test_data("zoo/qwen3-moe");
    const StoredTensors tensors = read_tensors_of(source);
    const Written written(source, "BF16");
    const GgufFile file = open_gguf(written.path());
    for (const auto &[in_file, in_directory] :
         {std::pair{"gate", "gate"}, std::pair{"up", "up"}, std::pair{"down", "down"}}) {
        std::string expected;
        for (size_t expert = 0; expert < 8; ++expert) {
            expected += tensors
                            .at("model.layers.2.mlp.experts." + std::to_string(expert) + "." +
                                in_directory + "_proj.weight")
                            .bytes;
        }
        const std::string name = std::string("blk.2.ffn_") + in_file + "_exps.weight";
        CHECK(file.tensor(name).type == GgufType::bf16);
        CHECK(file.tensor(name).shape.back() == 8);
        CHECK(bytes_in(file, name) == expected);
    }
    CHECK(file.tensor("blk.2.ffn_gate_inp.weight").type == GgufType::f32);
    CHECK(bytes_in(file, "blk.2.ffn_gate_inp.weight") ==
          as_f32(tensors.at("model.layers.2.mlp.gate.weight")));
    CHECK(file.integer("qwen3moe.expert_count") == 8);
    CHECK(file.integer("qwen3moe.expert_used_count") == 2);
    CHECK(file.integer("qwen3moe.expert_feed_forward_length") == 32);
}

TEST_CASE("plan_outputs: a hybrid's file is the one that the tests write") {
    for (const bool mtp : {false, true}) {
        CAPTURE(mtp);
        EditedModel edited("zoo/qwen3_5-dense");
        if (mtp) {
            add_mtp_head(edited.tensors);
        }
        write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
        GgufHybrid model(edited.directory.path());
        model.predicting = mtp;
        const TemporaryDirectory folder;
        write_bytes(folder.file("m.gguf"), model.bytes());
        const Written written(edited.directory.path(), "BF16");
        const GgufFile found = open_gguf(written.path());
        const GgufFile expected = open_gguf(folder.file("m.gguf"));
        CHECK(found.tensors.size() == expected.tensors.size());
        for (const auto &entry : expected.tensors) {
            const std::string &name = entry.first;
            CAPTURE(name);
            CHECK(found.tensor(name).type == expected.tensor(name).type);
            CHECK(found.tensor(name).shape == expected.tensor(name).shape);
            CHECK(bytes_in(found, name) == bytes_in(expected, name));
        }
        CHECK(describe(read_config(found)) == describe(read_config(expected)));
        CHECK(read_config(found).mtp_layers == (mtp ? 1 : 0));
        for (const char *key : {"qwen35.block_count", "qwen35.nextn_predict_layers"}) {
            CHECK(found.integer(key) == expected.integer(key));
        }
    }
}

TEST_CASE("plan_outputs: an MTP head is quantized as the model is") {
    for (const std::string name : {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe"}) {
        CAPTURE(name);
        EditedModel edited(name);
        add_mtp_head(edited.tensors);
        write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
        const Written with(edited.directory.path(), "Q8_0"), without(test_data(name), "Q8_0");
        const auto model = with.open(), plain = without.open();
        CHECK(model->weights.mtp.present());
        CHECK(model->weights.mtp.groups.by_32);
        CHECK_FALSE(plain->weights.mtp.present());
        CHECK(differences(model->identity, plain->identity).empty());
        const GgufFile file = open_gguf(with.path());
        const std::string block = "blk." + std::to_string(model->config.layers) + ".";
        CHECK(file.tensor(block + "nextn.eh_proj.weight").type == GgufType::q8_0);
        CHECK(file.tensor(block + "attn_q.weight").type == GgufType::q8_0);
        CHECK(file.tensor(block + "nextn.enorm.weight").type == GgufType::f32);
    }
}

TEST_CASE(
    "plan_outputs: a hybrid's file computes the directory's logits, but for the order of heads") {
    for (const std::string name : {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe"}) {
        CAPTURE(name);
        // Heads 0, 1, 2, 3 are 0, 2, 1, 3 in the file: without 1 or 2, sums are added in one order.
        for (const size_t head : {1, 2}) {
            EditedModel edited(name);
            silence_head(edited, head);
            const auto directory = open_model(edited.directory.path(), {});
            const auto file = Written(edited.directory.path(), "BF16").open();
            const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
            const auto found = passed_log(*file, tokens, 64).logits;
            const auto expected = passed_log(*directory, tokens, 64).logits;
            CHECK(std::equal(found.begin(), found.end(), expected.begin(), expected.end(),
                             same_bits));
        }
        const auto file = Written(test_data(name), "BF16").open();
        const Golden values = golden(name);
        const Deviation deviation =
            deviation_of(passed_log(*file, values.ids, values.ids.size()).logits, values);
        std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n",
                    (name + ", written").c_str(), deviation.rms, deviation.max);
        CHECK(within(deviation));
    }
}

TEST_CASE("plan_outputs: layers in an order of their own are listed one by one") {
    EditedModel edited("zoo/qwen3_5-moe"); // the attention layer is the fourth: now the first
    StoredTensors turned;
    for (auto &[name, tensor] : edited.tensors) {
        std::string to = name;
        const size_t at = name.find("layers.") + 7;
        if (name.starts_with("model.language_model.layers.")) {
            to[at] = static_cast<char>('0' + (name[at] - '0' + 1) % 4);
        }
        turned[to] = tensor;
    }
    edited.tensors = turned;
    write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
    edited.set_config(R"("linear_attention",
   "linear_attention",
   "linear_attention",
   "full_attention")",
                      R"("full_attention", "linear_attention", "linear_attention",
   "linear_attention")");
    const Written written(edited.directory.path(), "BF16");
    const GgufFile file = open_gguf(written.path());
    CHECK(file.booleans("qwen35moe.attention.recurrent_layers") ==
          std::vector<bool>{false, true, true, true});
    CHECK(file.metadata.count("qwen35moe.full_attention_interval") == 0);
    CHECK_FALSE(written.open()->config.layer[0].recurrent);

    add_mtp_head(edited.tensors); // a block of attention
    write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
    const Written with(edited.directory.path(), "BF16");
    CHECK(open_gguf(with.path()).booleans("qwen35moe.attention.recurrent_layers") ==
          std::vector<bool>{false, true, true, true, false});
    CHECK(with.open()->weights.mtp.present());
}

TEST_CASE("plan_outputs: files of integers compute the same with all tables") {
    for (const char *name :
         {"zoo/qwen3-moe", "zoo/qwen3_5-dense", "zoo/qwen3_5-moe", "zoo/lfm2", "zoo/granite4-h"}) {
        CAPTURE(name);
        expect_tables_agree(test_data(name), "Q8_0");
        expect_tables_agree(test_data(name), "Q4_K_M"); // rows of 64 and 32: other types of 32
    }
    expect_tables_agree(test_data("zoo/qwen3-moe"), "MXFP4_MOE");
}

TEST_CASE("plan_outputs: what GGUF files cannot say of experts is named") {
    const auto refused = [](const std::string &from, const std::string &to, bool dense,
                            const std::vector<std::string> &parts) {
        EditedModel edited("zoo/qwen3-moe");
        edited.set_config(from, to);
        const std::string mlp = "model.layers.1.mlp.";
        if (dense) {
            std::erase_if(edited.tensors,
                          [&](const auto &entry) { return entry.first.starts_with(mlp); });
            const StoredTensor wide{"BF16", {128, 64}, std::string(128 * 64 * 2, '\0')};
            edited.tensors[mlp + "gate_proj.weight"] = edited.tensors[mlp + "up_proj.weight"] =
                wide;
            edited.tensors[mlp + "down_proj.weight"] = {"BF16", {64, 128}, wide.bytes};
        }
        write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
        expect_error(Status::unsupported, parts, [&] { Written(edited.directory.path(), "Q8_0"); });
    };
    refused("\"norm_topk_prob\": true", "\"norm_topk_prob\": false", false, {"norm_topk_prob"});
    refused("\"mlp_only_layers\": []", "\"mlp_only_layers\": [1]", true, {"layer 1", "no experts"});
}

} // namespace stasis
