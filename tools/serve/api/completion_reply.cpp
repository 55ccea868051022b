// POST /v1/completions: replies.
#include "tools/serve/api/pieces.h"

namespace serve::api {

namespace {

// Thoughts, calls and content are what a conversation's replies are told apart in: a completion is
// all text, and the engine gives it as content.
class CompletionWriter : public Writer {
  public:
    explicit CompletionWriter(const GenerationRequest &request)
        : request_(request), sent_(request.choices), whole_(request.choices) {}

    std::string begin(const Start &start) override {
        start_ = start;
        std::string events;
        for (uint32_t i = 0; request_.stream && request_.repeat_prompt && i < request_.choices;
             ++i) {
            events += chunk(i, request_.prompt, nullptr, nullptr);
        }
        return events;
    }

    std::string grow(uint32_t choice, const Reply &so_far) override {
        Sent &sent = sent_.at(choice);
        if (!request_.stream || (sent.content == so_far.content.size() &&
                                 sent.likelihoods == so_far.likelihoods.size())) {
            return "";
        }
        Json likelihoods = lists(so_far, sent);
        return chunk(choice, behind(so_far.content, sent.content), std::move(likelihoods), nullptr);
    }

    std::string end(uint32_t choice, const Reply &whole, const Outcome &outcome) override {
        std::string events = grow(choice, whole);
        add_usage(usage_, outcome.usage);
        ++ended_;
        const Json finish = outcome.finish == Finish::length ? "length" : "stop";
        if (!request_.stream) {
            whole_.at(choice) =
                choice_of(choice, (request_.repeat_prompt ? request_.prompt : "") + whole.content,
                          lists(whole, sent_.at(choice)), finish);
            return ended_ == request_.choices ? body() : "";
        }
        events += chunk(choice, "", nullptr, finish);
        if (ended_ == request_.choices) {
            events += last_events(request_, envelope(), *usage_);
        }
        return events;
    }

    std::string fail(const Refused &error) override { return failure(request_, error); }

    std::string ping() const override { return ": ping\n\n"; }

  private:
    struct Sent {
        size_t content = 0, likelihoods = 0;
        size_t characters = 0; // of the tokens in `likelihoods`
    };

    Json envelope() const {
        return Json{{"id", "cmpl-" + start_.id},
                    {"object", "text_completion"},
                    {"created", start_.created},
                    {"model", start_.model}};
    }

    static Json choice_of(uint32_t index, std::string text, Json likelihoods, Json finish) {
        return Json{{"index", index},
                    {"text", std::move(text)},
                    {"logprobs", std::move(likelihoods)},
                    {"finish_reason", std::move(finish)}};
    }

    std::string chunk(uint32_t choice, std::string text, Json likelihoods, Json finish) const {
        Json data = envelope();
        data["choices"].push_back(
            choice_of(choice, std::move(text), std::move(likelihoods), std::move(finish)));
        if (request_.stream_usage) {
            data["usage"] = nullptr;
        }
        return event("", data);
    }

    // The likelihoods behind those that were sent, in the four lists of this API.
    Json lists(const Reply &reply, Sent &sent) const {
        if (!request_.log_probabilities) {
            return nullptr;
        }
        Json all = {{"tokens", Json::array()},
                    {"token_logprobs", Json::array()},
                    {"top_logprobs", Json::array()},
                    {"text_offset", Json::array()}};
        for (; sent.likelihoods < reply.likelihoods.size(); ++sent.likelihoods) {
            const Likelihood &one = reply.likelihoods[sent.likelihoods];
            Json best = Json::object();
            for (const Likelihood &other : one.best) {
                // Different tokens may have the same text, or the same bytes that are none: the
                // likeliest has the name.
                const std::string text = whole_text(other.text);
                if (!best.contains(text)) {
                    best[text] = finite(other.log_probability);
                }
            }
            all["tokens"].push_back(whole_text(one.text));
            all["token_logprobs"].push_back(finite(one.log_probability));
            all["top_logprobs"].push_back(std::move(best));
            all["text_offset"].push_back(sent.characters);
            for (const char c : one.text) {
                sent.characters += (static_cast<uint8_t>(c) & 0xC0U) != 0x80U ? 1 : 0;
            }
        }
        return all;
    }

    std::string body() const {
        Json data = envelope();
        data["choices"] = whole_;
        data["usage"] = openai_usage(*usage_);
        return to_text(data);
    }

    const GenerationRequest &request_;
    Start start_;
    std::vector<Sent> sent_;
    std::vector<Json> whole_;
    std::optional<Usage> usage_;
    uint32_t ended_ = 0;
};

} // namespace

std::unique_ptr<Writer> make_completion_writer(const GenerationRequest &request) {
    return std::make_unique<CompletionWriter>(request);
}

} // namespace serve::api
