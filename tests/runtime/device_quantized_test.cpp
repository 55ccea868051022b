// Models of integer weights on a device: what one side computed the other verifies, long rows, and
// what they take there.
#include "tests/device/under_test.h"
#include "tests/runtime/device_on.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/stored_state.h"

using namespace stasis;
using namespace stasis::test;

TEST_CASE("device: what one side computed of integer weights the other verifies") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const char *name : {"quantized/llama", "quantized/gemma3-tied"}) {
        INFO("model: ", std::string(name));
        const std::shared_ptr<Model> cpu = open(name), device = open_there(name, module);
        for (const bool from_device : {false, true}) {
            const std::shared_ptr<Model> &from = from_device ? device : cpu;
            const std::shared_ptr<Model> &by = from_device ? cpu : device;
            const std::unique_ptr<Session> session = conversation(from, 20);
            StoredState stored(*from, *session);
            const VerifyReport good = verified(by, stored);
            REQUIRE(!good.first);
            CHECK(good.positions == 80);
            CHECK(good.drawn_otherwise == 0);
            stored.flip(*from, 1, 1, 77);
            const VerifyReport bad = verified(by, stored);
            REQUIRE(bad.first);
            CHECK(bad.first->position == 77);
            CHECK(bad.first->layer == 1);
        }
    }
}

TEST_CASE("device: types of integer weights that it does not have are refused by name") {
    expect_error(Status::unsupported, {"device", "output.weight", "Q2_K", "the CPU alone"},
                 [&] { open_there("quantized/cpu-only", under_test::each_module()); });
}

// More blocks in a row than a chunk of the products holds, and a number that is no multiple of it;
// embeddings of blocks that no product reads.
TEST_CASE("device: long rows of integer weights give the bits that the CPU gives") {
    using enum GgufType;
    const TemporaryDirectory folder;
    for (const GgufType type : {q4_k, q8_0}) {
        QuantizedModel described = quantized_models().at("quantized/llama");
        described.inner = 256 * 11;
        described.layers[0][6] = type, described.layers[1][6] = q6_k;
        described.embeddings = type == q4_k ? q6_k : q5_1;
        write_bytes(folder.file("long.gguf"), described.bytes());
        const std::shared_ptr<Model> cpu = open_model(folder.file("long.gguf"), {});
        const std::shared_ptr<Model> device = open_model(folder.file("long.gguf"), on_device());
        const std::unique_ptr<Session> here = session_of(cpu), there = session_of(device);
        std::vector<uint32_t> tokens;
        for (uint32_t i = 0; i < 30; ++i) { // of the first strip of embeddings, and of all others
            tokens.push_back(i * 37 % 192);
        }
        for (Session *session : {here.get(), there.get()}) {
            session->append(part(tokens, 0, 1), {});
            session->append(part(tokens, 1, 30), {});
        }
        CHECK(same_bits(here->logits(), there->logits()));
        CHECK(here->digest() == there->digest());
    }
}

TEST_CASE("device: integer weights take their own size there, tied embeddings once") {
    for (const char *name : {"quantized/llama", "quantized/gemma3-tied"}) {
        INFO("model: ", std::string(name));
        const Weights &weights = open(name)->weights;
        uint64_t bytes = 0;
        const auto count = [&](const Matrix &matrix) {
            bytes += matrix.strips != nullptr
                         ? kernels::strips_bytes(matrix.quant, matrix.rows, matrix.columns)
                         : matrix.rows * matrix.columns * sizeof(uint16_t);
        };
        for (const LayerWeights &layer : weights.layers) {
            for (const Matrix *matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                         &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down}) {
                count(*matrix);
            }
        }
        count(weights.head);
        if (weights.embeddings.strips != weights.head.strips) {
            bytes += kernels::strips_bytes(weights.embeddings.quant, weights.embeddings.rows,
                                           weights.embeddings.columns);
        }
        const uint64_t before = host_module::counts().allocated_bytes;
        const std::shared_ptr<Model> device = open_there(name);
        const uint64_t taken = host_module::counts().allocated_bytes - before;
        CHECK(taken >= bytes);
        CHECK(taken < bytes + 32 * 1024); // vectors; the pages come with a session
        host_module::settings().memory_bytes = bytes - 1;
        std::string said;
        try {
            open_there(name);
        } catch (const Error &error) {
            said = error.what();
        }
        host_module::settings() = {};
        CHECK(said.find("the weights take " + std::to_string(bytes) + " bytes") !=
              std::string::npos);
    }
}
