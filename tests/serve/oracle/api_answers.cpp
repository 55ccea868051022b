// Answers requests as a server would, with replies that are always the same, for the test of the
// official clients. Each line of the input is {"method", "path", "body"}, where a body is text; the
// answer's line is {"status", "type", "body", "read"}, where "read" is what was made of the
// request.
#include <iostream>
#include <string>

#include "tools/serve/api/reply.h"

namespace {

using namespace serve::api;

const ModelEntry kModel{"small", 1700000000, 4096};

bool is_anthropic(const std::string &path) {
    return path.find("/messages") != std::string::npos;
}

GenerationRequest read(const std::string &path, const std::string &body) {
    if (path == "/v1/chat/completions") {
        return read_chat(body);
    }
    if (path == "/v1/completions") {
        return read_completion(body);
    }
    if (path == "/v1/responses") {
        return read_response(body);
    }
    if (path == "/v1/messages") {
        return read_messages(body);
    }
    throw Refused{404, "not_found", "there is no " + path, ""};
}

// Calls each tool of a conversation that has no result yet; else says what the form asks for.
Reply reply_to(const GenerationRequest &request, uint32_t choice) {
    Reply reply;
    if (request.conversation.is_object()) {
        reply.thoughts = "Let me see.";
        const Json &messages = request.conversation["messages"];
        const bool answered = !messages.empty() && messages.back()["role"] == "tool";
        const Json tools = request.conversation.value("tools", Json::array());
        for (size_t i = 0; i < tools.size() && !answered && request.answer != Answer::none; ++i) {
            reply.calls.push_back({call_id(request.conversation, choice, i),
                                   tools[i]["function"]["name"],
                                   Json{{"town", "Z\xc3\xbcrich"}, {"days", 2}}});
        }
    }
    if (reply.calls.empty()) {
        reply.content = request.form.kind != STASIS_CONSTRAINT_NONE
                            ? R"({"town": "Bern", "days": 3})"
                            : "Good day, Z\xc3\xbcrich.";
    }
    if (request.log_probabilities) {
        const Likelihood best[] = {{"Good", 1, -0.25F, {}}, {"\xc3", 2, -1.5F, {}}};
        reply.likelihoods = {{"Good", 1, -0.25F, {best, best + std::min<size_t>(request.best, 2)}},
                             {"\xc3", 2, -0.5F, {}}};
    }
    return reply;
}

// Half of each text, where no character is cut.
Reply half_of(const Reply &reply) {
    Reply half;
    half.thoughts = reply.thoughts.substr(0, reply.thoughts.size() / 2);
    if (half.thoughts == reply.thoughts) {
        half.content = reply.content.substr(0, reply.content.size() / 3);
    }
    return half;
}

std::string answer(const GenerationRequest &request) {
    const auto writer = make_writer(request);
    std::string body = writer->begin({"0123456789abcdef", "small", 1700000000, 12});
    for (uint32_t i = 0; i < request.choices; ++i) {
        body += writer->grow(i, half_of(reply_to(request, i)));
    }
    if (request.model == "breaks") {
        return body + writer->fail({500, "", "the model broke", ""});
    }
    for (uint32_t i = 0; i < request.choices; ++i) {
        const Reply whole = reply_to(request, i);
        const Finish finish = !whole.calls.empty()    ? Finish::calls
                              : request.stops.empty() ? Finish::stop
                                                      : Finish::stop_string;
        const std::string stop = request.stops.empty() ? "" : request.stops[0];
        body += (i == 0 ? writer->ping() : "").substr(0, request.stream ? std::string::npos : 0);
        body += writer->end(i, whole, {finish, stop, {12, 8, 5, 2}, std::string(64, 'd')});
    }
    return body;
}

// What a test looks at of a request.
Json shown(const GenerationRequest &request) {
    Json reply;
    if (request.conversation.is_object()) {
        reply = with_reply(request.conversation, reply_to(request, 0));
    }
    return Json{{"conversation", request.conversation},
                {"with_reply", reply},
                {"form", request.form.text},
                {"prompt", request.prompt},
                {"tokens", request.tokens},
                {"tool", request.tool},
                {"must_call", request.answer == Answer::tool},
                {"stream", request.stream}};
}

Json answer_to(const std::string &method, const std::string &path, const std::string &body) {
    Json made;
    if (method == "GET") {
        const bool anthropic = path.starts_with("/anthropic");
        if (path.ends_with("/v1/models")) {
            made["body"] = models_body({kModel, kModel}, anthropic);
        } else if (path.ends_with("/input_items")) {
            const auto request = read_response(R"({"input":"a","tools":[{"type":"function",)"
                                               R"("name":"weather"}]})");
            Json conversation = with_reply(request.conversation, reply_to(request, 0));
            const std::string id = conversation["messages"][1]["tool_calls"][0]["id"];
            conversation["messages"].push_back(
                Json{{"role", "tool"}, {"tool_call_id", id}, {"content", "rain"}});
            conversation["messages"].push_back(
                Json{{"role", "assistant"}, {"content", "It rains."}});
            made["body"] = input_items_body(conversation, Page{});
        } else {
            made["body"] = model_body(kModel, anthropic);
        }
    } else if (path == "/v1/embeddings") {
        const EmbeddingRequest request = read_embedding(body);
        const size_t count = request.texts.size() + request.tokens.size();
        made["body"] = embeddings_body(
            request, "small", std::vector<std::vector<float>>(count, {0.5F, -2.0F, 1e-3F}), 7);
    } else if (path == "/v1/messages/count_tokens") {
        made["read"] = shown(read_token_count(body));
        made["body"] = token_count_body(12);
    } else {
        const GenerationRequest request = read(path, body);
        made["read"] = shown(request);
        made["body"] = answer(request);
        made["type"] = request.stream ? "text/event-stream" : "application/json";
    }
    return made;
}

} // namespace

int main() {
    std::string line;
    while (std::getline(std::cin, line)) {
        const Json asked = Json::parse(line);
        const std::string path = asked["path"];
        Json made;
        made["status"] = 200;
        try {
            made.update(answer_to(asked["method"], path, asked["body"]));
        } catch (const Refused &refused) {
            made["status"] = refused.status;
            made["body"] = error_body(refused, is_anthropic(path));
        }
        std::cout << made.dump() << std::endl;
    }
}
