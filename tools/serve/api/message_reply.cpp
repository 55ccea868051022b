// POST /v1/messages: replies.
#include "tools/serve/api/pieces.h"

#include <algorithm>

namespace serve::api {

namespace {

const char *message_stop(Finish finish) {
    switch (finish) {
    case Finish::stop_string:
        return "stop_sequence";
    case Finish::length:
        return "max_tokens";
    case Finish::calls:
        return "tool_use";
    default:
        return "end_turn";
    }
}

// Here the tokens that were stored do not count as input.
Json message_usage(const Usage &usage) {
    return Json{{"input_tokens", usage.prompt - std::min(usage.cached, usage.prompt)},
                {"cache_creation_input_tokens", 0},
                {"cache_read_input_tokens", usage.cached},
                {"output_tokens", usage.reply}};
}

class MessageWriter : public Writer {
  public:
    explicit MessageWriter(const GenerationRequest &request) : stream_(request.stream) {}

    std::string begin(const Start &start) override {
        start_ = start;
        if (!stream_) {
            return "";
        }
        Json data = {{"type", "message_start"}};
        Usage usage;
        usage.prompt = start.prompt_tokens;
        data["message"] = message(usage);
        return event("message_start", data);
    }

    std::string grow(uint32_t, const Reply &so_far) override {
        std::string events;
        add(events, "thinking", behind(so_far.thoughts, thoughts_));
        add(events, "text", behind(so_far.content, content_));
        for (; calls_ < so_far.calls.size(); ++calls_) {
            add_call(events, so_far.calls[calls_]);
        }
        return stream_ ? events : "";
    }

    std::string end(uint32_t choice, const Reply &whole, const Outcome &outcome) override {
        std::string events = grow(choice, whole);
        close(events);
        Json stop = {{"stop_reason", message_stop(outcome.finish)}, {"stop_sequence", nullptr}};
        if (outcome.finish == Finish::stop_string) {
            stop["stop_sequence"] = outcome.stop_string;
        }
        if (!stream_) {
            Json body = message(outcome.usage);
            body["content"] = blocks_;
            body.update(stop);
            return to_text(body);
        }
        events += event("message_delta", Json{{"type", "message_delta"},
                                              {"delta", std::move(stop)},
                                              {"usage", message_usage(outcome.usage)}});
        Json last;
        last["type"] = "message_stop";
        return events + event("message_stop", last);
    }

    std::string fail(const Refused &error) override {
        return stream_ ? event("error", anthropic_error(error)) : error_body(error, true);
    }

    std::string ping() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  private:
    Json message(const Usage &usage) const {
        return Json{{"id", "msg_" + start_.id}, {"type", "message"},
                    {"role", "assistant"},      {"model", start_.model},
                    {"content", Json::array()}, {"stop_reason", nullptr},
                    {"stop_sequence", nullptr}, {"usage", message_usage(usage)}};
    }

    // Adds text to the last block if it is of this kind and open, else to a new one.
    void add(std::string &events, const char *kind, const std::string &piece) {
        if (piece.empty()) {
            return;
        }
        if (open_ != kind) {
            close(events);
            Json block = {{"type", kind}, {kind, ""}};
            if (open_ = kind; open_ == "thinking") {
                block["signature"] = ""; // there is nothing to prove to a server elsewhere
            }
            start_block(events, std::move(block));
        }
        blocks_.back()[kind].get_ref<std::string &>() += piece;
        add_delta(events, Json{{"type", std::string(kind) + "_delta"}, {kind, piece}});
    }

    void add_call(std::string &events, const Call &call) {
        close(events);
        start_block(events, Json{{"type", "tool_use"},
                                 {"id", "toolu_" + call.id},
                                 {"name", call.name},
                                 {"input", Json::object()}});
        blocks_.back()["input"] = call.arguments;
        add_delta(events,
                  Json{{"type", "input_json_delta"}, {"partial_json", to_text(call.arguments)}});
        open_ = "tool_use";
        close(events);
    }

    void start_block(std::string &events, Json block) {
        events += event("content_block_start", Json{{"type", "content_block_start"},
                                                    {"index", blocks_.size()},
                                                    {"content_block", block}});
        blocks_.push_back(std::move(block));
    }

    void add_delta(std::string &events, Json delta) const {
        events += event("content_block_delta", Json{{"type", "content_block_delta"},
                                                    {"index", blocks_.size() - 1},
                                                    {"delta", std::move(delta)}});
    }

    void close(std::string &events) {
        if (open_.empty()) {
            return;
        }
        events += event("content_block_stop",
                        Json{{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
        open_.clear();
    }

    const bool stream_;
    Start start_;
    size_t thoughts_ = 0, content_ = 0, calls_ = 0; // what has been written of each
    std::vector<Json> blocks_;
    std::string open_; // the kind of the last block, if it is open
};

} // namespace

std::unique_ptr<Writer> make_message_writer(const GenerationRequest &request) {
    return std::make_unique<MessageWriter>(request);
}

} // namespace serve::api
