// Matrices whose exponents differ too much to be coded stay as they are stored.
#include "runtime/kernels/table.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// Gives every eighth weight one of 60 exponents below those of the others.
void spread(StoredTensor &tensor) {
    for (size_t i = 0; i < tensor.bytes.size() / 2; i += 8) {
        const auto exponent = static_cast<uint16_t>(40 + i / 8 % 60);
        uint16_t value;
        std::memcpy(&value, tensor.bytes.data() + 2 * i, 2);
        value = static_cast<uint16_t>((value & 0x807F) | exponent << 7);
        std::memcpy(tensor.bytes.data() + 2 * i, &value, 2);
    }
}

// The first table that codes weights; null: this machine has none.
const kernels::Table *coding_table() {
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        const kernels::Table *table = kernels::find_table(*name);
        if (table != nullptr && table->code_strip != nullptr) {
            return table;
        }
    }
    return nullptr;
}

} // namespace

TEST_CASE("load_weights: coded: a matrix of too many escapes stays as it is stored") {
    const kernels::Table *table = coding_table();
    if (table == nullptr) {
        STASIS_SKIP("no table of this machine codes weights");
    }
    EditedModel untied("zoo/llama-gqa-untied"), tied("zoo/gemma3-text");
    spread(untied.tensors.at("model.layers.1.mlp.up_proj.weight"));
    spread(tied.tensors.at("model.embed_tokens.weight"));
    untied.load();
    tied.load();
    for (const EditedModel *edited : {&untied, &tied}) {
        CAPTURE(edited->source);
        ModelOptions options;
        options.threads = 2;
        options.kernels = table->name;
        const auto mapped = open_model(edited->directory.path(), options);
        options.copy_weights = true;
        const auto copied = open_model(edited->directory.path(), options);
        const std::vector<LayerWeights> &layers = copied->weights.layers;
        const bool head = edited == &tied;
        CHECK((copied->weights.head.coded == nullptr) == head);
        CHECK((layers[1].mlp.up.coded == nullptr) == !head);
        CHECK((layers[1].mlp.up.data == nullptr) == head);
        CHECK(layers[0].mlp.up.coded != nullptr);
        CHECK(copied->identity.model == mapped->identity.model);
        Session plain(mapped, {}), session(copied, {});
        plain.append(tokens_for(*mapped, 70), {});
        session.append(tokens_for(*copied, 70), {});
        CHECK(session.digest() == plain.digest());
        CHECK(same_bits(logits_of(session), logits_of(plain)));
    }
}
