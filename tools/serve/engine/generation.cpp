// A request from its session to its last byte; see generation.h. Here: how it begins.
#include "tools/serve/engine/generation.h"

#include <algorithm>

#include "tools/cli/terminal.h"
#include "tools/serve/engine/prefixes.h"
#include "tools/serve/engine/routes.h"
#include "tools/serve/engine/stored.h"
#include "tools/serve/engine/tool_calls.h"

namespace serve {

using command::sized;

Generation::Generation(Engine &engine, std::shared_ptr<http::Exchange> exchange,
                       api::GenerationRequest request, std::string tenant)
    : engine_(engine), exchange_(std::move(exchange)), request_(std::move(request)),
      tenant_(std::move(tenant)), cancel_(make_cancel()) {}

Generation::~Generation() {
    leave();
    engine_.forget(cancel_.get());
}

// Before the last byte is sent: a client that has it may ask again.
void Generation::leave() {
    if (entered_.exchange(false)) {
        claim_ = nullptr;
        engine_.leave(request_.choices);
    }
}

void Generation::cancel() {
    stasis_cancel_request(cancel_.get());
    // Those that wait for memory go, and end; not here, where locks may be held.
    engine_.workers().post([weak = weak_from_this()] {
        const std::shared_ptr<Generation> generation = weak.lock();
        if (generation && generation->model_ != nullptr) {
            generation->model_->line().release(generation.get());
        }
    });
}

// Whatever it does: computes, waits for memory, or has not begun.
void Generation::expire() {
    late_ = true;
    cancel();
}

void Generation::start() {
    exchange_->on_gone([weak = weak_from_this()] {
        if (const std::shared_ptr<Generation> generation = weak.lock()) {
            generation->gone_ = true;
            generation->cancel();
        }
    });
    try {
        model_ = &engine_.model(request_.model);
        engine_.enter(cancel_.get(), request_.choices);
        entered_ = true;
    } catch (const api::Refused &refused) {
        refuse(refused);
        return;
    }
    if (request_.stream) {
        engine_.pinger().add(weak_from_this());
    }
    engine_.deadlines().add(weak_from_this());
    engine_.workers().post([self = shared_from_this()] { self->prepare(); });
}

// Nobody waits for these.
void Generation::give_up(size_t replies) {
    claim_ = nullptr;
    engine_.counts().left += replies;
}

void Generation::refuse(const api::Refused &given) {
    const bool in_time = !late_ || given.code != refusal(STASIS_CANCELLED, "").code;
    const api::Refused refused = in_time ? given : refusal(STASIS_TIMEOUT, kTimeIsOver);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failed_) {
        return;
    }
    failed_ = true;
    if (choices_.empty()) { // nothing runs
        leave();
    }
    ++(refused.status < 500 ? engine_.counts().refused : engine_.counts().failed);
    if (begun_ && request_.stream) {
        send(writer_->fail(refused));
        exchange_->end();
        return;
    }
    exchange_->reply(refused.status, refusal_headers(refused),
                     api::error_body(refused, request_.dialect == api::Dialect::messages));
}

void Generation::send(const std::string &piece) {
    if (!piece.empty()) {
        exchange_->write(piece);
        sent_ = true;
    }
}

void Generation::ping() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (begun_ && request_.stream && !failed_ && open_ > 0 && !sent_) {
        send(writer_->ping());
    }
    sent_ = false;
}

void Generation::write_conversation() {
    if (is_conversation()) {
        conversation_ =
            request_.conversation.dump(-1, ' ', false, api::Json::error_handler_t::replace);
        if (conversation_.size() > STASIS_DATA_BYTES_MAX / 2) { // it could not be kept
            throw api::Refused{413, "request_too_large",
                               "a conversation has at most " +
                                   std::to_string(STASIS_DATA_BYTES_MAX / 2) + " bytes",
                               "messages"};
        }
        tools_.clear();
        if (request_.conversation.contains("tools")) {
            tools_ = api::Json({{"messages", {{{"role", "user"}, {"content", ""}}}},
                                {"tools", request_.conversation["tools"]}})
                         .dump();
        }
    }
}

