// Making the example requests; see requests.h.
#include "tools/serve/requests.h"

#include <random>

namespace serve {

using command::check;
using command::sized;
using command::tokenize;

namespace {

constexpr const char *kTexts[] = {
    "Let's start by defining a variable k equal to 5. What is k?",
    "What is m?",
    "Now set a new variable m equal to k multiplied by 11. What is m?",
    "Tell me about the sea.",
    "My name is Ada. What is my name?",
    "Define a variable z equal to 8. Define a variable y equal to 3. What is z plus y?",
};

// Returns a user's turn as the model's template renders it, or the text itself without a template.
std::vector<stasis_token> prompt_of(const stasis_model *model, const stasis_model_info &info,
                                    const std::string &text) {
    if (info.chat_template[0] == '\0') {
        return tokenize(model, text, STASIS_TOKENIZE_BOS);
    }
    auto message = sized<stasis_message>();
    message.role = "user";
    message.text = text.data();
    message.length = text.size();
    const std::string rendered = command::fetch_text(
        [&](char *to, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_model_render(model, &message, sizeof message, 1, STASIS_RENDER_REPLY, to,
                                       capacity, length, error);
        },
        "prompt");
    return tokenize(model, rendered, STASIS_TOKENIZE_SPECIAL);
}

stasis_sampling sampling_of(std::mt19937 &random) {
    auto sampling = sized<stasis_sampling>();
    sampling.seed = random();
    if (random() % 4 != 0) { // one in four is greedy
        sampling.temperature = 0.5F + 0.1F * static_cast<float>(random() % 10);
        sampling.top_k = random() % 2 == 0 ? 0 : 20 + random() % 40;
        sampling.top_p = random() % 2 == 0 ? 1.0F : 0.9F;
        sampling.repetition_penalty = random() % 2 == 0 ? 1.0F : 1.1F;
    }
    return sampling;
}

Request make_request(const stasis_model *model, const stasis_model_info &info,
                     std::mt19937 &random) {
    Request request;
    request.sampling = sampling_of(random);
    request.tokens_max = 8 + random() % 57;
    request.stop_tokens = {static_cast<stasis_token>(random() % info.vocabulary)};
    if ((info.flags & STASIS_MODEL_TOKENIZER) == 0) {
        for (size_t left = 10 + random() % 200; left > 0; --left) {
            request.prompt.push_back(static_cast<stasis_token>(random() % info.vocabulary));
        }
        return request;
    }
    std::string text;
    for (size_t sentences = 1 + random() % 6 * (random() % 4); sentences > 0; --sentences) {
        text += (text.empty() ? "" : " ") + std::string(kTexts[random() % std::size(kTexts)]);
    }
    request.prompt = prompt_of(model, info, text);
    request.stop_strings = {random() % 2 == 0 ? "." : " is ", "\n\n"};
    return request;
}

} // namespace

std::vector<Request> make_requests(const stasis_model *model, size_t count, uint32_t seed) {
    auto info = sized<stasis_model_info>();
    stasis_error error{};
    check(stasis_model_get_info(model, &info, &error), error, "model");
    std::mt19937 random(seed);
    std::vector<Request> requests;
    uint64_t step = 0;
    while (requests.size() < count) {
        Request request = make_request(model, info, random);
        request.arrival_step = step;
        step += random() % 5;               // several may arrive at once
        if (requests.size() == count / 2) { // a long reply whose user leaves early
            request.sampling = sized<stasis_sampling>();
            request.tokens_max = 64;
            request.leaves_after = 3;
            request.stop_strings.clear();
            request.stop_tokens.clear();
        }
        requests.push_back(std::move(request));
    }
    return requests;
}

Reply reply_alone(stasis_model *model, const Request &request) {
    stasis_error error{};
    stasis_session *created = nullptr;
    check(stasis_session_create(model, nullptr, &created, &error), error, "session");
    const command::Session session(created);
    check(stasis_session_set_sampling(created, &request.sampling, &error), error, "sampling");
    check(stasis_session_append(created, request.prompt.data(), request.prompt.size(), nullptr,
                                &error),
          error, "append");

    Reply reply;
    std::vector<const char *> stops;
    for (const std::string &stop : request.stop_strings) {
        stops.push_back(stop.c_str());
    }
    auto options = sized<stasis_generate_options>();
    options.tokens_max = request.leaves_after != 0 ? request.leaves_after : request.tokens_max;
    options.stop_tokens = request.stop_tokens.data();
    options.stop_token_count = request.stop_tokens.size();
    options.stop_strings = stops.data();
    options.stop_string_count = stops.size();
    options.callback_user = &reply;
    options.callback = [](void *user, const stasis_generated *generated) -> int32_t {
        auto &to = *static_cast<Reply *>(user);
        to.text.append(generated->text, generated->length);
        if (generated->last == 0) {
            to.tokens.push_back(generated->token);
        }
        return 0;
    };

    auto result = sized<stasis_generate_result>();
    check(stasis_session_generate(created, &options, &result, &error), error, "generate");
    reply.end = result.stop_reason == STASIS_STOP_END_TOKEN ? End::token
                : result.stop_reason == STASIS_STOP_STRING  ? End::string
                : request.leaves_after != 0                 ? End::left
                                                            : End::length;
    check(stasis_session_digest(created, &reply.digest, &error), error, "digest");
    return reply;
}

} // namespace serve
