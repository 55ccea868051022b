// POST /v1/embeddings: what clients ask for, and the answer.
#include <bit>

#include "tools/serve/api/members.h"
#include "tools/serve/api/reply.h"

namespace serve::api {

namespace {

constexpr size_t kInputsMax = 2048; // as OpenAI's

std::string to_base64(const std::vector<float> &vector) {
    static constexpr char kDigits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    for (const float value : vector) {
        const auto bits = std::bit_cast<uint32_t>(value);
        for (int shift = 0; shift < 32; shift += 8) {
            bytes += static_cast<char>(bits >> static_cast<unsigned>(shift));
        }
    }
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; ++k) {
            three = three << 8U | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
        }
        for (size_t k = 0; k < 4; ++k) {
            text += i + k <= bytes.size() ? kDigits[three >> (18 - 6 * k) & 63U] : '=';
        }
    }
    return text;
}

} // namespace

EmbeddingRequest read_embedding(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    EmbeddingRequest request;
    request.model = body.text("model").value_or("");
    const Json &input = body.needed("input");
    const bool one =
        input.is_string() || (input.is_array() && !input.empty() && input[0].is_number());
    const Json inputs = one ? Json::array({input}) : input;
    if (!inputs.is_array() || inputs.empty() || inputs.size() > kInputsMax) {
        refuse("input", "'input' must be text, tokens, or a list of 1 to 2048 of either",
               "invalid_type");
    }
    const bool texts = inputs[0].is_string();
    for (size_t i = 0; i < inputs.size(); ++i) {
        const std::string place = one ? "input" : "input[" + std::to_string(i) + "]";
        if (!texts) {
            request.tokens.push_back(read_tokens(inputs[i], place));
        } else if (inputs[i].is_string() && inputs[i] != "") {
            request.texts.push_back(inputs[i].get<std::string>());
        } else {
            refuse(place, "'" + place + "' must be text that is not empty", "invalid_type");
        }
    }
    const std::string format = body.text("encoding_format").value_or("float");
    if (format != "float" && format != "base64") {
        refuse("encoding_format", "'encoding_format' must be float or base64");
    }
    request.base64 = format == "base64";
    if (const auto dimensions = body.integer("dimensions", 1, INT32_MAX)) {
        request.dimensions = static_cast<uint32_t>(*dimensions);
    }
    body.ignore({"user"});
    body.refuse_others();
    return request;
}

std::string embeddings_body(const EmbeddingRequest &request, const std::string &model,
                            const std::vector<std::vector<float>> &vectors, uint64_t tokens) {
    Json data = Json::array();
    for (size_t i = 0; i < vectors.size(); ++i) {
        Json embedding = request.base64 ? Json(to_base64(vectors[i])) : Json(vectors[i]);
        data.push_back(
            Json{{"object", "embedding"}, {"index", i}, {"embedding", std::move(embedding)}});
    }
    return Json{{"object", "list"},
                {"data", std::move(data)},
                {"model", model},
                {"usage", Json{{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}
        .dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace serve::api
