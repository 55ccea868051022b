// Embeddings; see stasis_embed.h. Must not know how vectors are computed.
#include "runtime/session/embed.h"

#include "abi/cancel.h"
#include "abi/handles.h"
#include "abi/options.h"

namespace stasis::abi {

namespace {

// Reads the caller's inputs, which are `stride` bytes apart.
std::vector<EmbedInput> read_inputs(const stasis_embed_input *inputs, size_t stride, size_t count) {
    require_array(inputs, count, "inputs");
    std::vector<EmbedInput> result;
    for (size_t i = 0; i < count; ++i) {
        const auto *at = reinterpret_cast<const stasis_embed_input *>(
            reinterpret_cast<const unsigned char *>(inputs) + i * stride);
        if (struct_size(at, sizeof *at, "inputs") > stride) {
            fail(Status::invalid_argument, "stride is %zu: smaller than the inputs' struct_size",
                 stride);
        }
        const stasis_embed_input input = read_struct(at, "inputs");
        require_zero(input.reserved, "inputs");
        EmbedInput &own = result.emplace_back();
        if (input.text != nullptr) {
            if (input.token_count != 0) {
                fail(Status::invalid_argument, "inputs[%zu] has a text and tokens", i);
            }
            own.is_text = true;
            own.text = {input.text, input.length};
        } else {
            require_array(input.text, input.length, "inputs.text");
            require_array(input.tokens, input.token_count, "inputs.tokens");
            own.tokens = {input.tokens, input.token_count};
        }
    }
    return result;
}

EmbedOptions read_options(const stasis_embed_options &given) {
    require_zero(given.reserved, "options");
    if (given.pooling > STASIS_POOLING_MEAN) {
        fail(Status::invalid_argument, "options.pooling is %u: expected 0 to %u", given.pooling,
             STASIS_POOLING_MEAN);
    }
    EmbedOptions options;
    options.pooling = static_cast<Pooling>(given.pooling);
    options.prompt = given.prompt;
    options.chunk = given.chunk;
    return options;
}

stasis_embed_info info_of(const stasis_model &handle) {
    const Model &model = *handle.model;
    const EmbeddingRules &rules = model.embedding;
    stasis_embed_info info{};
    info.pooling = static_cast<uint32_t>(rules.pooling);
    info.dimension = rules.dimension(model.config.hidden);
    info.normalised = rules.normalised ? 1 : 0;
    info.tokens_max = embed_tokens_max(model);
    info.contract = kernels::kContractEmbeddings;
    info.prompt_count = static_cast<uint32_t>(rules.prompts.size());
    info.prompt_names = handle.prompt_names;
    info.prompts = handle.prompts;
    info.default_prompt = rules.default_prompt.c_str();
    info.refusal = rules.refusal.c_str();
    return info;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_embed_options_init(stasis_embed_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_model_get_embed_info(const stasis_model *model, stasis_embed_info *info,
                                          stasis_error *error) {
    return enter(error, [&] {
        require(model, "model");
        require(info, "info");
        write_struct(info_of(*model), info, "info");
    });
}

stasis_status stasis_model_embed(const stasis_model *model, const stasis_embed_input *inputs,
                                 size_t stride, size_t input_count,
                                 const stasis_embed_options *options, float *vectors,
                                 size_t capacity, size_t *count, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(model, "model");
        require(count, "count");
        const std::vector<stasis::EmbedInput> given = read_inputs(inputs, stride, input_count);
        const stasis_embed_options asked = read_struct(options, "options");
        stasis::EmbedOptions run = read_options(asked);
        stasis::pooling_of(*model->model, run.pooling);
        const stasis::Model &own = *model->model;
        require_room(input_count * own.embedding.dimension(own.config.hidden), capacity, count,
                     "vectors");
        require_array(vectors, *count, "vectors");
        CallWatch watch(caller, asked);
        run.watch = watch.watch();
        stasis::embed(*model->model, given, run, vectors);
    });
}
