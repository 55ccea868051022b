// POST /v1/responses: replies.
#include "tools/serve/api/response_items.h"

namespace serve::api {

namespace {

// A reply's items in the order in which they came: thoughts and messages, then the calls, which
// are held back to the end, for no message follows a call in an answer that is sent back.
class ResponseWriter : public Writer {
  public:
    explicit ResponseWriter(const GenerationRequest &request) : request_(request) {
        // What determines the request, for the ids of items.
        named_ = Json{{"follows", request.previous + request.kept},
                      {"conversation", request.conversation}};
    }

    std::string begin(const Start &start) override {
        start_ = start;
        std::string events;
        for (const char *type : {"response.created", "response.in_progress"}) {
            add(events, type, Json{{"response", answer("in_progress", first_id())}});
        }
        return sent(events);
    }

    std::string grow(uint32_t, const Reply &so_far) override {
        std::string events;
        add_text(events, "reasoning", behind(so_far.thoughts, thoughts_), so_far);
        add_text(events, "message", behind(so_far.content, content_), so_far);
        return sent(events);
    }

    std::string end(uint32_t choice, const Reply &whole, const Outcome &outcome) override {
        std::string events = grow(choice, whole);
        if (items_.empty() && open_.empty() && whole.calls.empty()) {
            open(events, "message"); // so that the reply is a message, though an empty one
        }
        const char *status = outcome.finish == Finish::length ? "incomplete" : "completed";
        close(events, whole, status);
        for (const Call &call : whole.calls) {
            add_call(events, call);
        }
        if (outcome.finish == Finish::left) {
            status = "cancelled";
        }
        Json data = answer(status, response_id(request_, start_, outcome));
        data["output"] = items_;
        data["usage"] = usage(outcome.usage);
        if (outcome.finish == Finish::length) {
            data["incomplete_details"]["reason"] = "max_output_tokens";
        }
        if (!request_.stream) {
            return to_text(data);
        }
        add(events, outcome.finish == Finish::length ? "response.incomplete" : "response.completed",
            Json{{"response", std::move(data)}});
        return events;
    }

    std::string fail(const Refused &error) override {
        if (!request_.stream) {
            return error_body(error, false);
        }
        Json data = answer("failed", first_id());
        data["error"] = Json{{"code", error.status < 500 ? "invalid_prompt" : "server_error"},
                             {"message", error.message}};
        data["output"] = items_;
        std::string events;
        add(events, "response.failed", Json{{"response", std::move(data)}});
        return events;
    }

    std::string ping() const override { return ": ping\n\n"; }

  private:
    std::string sent(std::string &events) const { return request_.stream ? std::move(events) : ""; }

    std::string first_id() const { return "resp_" + start_.id; }

