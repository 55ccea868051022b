// What the writers of replies share: events, likelihoods and usage as the APIs have them.
#pragma once

#include "tools/serve/api/reply.h"

namespace serve::api {

// Returns the JSON as text. Bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json &json);

// Returns text in which bytes that are no UTF-8 are U+FFFD.
std::string whole_text(const std::string &bytes);

// Returns one server-sent event: with a line "event:" if `name` is not "".
std::string event(const std::string &name, const Json &data);

// Returns what has come behind the first `sent` bytes, and moves `sent` to the end.
std::string behind(const std::string &text, size_t &sent);

// Returns the likelihoods from index `from` on as chat completions and responses have them:
// "token", "logprob", "bytes", "top_logprobs".
Json likelihood_list(const std::vector<Likelihood> &likelihoods, size_t from);

// Returns a log-probability as JSON can say it: what is impossible has -9999.
double finite(float log_probability);

// Returns the error's type as OpenAI and Anthropic call it, by its status.
Json openai_error(const Refused &error);
Json anthropic_error(const Refused &error);

Json openai_usage(const Usage &usage);
// Adds a choice's usage to that of those before it; nullopt: there are none. The prompt counts
// once, and as cached what every choice found.
void add_usage(std::optional<Usage> &sum, const Usage &one);

// What chats and completions have alike: the events behind the last choice of a stream (`last` is
// the envelope of one with usage, sent if it was asked for), and a failure.
std::string last_events(const GenerationRequest &request, Json last, const Usage &usage);
std::string failure(const GenerationRequest &request, const Refused &error);

std::unique_ptr<Writer> make_chat_writer(const GenerationRequest &request);
std::unique_ptr<Writer> make_completion_writer(const GenerationRequest &request);
std::unique_ptr<Writer> make_response_writer(const GenerationRequest &request);
std::unique_ptr<Writer> make_message_writer(const GenerationRequest &request);

} // namespace serve::api
