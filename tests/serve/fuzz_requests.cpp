// Fuzzes what is read of requests: the first byte chooses the API, the rest is the body. What is
// read can be answered, whole and as a stream, and its conversation is in the one form: read again,
// it is equal.
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/watched.h"
#include "tools/serve/api/reply.h"

using namespace serve::api;

namespace {

namespace fuzz = stasis::fuzz;

// A conversation holds what the body has a few times over: parsed, in the one form, and repeated.
constexpr size_t kCopies = 8;

void answer(GenerationRequest request) {
    Reply reply;
    reply.thoughts = "a";
    reply.content = "b";
    reply.calls = {{call_id(request.conversation, 0, 0), "f", Json::object()}};
    request.choices = 1;
    for (const bool stream : {false, true}) {
        request.stream = stream;
        const auto writer = make_writer(request);
        std::string all = writer->begin({"id", request.model, 0, 1});
        all += writer->grow(0, reply);
        fuzz::expect(all.empty() != stream, "a stream begins at once, a body does not");
        fuzz::expect(!writer->end(0, reply, {}).empty(), "the end is nothing");
    }
}

void check_form(const Json &conversation) {
    Json body;
    body["messages"] = conversation["messages"];
    const bool tools = conversation.contains("tools");
    if (tools) {
        body["tools"] = conversation["tools"];
    }
    for (Json &message : body["messages"]) {
        message.erase("instructions");
    }
    if (body["messages"].empty()) { // of a response that follows another
        return;
    }
    const Json again = read_chat(body.dump()).conversation;
    fuzz::expect(again == body, "a conversation that is read again is another");
}

void read(uint8_t api, std::string_view body) {
    if (api == 5) {
        const EmbeddingRequest request = read_embedding(body);
        fuzz::expect(request.texts.empty() != request.tokens.empty(), "texts or tokens");
        return;
    }
    if (api == 6) {
        const std::string items = added_items_body({{"messages", read_kept(body).messages}}, 0);
        fuzz::expect(Json::accept(items), "a list of items is no JSON");
        return;
    }
    GenerationRequest (*const readers[])(std::string_view) = {
        read_chat, read_completion, read_response, read_messages, read_token_count};
    const GenerationRequest request = readers[api](body);
    if (request.conversation.is_object()) {
        check_form(request.conversation);
        const std::string items = input_items_body(request.conversation, Page{});
        fuzz::expect(Json::accept(items), "a list of items is no JSON");
        continued(request.conversation, request.conversation);
    }
    answer(request);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    const std::string_view body(reinterpret_cast<const char *>(data + 1), size - 1);
    const fuzz::Meter meter(kCopies * fuzz::kJsonTimes * size + (size_t{1} << 20));
    try {
        read(data[0] % 7, body);
    } catch (const Refused &refused) {
        fuzz::expect(!refused.message.empty() && !refused.code.empty(), "a refusal says nothing");
        fuzz::expect(refused.status == 400, "a refusal of a body is 400");
    }
    return 0;
}
