// Vectors of texts: POST /v1/embeddings.
#include <cmath>

#include "tools/serve/api/reply.h"
#include "tools/serve/engine/routes.h"

namespace serve {

using command::sized;

namespace {

// Cuts vectors to their first numbers and makes their length 1 again, as models that allow it are
// trained (Kusupati et al. 2022, "Matryoshka Representation Learning").
void shorten(std::vector<float> &vector, uint32_t dimensions) {
    vector.resize(dimensions);
    double square = 0;
    for (const float value : vector) {
        square += static_cast<double>(value) * value;
    }
    if (square > 0) {
        for (float &value : vector) {
            value = static_cast<float>(value / std::sqrt(square));
        }
    }
}

} // namespace

std::string embeddings_of(const ServedModel &model, const api::EmbeddingRequest &request,
                          stasis_cancel *cancel) {
    stasis_error error{};
    auto info = sized<stasis_embed_info>();
    require(stasis_model_get_embed_info(model.model(), &info, &error), error);
    if (request.dimensions.value_or(1) == 0 ||
        request.dimensions.value_or(info.dimension) > info.dimension) {
        throw api::Refused{400, "invalid_request_error",
                           "the model's vectors have " + std::to_string(info.dimension) +
                               " numbers",
                           "dimensions"};
    }
    std::vector<stasis_embed_input> inputs;
    uint64_t tokens = 0;
    for (const std::string &text : request.texts) {
        auto input = sized<stasis_embed_input>();
        input.text = text.data();
        input.length = text.size();
        inputs.push_back(input);
        tokens += command::tokenize(model.model(), text, STASIS_TOKENIZE_BOS).size();
    }
    for (const std::vector<stasis_token> &given : request.tokens) {
        auto input = sized<stasis_embed_input>();
        input.tokens = given.data();
        input.token_count = given.size();
        inputs.push_back(input);
        tokens += given.size();
    }
    auto options = sized<stasis_embed_options>();
    options.cancel = cancel;
    std::vector<float> numbers(inputs.size() * info.dimension);
    size_t count = 0;
    require(stasis_model_embed(model.model(), inputs.data(), sizeof(stasis_embed_input),
                               inputs.size(), &options, numbers.data(), numbers.size(), &count,
                               &error),
            error);
    std::vector<std::vector<float>> vectors;
    for (size_t i = 0; i < inputs.size(); ++i) {
        const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(i * info.dimension);
        vectors.emplace_back(begin, begin + info.dimension);
        if (request.dimensions) {
            shorten(vectors.back(), *request.dimensions);
        }
    }
    return api::embeddings_body(request, model.name(), vectors, tokens);
}

} // namespace serve
