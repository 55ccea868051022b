// Bodies that are no replies: errors, models and counts.
#include <ctime>

#include "tools/serve/api/pieces.h"

namespace serve::api {

namespace {

const char *openai_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

const char *anthropic_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
    case 529:
        return "overloaded_error";
    case 504:
        return "timeout_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

std::string to_date(int64_t seconds) {
    const auto time = static_cast<time_t>(seconds);
    tm parts{};
    char text[40] = "1970-01-01T00:00:00Z";
    if (gmtime_r(&time, &parts) != nullptr) {
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    return text;
}

Json model_entry(const ModelEntry &model, bool anthropic) {
    if (anthropic) {
        return Json{{"type", "model"},
                    {"id", model.id},
                    {"display_name", model.id},
                    {"created_at", to_date(model.created)},
                    {"lifecycle", "active"},
                    {"max_input_tokens", model.context},
                    {"max_tokens", model.context}};
    }
    return Json{{"id", model.id},
                {"object", "model"},
                {"created", model.created},
                {"owned_by", "stasis"},
                {"max_model_len", model.context}}; // as vLLM calls it
}

} // namespace

Json openai_error(const Refused &error) {
    const std::string type = openai_type(error.status);
    return Json{{"message", error.message},
                {"type", type},
                {"param", error.parameter.empty() ? Json() : Json(error.parameter)},
                {"code", error.code.empty() || error.code == type ? Json() : Json(error.code)}};
}

Json anthropic_error(const Refused &error) {
    return Json{
        {"type", "error"},
        {"error", Json{{"type", anthropic_type(error.status)}, {"message", error.message}}}};
}

std::string error_body(const Refused &error, bool anthropic) {
    Json body;
    if (anthropic) {
        body = anthropic_error(error);
    } else {
        body["error"] = openai_error(error);
    }
    return to_text(body);
}

std::string models_body(const std::vector<ModelEntry> &models, bool anthropic) {
    Json data = Json::array();
    for (const ModelEntry &model : models) {
        data.push_back(model_entry(model, anthropic));
    }
    Json body;
    if (!anthropic) {
        body["object"] = "list";
    }
    body["data"] = std::move(data);
    if (anthropic) {
        body["has_more"] = false;
        body["first_id"] = models.empty() ? Json() : Json(models.front().id);
        body["last_id"] = models.empty() ? Json() : Json(models.back().id);
    }
    return to_text(body);
}

std::string model_body(const ModelEntry &model, bool anthropic) {
    return to_text(model_entry(model, anthropic));
}

std::string token_count_body(uint64_t tokens) {
    Json body;
    body["input_tokens"] = tokens;
    return to_text(body);
}

} // namespace serve::api