// Returns what the log lacks of the conversation, and from which position on.
Generation::Lacking Generation::lacking_tokens(const stasis_session *session) const {
    Lacking lacking;
    stasis_error error{};
    size_t count = 0;
    const auto ask = [&] {
        return stasis_session_chat_tokens(
            session, conversation_.data(), conversation_.size(), STASIS_CHAT_REPLY,
            &lacking.position, lacking.tokens.data(), lacking.tokens.size(), &count, &error);
    };
    stasis_status status = ask();
    if (status == STASIS_BUFFER_TOO_SMALL) {
        lacking.tokens.resize(count);
        status = ask();
    }
    require(status, error);
    return lacking;
}

// Cuts off what the log has otherwise than the prompt.
void Generation::align(stasis_session *session) {
    stasis_error error{};
    auto info = sized<stasis_session_info>();
    require(stasis_session_get_info(session, &info, &error), error);
    Lacking lacking;
    if (is_conversation()) {
        lacking = lacking_tokens(session);
    } else { // at least the last token is computed, for its logits
        std::vector<stasis_token> log(info.position);
        size_t count = 0;
        require(stasis_session_tokens(session, 0, log.data(), nullptr, log.size(), &count, &error),
                error);
        const size_t most = std::min(log.size(), prompt_.size() - 1);
        lacking.position = static_cast<uint64_t>(
            std::mismatch(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(most),
                          prompt_.begin())
                .first -
            log.begin());
        prompt_.erase(prompt_.begin(),
                      prompt_.begin() + static_cast<std::ptrdiff_t>(lacking.position));
        lacking.tokens = prompt_;
    }
    if (lacking.position < info.position) {
        auto options = sized<stasis_run_options>();
        options.cancel = cancel_.get();
        require(stasis_session_rewind(session, lacking.position, STASIS_REWIND_RECOMPUTE, &options,
                                      &error),
                error);
    }
    prompt_tokens_ = lacking.position + lacking.tokens.size();
}

void Generation::configure(stasis_session *session, uint32_t choice) const {
    stasis_error error{};
    auto sampling = sized<stasis_sampling>();
    require(stasis_model_recommended_sampling(model_->model(), &sampling, &error), error);
    const auto take = [](const auto &given, auto &field) { field = given.value_or(field); };
    take(request_.temperature, sampling.temperature);
    take(request_.top_p, sampling.top_p);
    take(request_.min_p, sampling.min_p);
    take(request_.top_k, sampling.top_k);
    take(request_.repetition_penalty, sampling.repetition_penalty);
    take(request_.frequency_penalty, sampling.frequency_penalty);
    take(request_.presence_penalty, sampling.presence_penalty);
    sampling.seed = request_.seed.value_or(0) + choice;
    std::vector<stasis_token> tokens;
    std::vector<float> biases;
    for (const auto &[token, bias] : request_.bias) {
        tokens.push_back(token);
        biases.push_back(bias);
    }
    if (!tokens.empty()) {
        sampling.bias_count = static_cast<uint32_t>(tokens.size());
        sampling.bias_tokens = tokens.data();
        sampling.bias = biases.data();
    }
    require(stasis_session_set_sampling(session, &sampling, &error), error);
    const api::Form &form = request_.form;
    require(stasis_session_set_constraint(session, form.kind,
                                          form.text.empty() ? nullptr : form.text.data(),
                                          form.text.size(), cancel_.get(), &error),
            error);
}

