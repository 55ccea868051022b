// gpt-oss in GGUF files: what its directory computes, what the metadata mean, and what is refused.
#include "tests/runtime/gguf_gpt_oss.h"

#include "runtime/quantize/quantize.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

namespace stasis {

using namespace test;

namespace {

const char kOssDirectory[] = "zoo/gpt-oss", kOssMxfp4[] = "zoo/gpt-oss-mxfp4";

// A bundled model with the limit of gates that all GGUF files have.
struct LimitedOss : EditedModel {
    explicit LimitedOss(const char *name) : EditedModel(name) {
        set_config("\"swiglu_limit\": 1.0", "\"swiglu_limit\": 7.0");
        write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors));
    }
};

std::shared_ptr<Model> oss_opened(const TemporaryDirectory &folder, const std::string &bytes) {
    write_bytes(folder.file("model.gguf"), bytes);
    return open_model(folder.file("model.gguf"), {});
}

void check_same_logits(const std::shared_ptr<Model> &file,
                       const std::shared_ptr<Model> &directory) {
    CHECK(describe(file->config) == describe(directory->config));
    const std::vector<uint32_t> tokens = tokens_for(*directory, 150);
    const auto logits = passed_log(*file, tokens, 64).logits;
    const auto expected = passed_log(*directory, tokens, 64).logits;
    CHECK(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end(), same_bits));
}

} // namespace

TEST_CASE("open_model: a GGUF file of gpt-oss computes what its directory computes") {
    for (const char *name : {kOssDirectory, kOssMxfp4}) {
        CAPTURE(name);
        const LimitedOss limited(name);
        const auto directory = open_model(limited.directory.path(), {});
        const TemporaryDirectory folder;
        check_same_logits(oss_opened(folder, GgufGptOss(limited.directory.path()).bytes()),
                          directory);
    }
}

TEST_CASE("quantize: a BF16 file of gpt-oss computes what its directory computes") {
    QuantizeOptions options;
    options.type = "BF16";
    options.replace = true;
    for (const char *name : {kOssDirectory, kOssMxfp4}) { // experts in MXFP4 stay so
        CAPTURE(name);
        const LimitedOss limited(name);
        const std::string out = limited.directory.file("model.gguf");
        quantize_model(limited.directory.path(), out, options);
        check_same_logits(open_model(out, {}), open_model(limited.directory.path(), {}));
        expect_error(Status::unsupported, {"swiglu_limit"},
                     [&] { quantize_model(test_data(name), out, options); });
    }
}

TEST_CASE("open_model: a GGUF file of gpt-oss without sinks, window or experts is refused by key") {
    const TemporaryDirectory folder;
    GgufGptOss model((test_data(kOssDirectory)));
    const auto refused = [&](const std::string &name, const std::string &shown) {
        GgufGptOss less = model;
        less.tensors.erase(name);
        expect_error(Status::corrupt, {shown, "missing"},
                     [&] { oss_opened(folder, less.bytes()); });
    };
    refused("model.layers.1.self_attn.sinks", "blk.1.attn_sinks.weight");
    refused("model.layers.1.mlp.router.bias", "blk.1.ffn_gate_inp.bias");
    refused("model.layers.2.mlp.experts.down_proj_bias", "blk.2.ffn_down_exps.bias");
    std::string bytes = model.bytes();
    const std::string window = gguf_text("gpt-oss.attention.sliding_window");
    bytes.replace(bytes.find(window) + window.size() + 4, 4, gguf_number<uint32_t>(0));
    expect_error(Status::corrupt, {"attention.sliding_window"}, [&] { oss_opened(folder, bytes); });
}

} // namespace stasis