    static Json usage(const Usage &usage) {
        return Json{{"input_tokens", usage.prompt},
                    {"input_tokens_details",
                     Json{{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
                    {"output_tokens", usage.reply},
                    {"output_tokens_details", Json{{"reasoning_tokens", usage.thoughts}}},
                    {"total_tokens", usage.prompt + usage.reply}};
    }

    Json answer(const char *status, const std::string &id) const {
        Json data = {{"id", id},
                     {"object", "response"},
                     {"created_at", start_.created},
                     {"status", status},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", start_.model},
                     {"output", Json::array()},
                     {"usage", nullptr}};
        data.update(request_.echo);
        return data;
    }

    void add(std::string &events, const char *type, Json members) {
        if (!request_.stream) {
            return;
        }
        Json data = {{"type", type}, {"sequence_number", sequence_++}};
        data.update(members);
        events += event(type, data);
    }

    // An event of the last item's only part.
    void add_part(std::string &events, const char *type, Json members) {
        Json data = {{"item_id", id_}, {"output_index", items_.size()}, {"content_index", 0}};
        data.update(members);
        add(events, type, std::move(data));
    }

    void add_item(std::string &events, const char *type, const Json &item) {
        add(events, type, Json{{"output_index", items_.size()}, {"item", item}});
    }

    std::string next_id(const char *prefix) const {
        return prefix + call_id(named_, 0, items_.size());
    }

    void add_text(std::string &events, const char *kind, const std::string &piece,
                  const Reply &so_far) {
        if (piece.empty()) {
            return;
        }
        if (open_ != kind) {
            close(events, so_far, "completed");
            open(events, kind);
        }
        text_ += piece;
        Json delta = {{"delta", piece}};
        if (open_ == "message") {
            delta["logprobs"] = likelihood_list(so_far.likelihoods, likelihoods_sent_);
            likelihoods_sent_ = so_far.likelihoods.size();
        }
        add_part(events,
                 open_ == "message" ? "response.output_text.delta"
                                    : "response.reasoning_text.delta",
                 std::move(delta));
    }

    void open(std::string &events, const char *kind) {
        open_ = kind;
        text_.clear();
        const bool message = open_ == "message";
        id_ = next_id(message ? "msg_" : "rs_");
        Json item = message ? message_item(id_, "", Json::array(), "in_progress")
                            : thoughts_item(id_, "", "in_progress");
        item["content"] = Json::array();
        add_item(events, "response.output_item.added", item);
        add_part(events, "response.content_part.added",
                 Json{{"part", message ? message_part("", Json::array()) : thoughts_part("")}});
    }

    // Ends the item that is open, if one is; `so_far` has its likelihoods.
    void close(std::string &events, const Reply &so_far, const char *status) {
        if (open_.empty()) {
            return;
        }
        Json item, part, done = {{"text", text_}};
        const bool message = open_ == "message";
        if (message) {
            const Json all = likelihood_list(so_far.likelihoods, likelihoods_closed_);
            likelihoods_closed_ = likelihoods_sent_ = so_far.likelihoods.size();
            item = message_item(id_, text_, all, status);
            part = message_part(text_, all);
            done["logprobs"] = all;
        } else {
            item = thoughts_item(id_, text_, status);
            part = thoughts_part(text_);
        }
        add_part(events, message ? "response.output_text.done" : "response.reasoning_text.done",
                 std::move(done));
        add_part(events, "response.content_part.done", Json{{"part", std::move(part)}});
        add_item(events, "response.output_item.done", item);
        items_.push_back(std::move(item));
        open_.clear();
    }

    void add_call(std::string &events, const Call &call) {
        id_ = next_id("fc_");
        Json item = call_item(id_, call, "completed");
        Json begun = item;
        begun["arguments"] = "";
        begun["status"] = "in_progress";
        add_item(events, "response.output_item.added", begun);
        const Json place = {{"item_id", id_}, {"output_index", items_.size()}};
        Json delta = place, done = place;
        delta["delta"] = item["arguments"];
        done["name"] = call.name;
        done["arguments"] = item["arguments"];
        add(events, "response.function_call_arguments.delta", std::move(delta));
        add(events, "response.function_call_arguments.done", std::move(done));
        add_item(events, "response.output_item.done", item);
        items_.push_back(std::move(item));
    }

    const GenerationRequest &request_;
    Json named_;
    Start start_;
    uint64_t sequence_ = 0;
    size_t thoughts_ = 0, content_ = 0; // bytes that are in items
    size_t likelihoods_sent_ = 0, likelihoods_closed_ = 0;
    std::vector<Json> items_; // that are whole
    std::string open_;        // the type of the item behind them, or ""
    std::string id_, text_;   // of that item
};

} // namespace

std::string response_id(const GenerationRequest &request, const Start &start,
                        const Outcome &outcome) {
    return "resp_" + (request.stream ? start.id : outcome.id);
}

std::unique_ptr<Writer> make_response_writer(const GenerationRequest &request) {
    return std::make_unique<ResponseWriter>(request);
}

} // namespace serve::api