// Returns what makes text of a choice's tokens, and finds its stop strings. A submission has none
// of its own: of a reply that waits for memory there are several.
command::TextStream Generation::make_stream() const {
    std::vector<const char *> stops;
    for (const std::string &stop : request_.stops) {
        stops.push_back(stop.c_str());
    }
    auto options = sized<stasis_generate_options>();
    options.stop_strings = stops.data();
    options.stop_string_count = stops.size();
    stasis_text_stream *made = nullptr;
    stasis_error error{};
    require(stasis_text_stream_create(model_->model(), &options, &made, &error), error);
    return command::TextStream(made);
}

uint64_t Generation::position_of(const Choice &choice) {
    auto info = sized<stasis_session_info>();
    stasis_session_get_info(choice.session.get(), &info, nullptr); // between two tries
    return info.position;
}

void Generation::submit(Choice &choice) {
    // An earlier try may have computed it, and had no place for a token behind it.
    const bool with_prompt = choice.position_before == choice.begin;
    auto options = sized<stasis_generate_options>();
    uint64_t most = request_.tokens_max.value_or(0);
    if (engine_.limits().tokens_max != 0) {
        most =
            most == 0 ? engine_.limits().tokens_max : std::min(most, engine_.limits().tokens_max);
    }
    options.tokens_max = most == 0 ? 0 : most - choice.drawn;
    options.cancel = cancel_.get();
    options.log_probability_count = request_.log_probabilities ? std::max(request_.best, 1U) : 0;
    auto prompt = sized<stasis_prompt>();
    if (with_prompt && is_conversation()) {
        prompt.conversation = conversation_.data();
        prompt.conversation_length = conversation_.size();
    } else if (with_prompt) {
        prompt.tokens = prompt_.data();
        prompt.token_count = prompt_.size();
    }
    model_->submit(choice.session.get(), options, prompt, choice);
}

// Returns the tokens of a prompt that is no conversation.
std::vector<stasis_token> Generation::plain_prompt() const {
    std::vector<stasis_token> tokens = request_.tokens;
    if (tokens.empty()) {
        try {
            tokens = command::tokenize(model_->model(), request_.prompt,
                                       STASIS_TOKENIZE_BOS | STASIS_TOKENIZE_SPECIAL);
        } catch (const command::Failure &failure) {
            throw api::Refused{400, "invalid_request_error", failure.what(), "prompt"};
        }
    }
    if (tokens.empty()) {
        throw api::Refused{400, "invalid_request_error", "the prompt has no token", "prompt"};
    }
    return tokens;
}

// Tools that the template would leave out are refused: the client waits for calls in vain.
void Generation::check_tools() const {
    if (!is_conversation() || !request_.conversation.contains("tools")) {
        return;
    }
    const auto rendered = [this](const api::Json &conversation) {
        const std::string text = conversation.dump();
        return command::fetch_text(
            [&](char *to, size_t capacity, size_t *length, stasis_error *error) {
                return stasis_model_render_chat(model_->model(), text.data(), text.size(), 0, to,
                                                capacity, length, error);
            },
            "the chat template");
    };
    api::Json asking = {{"messages", {{{"role", "user"}, {"content", "?"}}}}};
    std::string without;
    try {
        without = rendered(asking);
    } catch (const command::Failure &) { // it is for conversations with tools alone
        return;
    }
    asking["tools"] = request_.conversation["tools"];
    if (rendered(asking) == without) {
        throw api::Refused{400, "invalid_request_error",
                           "the model's chat template has no place for tools", "tools"};
    }
}

void Generation::force_calls() {
    if (request_.answer != api::Answer::tool) {
        return;
    }
    if (request_.form.kind != STASIS_CONSTRAINT_NONE) {
        throw api::Refused{400, "invalid_request_error",
                           "a reply cannot have a form and be a call: 'tool_choice' forces one",
                           "tool_choice"};
    }
    request_.form = forced_calls(*model_, request_.conversation, request_.tool, request_.parallel);
}

