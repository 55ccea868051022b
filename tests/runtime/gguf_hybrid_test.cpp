// GGUF files of Qwen3.5: what they compute, in which order of value heads, and what is refused.
#include "runtime/model/gguf/config.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/gguf_hybrid.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

namespace stasis {

using namespace test;

namespace {

const char kDirectory[] = "zoo/qwen3_5-dense";

std::shared_ptr<Model> opened(const TemporaryDirectory &folder, const std::string &bytes,
                              const ModelOptions &options = {}) {
    write_bytes(folder.file("model.gguf"), bytes);
    return open_model(folder.file("model.gguf"), options);
}

// Zeroes what the output's product has for a value head, in all layers.
void silence(StoredTensors &tensors, const Config &config, size_t head) {
    const size_t unit = config.recurrent.value_dim * sizeof(uint16_t);
    for (auto &[name, tensor] : tensors) {
        if (name.find("linear_attn.out_proj") != std::string::npos) {
            for (size_t row = 0; row < config.hidden; ++row) {
                std::fill_n(tensor.bytes.data() + row * unit * config.recurrent.value_heads +
                                head * unit,
                            unit, '\0');
            }
        }
    }
}

void expect_metadata_refused(const std::vector<std::string> &parts, const char *key,
                             uint32_t value) {
    const TemporaryDirectory folder;
    GgufHybrid model(test_data(kDirectory));
    std::string bytes = model.bytes();
    const std::string name = std::string("qwen35.") + key;
    const size_t at = bytes.find(gguf_text(name)) + gguf_text(name).size() + 4;
    REQUIRE(at < bytes.size());
    bytes.replace(at, 4, gguf_number(value));
    expect_error(Status::corrupt, parts, [&] { opened(folder, bytes); });
}

} // namespace

// Four value heads of two key heads are the heads 0, 2, 1, 3 of the file. Without head 1 or 2 the
// output's product adds the others in the same order, and zeros between them.
TEST_CASE("open_model: a hybrid's GGUF file computes what its directory computes") {
    for (const size_t head : {1, 2}) {
        EditedModel edited(kDirectory);
        GgufHybrid model(test_data(kDirectory));
        silence(edited.tensors, model.config, head);
        silence(model.tensors, model.config, head);
        write_bytes(edited.directory.file("model.safetensors"), safetensors_bytes(edited.tensors));
        const auto directory = open_model(edited.directory.path(), {});
        const std::vector<uint32_t> tokens = tokens_for(*directory, 100);
        const auto expected = passed_log(*directory, tokens, 64).logits;
        for (const bool listed : {false, true}) {
            const TemporaryDirectory folder;
            model.listed = model.predicting = listed;
            const auto file = opened(folder, model.bytes());
            CHECK(file->config.layers == model.config.layers);
            CHECK(file->identity.model != directory->identity.model);
            const auto logits = passed_log(*file, tokens, 64).logits;
            CHECK(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end(),
                             same_bits));
        }
    }
}

TEST_CASE("open_model: logits of a hybrid's GGUF file agree with the golden values") {
    const TemporaryDirectory folder;
    const auto file = opened(folder, GgufHybrid(test_data(kDirectory)).bytes());
    const Golden values = golden(kDirectory);
    const Deviation deviation =
        deviation_of(passed_log(*file, values.ids, values.ids.size()).logits, values);
    std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", "zoo/qwen3_5-dense, GGUF",
                deviation.rms, deviation.max);
    CHECK(within(deviation));
}

TEST_CASE("open_model: a hybrid of integers computes the same with all tables, threads and cuts") {
    const TemporaryDirectory folder;
    GgufHybrid model(test_data(kDirectory));
    model.integers = true;
    const auto file = opened(folder, model.bytes());
    const std::vector<uint32_t> tokens = tokens_for(*file, 70);
    const PassedLog whole = passed_log(*file, tokens, tokens.size());
    CHECK(same_log(passed_log(*file, tokens, 1), whole));
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        if (kernels::find_table(*name) != nullptr) {
            INFO("table: ", *name);
            ModelOptions options;
            options.kernels = *name;
            options.threads = 3;
            const auto forced = open_model(folder.file("model.gguf"), options);
            CHECK(same_log(passed_log(*forced, tokens, 33), whole));
        }
    }
}

TEST_CASE("open_model: impossible sizes of a hybrid's GGUF file are refused by key") {
    expect_metadata_refused({"ssm.inner_size", "time_step_rank (3)"}, "ssm.time_step_rank", 3);
    expect_metadata_refused({"ssm.group_count"}, "ssm.group_count", 0);
    expect_metadata_refused({"ssm.time_step_rank (4)", "ssm.group_count (3)"}, "ssm.group_count",
                            3);
    expect_metadata_refused({"ssm.conv_kernel", "from 2 to 16"}, "ssm.conv_kernel", 1);
    expect_metadata_refused({"ssm.state_size"}, "ssm.state_size", 4096);
    expect_metadata_refused({"ssm.inner_size", "130"}, "ssm.inner_size", 130);
    expect_metadata_refused({"rope.dimension_count", "7"}, "rope.dimension_count", 7);
    expect_metadata_refused({"rope.dimension_count", "34"}, "rope.dimension_count", 34);
    expect_metadata_refused({"full_attention_interval"}, "full_attention_interval", 0);
    expect_metadata_refused({"ssm_conv1d", "[192, 1, 5]"}, "ssm.conv_kernel", 5);
}

// As all numbers of layers, which are those of all blocks of the file.
TEST_CASE("read_config: sizes of a hybrid's experts may be given for each block of a GGUF file") {
    GgufHybrid model(test_data(kDirectory));
    model.architecture = "qwen35moe";
    model.predicting = true;
    const auto read = [&](size_t sizes) {
        GgufWriter writer;
        model.describe(writer);
        writer.integer("qwen35moe.expert_count", 8).integer("qwen35moe.expert_used_count", 2);
        writer.array("qwen35moe.expert_feed_forward_length", GgufValueType::i32,
                     std::vector<int32_t>(sizes, 48));
        writer.integer("qwen35moe.expert_shared_feed_forward_length", 32);
        writer.info("token_embd.weight", GgufType::bf16,
                    {model.config.hidden, model.config.vocabulary}, 0);
        writer.data.resize(size_t{2} * model.config.hidden * model.config.vocabulary);
        const std::string bytes = writer.bytes();
        return read_config(
            parse_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "a.gguf"));
    };
    const Config config = read(model.config.layers + 1);
    CHECK(config.layers == model.config.layers);
    CHECK(config.experts.intermediate == 48);
    expect_error(Status::corrupt, {"expert_feed_forward_length", "9 layers"},
                 [&] { read(model.config.layers); });
}

} // namespace stasis
