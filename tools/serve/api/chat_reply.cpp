// POST /v1/chat/completions: replies.
#include "tools/serve/api/pieces.h"

namespace serve::api {

namespace {

const char *chat_finish(Finish finish) {
    switch (finish) {
    case Finish::length:
        return "length";
    case Finish::calls:
        return "tool_calls";
    default:
        return "stop";
    }
}

Json chat_call(const Call &call) {
    return Json{{"id", "call_" + call.id},
                {"type", "function"},
                {"function", Json{{"name", call.name}, {"arguments", to_text(call.arguments)}}}};
}

class ChatWriter : public Writer {
  public:
    explicit ChatWriter(const GenerationRequest &request)
        : request_(request), sent_(request.choices), whole_(request.choices) {}

    std::string begin(const Start &start) override {
        start_ = start;
        std::string events;
        for (uint32_t i = 0; request_.stream && i < request_.choices; ++i) {
            events += chunk(i, Json{{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
        }
        return events;
    }

    std::string grow(uint32_t choice, const Reply &so_far) override {
        if (!request_.stream) {
            return "";
        }
        Sent &sent = sent_.at(choice);
        Json delta = Json::object();
        if (std::string piece = behind(so_far.thoughts, sent.thoughts); !piece.empty()) {
            delta["reasoning_content"] = std::move(piece);
        }
        if (std::string piece = behind(so_far.content, sent.content); !piece.empty()) {
            delta["content"] = std::move(piece);
        }
        for (; sent.calls < so_far.calls.size(); ++sent.calls) {
            Json call;
            call["index"] = sent.calls;
            call.update(chat_call(so_far.calls[sent.calls]));
            delta["tool_calls"].push_back(std::move(call));
        }
        Json likelihoods;
        if (sent.likelihoods < so_far.likelihoods.size()) {
            likelihoods["content"] = likelihood_list(so_far.likelihoods, sent.likelihoods);
            likelihoods["refusal"] = nullptr;
            sent.likelihoods = so_far.likelihoods.size();
        }
        return delta.empty() && likelihoods.is_null()
                   ? ""
                   : chunk(choice, std::move(delta), std::move(likelihoods), nullptr);
    }

    std::string end(uint32_t choice, const Reply &whole, const Outcome &outcome) override {
        std::string events = grow(choice, whole);
        add_usage(usage_, outcome.usage);
        ++ended_;
        if (!request_.stream) {
            whole_.at(choice) = whole_choice(choice, whole, outcome);
            return ended_ == request_.choices ? body() : "";
        }
        events += chunk(choice, Json::object(), nullptr, chat_finish(outcome.finish));
        if (ended_ == request_.choices) {
            events += last_events(request_, envelope("chat.completion.chunk"), *usage_);
        }
        return events;
    }

    std::string fail(const Refused &error) override { return failure(request_, error); }

    std::string ping() const override { return ": ping\n\n"; }

  private:
    struct Sent {
        size_t thoughts = 0, content = 0, calls = 0, likelihoods = 0;
    };

    Json envelope(const char *object) const {
        return Json{{"id", "chatcmpl-" + start_.id},
                    {"object", object},
                    {"created", start_.created},
                    {"model", start_.model}};
    }

    std::string chunk(uint32_t choice, Json delta, Json likelihoods, Json finish) const {
        Json data = envelope("chat.completion.chunk");
        data["choices"].push_back(Json{{"index", choice},
                                       {"delta", std::move(delta)},
                                       {"logprobs", std::move(likelihoods)},
                                       {"finish_reason", std::move(finish)}});
        if (request_.stream_usage) {
            data["usage"] = nullptr;
        }
        return event("", data);
    }

    Json whole_choice(uint32_t index, const Reply &whole, const Outcome &outcome) const {
        Json message = {{"role", "assistant"}, {"content", whole.content}, {"refusal", nullptr}};
        if (!whole.thoughts.empty()) {
            message["reasoning_content"] = whole.thoughts;
        }
        for (const Call &call : whole.calls) {
            message["tool_calls"].push_back(chat_call(call));
        }
        if (!whole.calls.empty() && whole.content.empty()) {
            message["content"] = nullptr;
        }
        Json likelihoods;
        if (request_.log_probabilities) {
            likelihoods["content"] = likelihood_list(whole.likelihoods, 0);
            likelihoods["refusal"] = nullptr;
        }
        return Json{{"index", index},
                    {"message", std::move(message)},
                    {"logprobs", std::move(likelihoods)},
                    {"finish_reason", chat_finish(outcome.finish)}};
    }

    std::string body() const {
        Json data = envelope("chat.completion");
        data["choices"] = whole_;
        data["usage"] = openai_usage(*usage_);
        return to_text(data);
    }

    const GenerationRequest &request_;
    Start start_;
    std::vector<Sent> sent_;  // by choice, of a stream
    std::vector<Json> whole_; // by choice, of a body
    std::optional<Usage> usage_;
    uint32_t ended_ = 0;
};

} // namespace

std::unique_ptr<Writer> make_chat_writer(const GenerationRequest &request) {
    return std::make_unique<ChatWriter>(request);
}

} // namespace serve::api
