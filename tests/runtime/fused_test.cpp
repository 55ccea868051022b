// Checkpoints that store query, key and value as one matrix, gate and up as another (Phi-3), are
// the model that stores them apart, to the bit.
#include "tests/runtime/edited_model.h"
#include "tests/runtime/models.h"

namespace stasis {

namespace {

constexpr const char *kFused[][4] = {
    {"self_attn.qkv_proj.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
     "self_attn.v_proj.weight"},
    {"mlp.gate_up_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", nullptr}};

constexpr char kTwin[] = "zoo/mistral-window";

// Stores the twin as Phi-3 does.
void fuse(EditedModel &model) {
    model.set_config("\"MistralForCausalLM\"", "\"Phi3ForCausalLM\"");
    const std::string config = read_bytes(model.directory.file("config.json"));
    const std::string from = "\"model_type\": \"mistral\"";
    const size_t at = config.find(from);
    REQUIRE(at != std::string::npos);
    write_bytes(model.directory.file("config.json"),
                std::string(config).replace(at, from.size(), "\"model_type\": \"phi3\""));
    for (const char layer : {'0', '1', '2'}) {
        const std::string prefix = std::string("model.layers.") + layer + ".";
        for (const auto &names : kFused) {
            StoredTensor fused{"BF16", {0, 64}, ""};
            for (size_t i = 1; i < 4 && names[i] != nullptr; ++i) {
                const StoredTensor &part = model.tensors.at(prefix + names[i]);
                fused.shape[0] += part.shape[0];
                fused.bytes += part.bytes;
                model.tensors.erase(prefix + names[i]);
            }
            model.tensors[prefix + names[0]] = fused;
        }
    }
}

} // namespace

TEST_CASE("load_weights: fused matrices compute what the same rows compute apart") {
    kernels::FloatEnvironment environment;
    EditedModel files(kTwin);
    fuse(files);
    const Loaded fused = files.load();
    const Loaded apart = load(test_data(kTwin));
    CHECK(differences(fused.identity, apart.identity) ==
          std::vector<std::string>{"architecture", "model"});
    // Rows are used in place if they are at even addresses: with or without padding.
    CHECK(fused.weights.storage.empty() != files.load(1).weights.storage.empty());

    const auto model = open_model(files.directory.path(), {});
    const auto twin = test::open(kTwin);
    const std::vector<uint32_t> tokens = test::tokens_for(*twin, 150);
    Session a(model, {}), b(twin, {});
    const auto rows = test::append_with_logits(a, tokens),
               expected = test::append_with_logits(b, tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
        REQUIRE(test::same_bits(rows[i], expected[i]));
    }
    for (size_t i = 0; i < 40; ++i) {
        REQUIRE(a.decode() == b.decode());
    }
}

TEST_CASE(
    "load_weights: fused matrices are refused when a part is missing, doubled or of another size") {
    const std::string layer = "model.layers.1.";
    EditedModel missing(kTwin);
    fuse(missing);
    missing.tensors.erase(layer + kFused[0][0]);
    expect_refused(missing, Status::corrupt, {layer + kFused[0][0], "missing"});
    EditedModel doubled(kTwin);
    fuse(doubled);
    doubled.tensors[layer + kFused[1][2]] = {"BF16", {160, 64}, std::string(160 * 64 * 2, '\0')};
    expect_refused(doubled, Status::corrupt, {layer + kFused[1][2], layer + kFused[1][0]});
    EditedModel narrow(kTwin);
    fuse(narrow);
    StoredTensor &tensor = narrow.tensors.at(layer + kFused[1][0]);
    tensor.shape[0] -= 1;
    tensor.bytes.resize(tensor.bytes.size() - 128);
    expect_refused(narrow, Status::corrupt, {layer + kFused[1][0], "[320, 64]", "[319, 64]"});
    EditedModel typed(kTwin);
    fuse(typed);
    StoredTensor &integers = typed.tensors.at(layer + kFused[0][0]);
    integers.dtype = "I16";
    expect_refused(typed, Status::unsupported, {layer + kFused[0][0], "I16"});
    EditedModel finite(kTwin); // named as the part that it is
    fuse(finite);
    set_value<uint16_t>(finite.tensors.at(layer + kFused[0][0]), (64 + 3) * 64, 0x7F80);
    expect_refused(finite, Status::nonfinite, {"self_attn.k_proj.weight", "192"});
}

} // namespace stasis