// What can never be answered is refused before it costs anything.
void Generation::check_size() const {
    const uint64_t context = model_->info().context;
    if (prompt_tokens_ >= context) {
        throw api::Refused{400, "context_length_exceeded",
                           "the prompt has " + std::to_string(prompt_tokens_) +
                               " tokens, and the model's context " + std::to_string(context),
                           "messages"};
    }
    // Where each begins in the log takes some templates the square of their number.
    constexpr size_t kMessages = 10'000;
    if (is_conversation() && request_.conversation.at("messages").size() > kMessages) {
        throw api::Refused{400, "invalid_request_error",
                           "a conversation has at most " + std::to_string(kMessages) + " messages",
                           "messages"};
    }
    if (request_.tokens_max == 0U) {
        throw api::Refused{400, "invalid_request_error", "a reply has at least one token",
                           "max_tokens"};
    }
}

// Between the parts of a preparation, each of which may take long.
void Generation::require_wanted() const {
    if (gone_ || late_) {
        throw refusal(STASIS_CANCELLED, "");
    }
}

void Generation::prepare() {
    try {
        require_wanted();
        if (is_conversation() && request_.answer == api::Answer::none) {
            request_.conversation.erase("tools");
        }
        if (!is_conversation()) {
            prompt_ = plain_prompt();
        }
        find_session();
        require_wanted();
        check_tools();
        force_calls();
        align(first_.get());
        require_wanted();
        check_size();
        // The same request has the same id, for the same reply follows.
        start_.id = sha256(model_->identity() + conversation_ + "\n" + exchange_->request().body)
                        .substr(0, kRequestIdLength);
        start_.model = model_->name();
        start_.created = now();
        start_.prompt_tokens = prompt_tokens_;
        writer_ = api::make_writer(request_);
        begin_choices();
    } catch (const api::Refused &refused) {
        claim_ = nullptr; // before the client hears of it: it may ask again
        gone_ ? give_up(request_.choices) : refuse(refused);
    } catch (const std::exception &error) {
        claim_ = nullptr;
        refuse({500, "server_error", error.what(), ""});
    }
}

// Submits a choice whose turn it is.
void Generation::go(Choice &choice) {
    try {
        choice.position_before = position_of(choice);
        submit(choice);
    } catch (const api::Refused &refused) {
        const std::shared_ptr<Generation> self = std::move(choice.self);
        choice.session = nullptr;
        model_->line().ended();
        gone_ ? give_up(1) : fail(refused);
    }
}

Line::Go Generation::going(Choice &choice) {
    return [this, &choice] { go(choice); }; // `self` of the choice is this one's
}

// All choices are made and configured before any is submitted, so that a refusal is whole.
void Generation::begin_choices() {
    for (uint32_t i = 0; i < request_.choices; ++i) {
        auto choice = std::make_unique<Choice>();
        choice->of = this;
        choice->index = i;
        if (i + 1 < request_.choices) {
            stasis_session *copy = nullptr;
            stasis_error error{};
            require(stasis_session_fork(first_.get(), &copy, &error), error);
            choice->session.reset(copy);
        } else {
            choice->session = std::move(first_);
        }
        configure(choice->session.get(), i);
        choice->stream = make_stream();
        auto info = sized<stasis_session_info>();
        stasis_error error{};
        require(stasis_session_get_info(choice->session.get(), &info, &error), error);
        choice->begin = info.position;
        choice->reused = info.tokens_reused;
        choices_.push_back(std::move(choice));
    }
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_ = choices_.size();
    }
    for (const std::unique_ptr<Choice> &choice : choices_) {
        choice->self = shared_from_this(); // until its end was heard and worked on
        model_->line().join({this, choice.get()}, going(*choice));
    }
    bool failed;
    {
        // The prompt may take long: the client sees that it is being worked on.
        const std::lock_guard<std::mutex> lock(mutex_);
        failed = failed_;
        if (request_.stream && !failed_) {
            begin_reply();
        }
    }
    if (gone_ || late_ || failed) { // it may have been cancelled before its choices waited
        model_->line().release(this);
    }
}

} // namespace serve
