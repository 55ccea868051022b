// What the writers of replies share.
#include "tools/serve/api/pieces.h"

#include <algorithm>
#include <cmath>

namespace serve::api {

namespace {

Json likelihood(const Likelihood &one) {
    Json bytes = Json::array();
    for (const char c : one.text) {
        bytes.push_back(static_cast<uint8_t>(c));
    }
    return Json{{"token", whole_text(one.text)},
                {"logprob", finite(one.log_probability)},
                {"bytes", std::move(bytes)}};
}

} // namespace

std::string to_text(const Json &json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string whole_text(const std::string &bytes) {
    return Json::parse(to_text(bytes)).get<std::string>();
}

std::string event(const std::string &name, const Json &data) {
    return (name.empty() ? "" : "event: " + name + "\n") + "data: " + to_text(data) + "\n\n";
}

std::string behind(const std::string &text, size_t &sent) {
    std::string piece = text.substr(std::min(sent, text.size()));
    sent = text.size();
    return piece;
}

double finite(float log_probability) {
    return std::isfinite(log_probability) ? log_probability : -9999.0;
}

Json likelihood_list(const std::vector<Likelihood> &likelihoods, size_t from) {
    Json list = Json::array();
    for (size_t i = from; i < likelihoods.size(); ++i) {
        Json one = likelihood(likelihoods[i]);
        one["top_logprobs"] = Json::array();
        for (const Likelihood &best : likelihoods[i].best) {
            one["top_logprobs"].push_back(likelihood(best));
        }
        list.push_back(std::move(one));
    }
    return list;
}

Json openai_usage(const Usage &usage) {
    return Json{{"prompt_tokens", usage.prompt},
                {"completion_tokens", usage.reply},
                {"total_tokens", usage.prompt + usage.reply},
                {"prompt_tokens_details", Json{{"cached_tokens", usage.cached}}},
                {"completion_tokens_details", Json{{"reasoning_tokens", usage.thoughts}}}};
}

void add_usage(std::optional<Usage> &sum, const Usage &one) {
    if (!sum) {
        sum = one;
        return;
    }
    sum->cached = std::min(sum->cached, one.cached);
    sum->reply += one.reply;
    sum->thoughts += one.thoughts;
}

std::string last_events(const GenerationRequest &request, Json last, const Usage &usage) {
    std::string events;
    if (request.stream_usage) {
        last["choices"] = Json::array();
        last["usage"] = openai_usage(usage);
        events = event("", last);
    }
    return events + "data: [DONE]\n\n";
}

std::string failure(const GenerationRequest &request, const Refused &error) {
    Json data;
    data["error"] = openai_error(error);
    return request.stream ? event("", data) + "data: [DONE]\n\n" : error_body(error, false);
}

std::unique_ptr<Writer> make_writer(const GenerationRequest &request) {
    switch (request.dialect) {
    case Dialect::chat:
        return make_chat_writer(request);
    case Dialect::completions:
        return make_completion_writer(request);
    case Dialect::responses:
        return make_response_writer(request);
    case Dialect::messages:
        return make_message_writer(request);
    }
    return nullptr;
}

} // namespace serve::api
