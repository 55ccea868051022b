// What the tests of the API's forms share: refusals as one text, replies, events of a stream.
#pragma once

#include <string>
#include <vector>

#include "tools/serve/api/reply.h"

namespace api_cases {

using serve::api::Json;

// Returns "PARAMETER CODE: MESSAGE" of what a reader throws, or "" if it throws nothing.
template <typename Reader> std::string refusal(Reader &&read, std::string_view body) {
    try {
        read(body);
    } catch (const serve::api::Refused &refused) {
        return refused.parameter + " " + refused.code + ": " + refused.message;
    }
    return "";
}

inline serve::api::Reply greeting() {
    serve::api::Reply reply;
    reply.thoughts = "They greet me.";
    reply.content = "Good day \xc3\xa9.";
    return reply;
}

inline serve::api::Reply two_calls() {
    serve::api::Reply reply;
    reply.thoughts = "I look it up.";
    reply.calls = {{"aaaaaaaaa", "weather", Json{{"town", "Bern"}, {"days", 1.5}}},
                   {"bbbbbbbbb", "time", Json::object()}};
    return reply;
}

inline serve::api::Outcome outcome(serve::api::Finish finish) {
    return {.finish = finish,
            .stop_string = "",
            .usage = {.prompt = 12, .cached = 8, .reply = 5, .thoughts = 2},
            .id = std::string(64, 'd')};
}

inline serve::api::Start start() {
    return {.id = "unique", .model = "small", .created = 1700000000, .prompt_tokens = 12};
}

// Returns the data of each event of a stream, "[DONE]" as text. The names of events, where there
// are any, must be the data's types.
inline std::vector<Json> events(const std::string &stream) {
    std::vector<Json> found;
    for (size_t at = 0; at < stream.size();) {
        const size_t end = stream.find("\n\n", at);
        std::string one = stream.substr(at, end - at);
        at = end + 2;
        std::string name;
        if (one.starts_with("event: ")) {
            name = one.substr(7, one.find('\n') - 7);
            one = one.substr(one.find('\n') + 1);
        }
        const std::string data = one.substr(6);
        found.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
        if (!name.empty() && found.back()["type"] != name) {
            found.push_back("the event is called " + name);
        }
    }
    return found;
}

// Returns what a writer sends for one reply of which `cuts` prefixes come before it, each a part
// of all its texts.
inline std::string written(const serve::api::GenerationRequest &request,
                           const serve::api::Reply &reply, serve::api::Finish finish,
                           size_t cuts = 3) {
    const auto writer = serve::api::make_writer(request);
    std::string all = writer->begin(start());
    for (size_t i = 1; i <= cuts; ++i) {
        serve::api::Reply part;
        part.thoughts = reply.thoughts.substr(0, reply.thoughts.size() * i / cuts);
        if (i == cuts) { // thoughts are whole before anything else comes
            part.content = reply.content.substr(0, 4);
        }
        all += writer->grow(0, part);
    }
    return all + writer->end(0, reply, outcome(finish));
}

} // namespace api_cases
