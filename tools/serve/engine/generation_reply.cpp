// A request from its first token to its last byte; see generation.h.
#include <algorithm>

#include "tools/cli/terminal.h"
#include "tools/serve/engine/generation.h"
#include "tools/serve/engine/stored.h"

namespace serve {

using command::sized;

namespace {

// Returns how much of the end of a text may become a stop string.
size_t held_back(const std::string &text, const std::vector<std::string> &stops) {
    size_t most = 0;
    for (const std::string &stop : stops) {
        for (size_t length = std::min(stop.size() - 1, text.size()); length > most; --length) {
            if (text.compare(text.size() - length, length, stop, 0, length) == 0) {
                most = length;
            }
        }
    }
    return most;
}

// Cuts the text before the stop string that ended it, which it returns.
std::string cut_at_stop(std::string &text, const std::vector<std::string> &stops) {
    size_t at = std::string::npos;
    std::string which;
    for (const std::string &stop : stops) {
        const size_t found = text.find(stop);
        if (found != std::string::npos && (at == std::string::npos || found < at)) {
            at = found;
            which = stop;
        }
    }
    if (at != std::string::npos) {
        text.resize(at);
    }
    return which;
}

// Where the thoughts end in the text; npos: there are none, or they are not in one piece.
size_t end_of_thoughts(const std::string &text, const std::string &thoughts) {
    const size_t at = thoughts.empty() ? std::string::npos : text.find(thoughts);
    return at == std::string::npos ? at : at + thoughts.size();
}

} // namespace

void Generation::Choice::hear(const stasis_scheduler_event &event) {
    if (event.end != 0) {
        of->ended(*this, event);
    } else {
        of->token(*this, event);
    }
}

// Begins the reply, once; of a stream the head is sent.
void Generation::begin_reply() {
    if (begun_) {
        return;
    }
    begun_ = true;
    if (request_.stream) {
        exchange_->begin(200,
                         {{"content-type", "text/event-stream"}, {"cache-control", "no-cache"}});
    }
    send(writer_->begin(start_));
}

void Generation::add_likelihood(Choice &choice, const stasis_scheduler_event &event) const {
    const auto spelled = [this](stasis_token token, uint32_t flags) {
        return command::fetch_text(
            [&](char *text, size_t capacity, size_t *length, stasis_error *error) {
                return stasis_model_detokenize(model_->model(), &token, 1,
                                               STASIS_DETOKENIZE_MIDDLE | flags, text, capacity,
                                               length, error);
            },
            "a token's text");
    };
    // A conversation's text is read with its markers; that of a completion has none.
    const uint32_t own = is_conversation() ? STASIS_DETOKENIZE_SPECIAL : 0;
    api::Likelihood likelihood{spelled(event.token, own), event.token, event.log_probability, {}};
    for (uint32_t i = 0; i < std::min(event.log_probability_count, request_.best); ++i) {
        likelihood.best.push_back({spelled(event.best_tokens[i], STASIS_DETOKENIZE_SPECIAL),
                                   event.best_tokens[i],
                                   event.best_log_probabilities[i],
                                   {}});
    }
    choice.likelihoods.push_back(std::move(likelihood));
}

// Gives the reply the likelihoods of its content.
void Generation::add_likelihoods(Choice &choice) const {
    for (const size_t index : api::visible_tokens(choice.likelihoods, choice.reply)) {
        if (index >= choice.likelihoods_seen) {
            choice.reply.likelihoods.push_back(choice.likelihoods[index]);
            choice.likelihoods_seen = index + 1;
        }
    }
}

uint64_t Generation::thought_tokens(const Choice &choice) const {
    const size_t end = end_of_thoughts(choice.text, choice.reply.thoughts);
    return end == std::string::npos
               ? 0
               : static_cast<uint64_t>(
                     std::upper_bound(choice.ends.begin(), choice.ends.end(), end) -
                     choice.ends.begin());
}

// Reads the reply as its template's forms have it: thoughts, content, calls.
void Generation::read_reply(Choice &choice, bool complete) const {
    if (!is_conversation()) {
        choice.reply.content = choice.text;
        add_likelihoods(choice);
        return;
    }
    const std::string text = command::fetch_text(
        [&](char *to, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_session_reply(
                choice.session.get(), tools_.empty() ? nullptr : tools_.data(), tools_.size(),
                complete ? STASIS_REPLY_COMPLETE : 0, to, capacity, length, error);
        },
        "the reply");
    const api::Json message = api::Json::parse(text);
    api::Reply &reply = choice.reply;
    reply.content = message.value("content", "");
    reply.thoughts = message.value("reasoning_content", "");
    choice.shown_stop = cut_at_stop(reply.content, request_.stops);
    if (!complete && choice.shown_stop.empty()) {
        reply.content.resize(reply.content.size() - held_back(reply.content, request_.stops));
    }
    add_likelihoods(choice);
    if (!message.contains("tool_calls")) {
        return;
    }
    const api::Json &calls = message["tool_calls"];
    const size_t count = request_.parallel ? calls.size() : std::min<size_t>(calls.size(), 1);
    choice.later_calls = count < calls.size();
    for (size_t i = reply.calls.size(); i < count; ++i) {
        const api::Json &function = calls[i].at("function");
        reply.calls.push_back({api::call_id(request_.conversation, choice.index, i),
                               function.at("name"), function.at("arguments")});
    }
}

// A stop string ends the choice before the next pass, which this thread would compute.
void Generation::take_text(Choice &choice, stasis_token token) const {
    auto piece = sized<stasis_text_piece>();
    stasis_error error{};
    require(stasis_text_stream_push(choice.stream.get(), token, &piece, &error), error);
    choice.text.append(piece.text, piece.length);
    choice.ends.push_back(choice.text.size());
    if (piece.stopped != 0 && piece.stop_reason == STASIS_STOP_STRING) {
        choice.stopped = true;
        model_->cancel(choice.session.get());
    }
}

// What was held back is certain now.
void Generation::finish_text(Choice &choice) const {
    auto piece = sized<stasis_text_piece>();
    stasis_error error{};
    require(stasis_text_stream_finish(choice.stream.get(), &piece, &error), error);
    choice.text.append(piece.text, piece.length);
}

// On the computing thread.
void Generation::token(Choice &choice, const stasis_scheduler_event &event) {
    ++engine_.counts().reply_tokens;
    if (choice.call_end) {
        return;
    }
    try {
        take_text(choice, event.token);
        if (request_.log_probabilities) {
            add_likelihood(choice, event);
        }
        if (!request_.stream && !ends_with_call()) {
            return;
        }
        read_reply(choice, false);
        end_at_call(choice, event.position);
        const std::lock_guard<std::mutex> lock(mutex_);
        if (request_.stream && !failed_) {
            begin_reply();
            send(writer_->grow(choice.index, choice.reply));
        }
    } catch (const std::exception &error) {
        refuse({500, "server_error", error.what(), ""});
        cancel();
    }
}

// On the computing thread: what waits is left to a worker.
void Generation::ended(Choice &choice, const stasis_scheduler_event &event) {
    choice.stop_reason = event.stop_reason;
    choice.status = event.status;
    choice.message = event.message;
    choice.drawn += event.count;
    if (choice.stopped) {
        choice.stop_reason = STASIS_STOP_STRING;
        choice.status = STASIS_OK;
    } else if (late_ && choice.status == STASIS_CANCELLED) {
        choice.stop_reason = STASIS_STOP_TIMEOUT;
        choice.status = STASIS_TIMEOUT;
        choice.message = kTimeIsOver;
    }
    engine_.workers().post([self = shared_from_this(), &choice] { self->finish(choice); });
}

// Where memory is short, sessions that nobody uses make place, or other replies when they end, and
// the reply goes on.
bool Generation::try_again(Choice &choice) {
    if (choice.status != STASIS_POOL_EXHAUSTED || gone_) {
        return false;
    }
    const std::shared_ptr<Generation> self = shared_from_this();
    choice.self = self; // the choice may have ended before this returns
    if (engine_.sessions().drop_oldest()) {
        go(choice);
        return true;
    }
    const uint64_t position = position_of(choice);
    const bool moved = position != choice.position_before, begun = choice.drawn != 0;
    if (!model_->line().wait({this, &choice}, going(choice), position != choice.begin, moved)) {
        choice.self = nullptr;
        return false;
    }
    ++engine_.counts().waits;
    engine_.counts().waits_begun += begun ? 1 : 0;
    if (gone_ || late_) { // it may have been cancelled before this waited
        model_->line().release(this);
    }
    return true;
}

api::Outcome Generation::outcome_of(const Choice &choice) const {
    stasis_error error{};
    auto info = sized<stasis_session_info>();
    require(stasis_session_get_info(choice.session.get(), &info, &error), error);
    api::Outcome outcome;
    outcome.finish = choice.status == STASIS_CANCELLED           ? api::Finish::left
                     : !choice.reply.calls.empty()               ? api::Finish::calls
                     : choice.stop_reason == STASIS_STOP_STRING  ? api::Finish::stop_string
                     : choice.stop_reason == STASIS_STOP_LENGTH  ? api::Finish::length
                     : choice.stop_reason == STASIS_STOP_TIMEOUT ? api::Finish::length
                                                                 : api::Finish::stop;
    outcome.stop_string = choice.shown_stop;
    outcome.usage.prompt = prompt_tokens_;
    outcome.usage.cached =
        std::min(prompt_tokens_, choice.begin + (info.tokens_reused - choice.reused));
    outcome.usage.reply = choice.drawn;
    outcome.usage.thoughts = thought_tokens(choice);
    outcome.id = digest_of(choice.session.get());
    return outcome;
}

// Keeps the session, with all that is asked for later. Returns the outcome.
api::Outcome Generation::keep(Choice &choice) {
    const api::Outcome outcome = outcome_of(choice);
    engine_.counts().prompt_tokens += prompt_tokens_;
    engine_.counts().cached_tokens += outcome.usage.cached;
    const bool responses = request_.dialect == api::Dialect::responses;
    if (responses && !request_.store) {
        return outcome;
    }
    try {
        store(choice, outcome);
    } catch (const api::Refused &refused) {
        if (responses) {
            throw; // the client would ask for it
        }
        command::say("a session could not be stored: " + refused.message);
    }
    return outcome;
}

void Generation::store(Choice &choice, const api::Outcome &outcome) {
    stasis_session *const session = choice.session.get();
    std::vector<std::string> names;
    api::Json output;
    if (is_conversation()) {
        const api::Json conversation = api::with_reply(request_.conversation, choice.reply);
        names.push_back(turn_name(conversation));
        if (!choice.reply.thoughts.empty()) { // most clients do not send them back
            api::Reply bare = choice.reply;
            bare.thoughts.clear();
            names.push_back(turn_name(api::with_reply(request_.conversation, bare)));
        }
        set_object(session, kConversationData, conversation);
    } else { // what the session that it goes on from had
        clear_object(session, kConversationData);
    }
    if (request_.dialect == api::Dialect::responses) { // also of a stream, asked for as a whole
        if (request_.stream) {                         // else the client knows the digest
            names.push_back(kRequestName + start_.id);
        }
        api::GenerationRequest whole = request_;
        whole.stream = false;
        const std::unique_ptr<api::Writer> writer = api::make_writer(whole);
        writer->begin(start_);
        api::Json body = api::Json::parse(writer->end(0, choice.reply, outcome));
        body["id"] = api::response_id(request_, start_, outcome);
        set_object(session, kResponseData, body);
        output = body["output"];
    } else {
        clear_object(session, kResponseData);
    }
    std::string all;
    for (const auto *list : {&names, &beginnings_}) {
        for (const std::string &name : *list) {
            all += name + "\n";
        }
    }
    set_data(session, kNamesData, all);
    engine_.sessions().keep(*model_, tenant_, std::move(choice.session), before_, names);
    if (!request_.kept.empty() && outcome.finish != api::Finish::left) {
        add_to_kept(api::with_reply(request_.conversation, choice.reply), output, outcome.id);
    }
    engine_.workers().post(
        [self = shared_from_this(), id = outcome.id] { self->name_beginnings(id); });
}

// The conversation becomes what the reply follows, and the reply, but for the instructions, which
// are each request's own. Its items have the ids that they have in the answer.
void Generation::add_to_kept(const api::Json &conversation, const api::Json &output,
                             const std::string &id) {
    api::Json messages = api::Json::array();
    for (const api::Json &message : conversation.at("messages")) {
        if (!message.contains("instructions")) {
            messages.push_back(message);
        }
    }
    kept_.record["messages"] = std::move(messages);
    api::give_item_ids(kept_.record, output);
    kept_.record["model"] = model_->identity();
    kept_.record["session"] = id;
    engine_.kept().replace(tenant_, kept_);
    claim_ = nullptr;
}

// The client has its reply and does not wait for this.
void Generation::name_beginnings(const std::string &id) {
    try {
        engine_.sessions().add_names(tenant_, id, beginnings_);
    } catch (const api::Refused &refused) {
        command::say("a beginning could not be named: " + refused.message);
    } catch (const std::exception &error) {
        command::say(std::string("a beginning could not be named: ") + error.what());
    }
}

// On a worker, after the last token.
void Generation::finish(Choice &choice) {
    const std::shared_ptr<Generation> self = std::move(choice.self);
    if (choice.call_end) { // whatever has ended it
        choice.status = STASIS_OK;
    }
    if (try_again(choice)) {
        return;
    }
    conclude(choice);
    choice.session = nullptr; // its memory is for those that wait
    model_->line().ended();
}

void Generation::conclude(Choice &choice) {
    try {
        const bool cut = choice.status == STASIS_CANCELLED || choice.status == STASIS_TIMEOUT;
        if (choice.status != STASIS_OK && !cut) {
            throw refusal(choice.status, choice.message.c_str());
        }
        if (gone_) {
            give_up(1);
            return;
        }
        finish_text(choice);
        if (cut && choice.drawn == 0) { // an unfinished prompt is not in the log
            throw refusal(choice.status, choice.message.c_str());
        }
        if (has_single_call()) {
            read_single_call(choice);
        } else {
            read_reply(choice, true);
        }
        const api::Outcome outcome = keep(choice);
        ++engine_.counts().replies;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failed_) {
            return;
        }
        begin_reply();
        const std::string piece = writer_->end(choice.index, choice.reply, outcome);
        --open_;
        if (open_ == 0) {
            leave();
        }
        if (request_.stream) {
            send(piece);
            if (open_ == 0) {
                exchange_->end();
            }
        } else if (open_ == 0) {
            exchange_->reply_changed(200, {{"content-type", "application/json"}}, piece);
        }
    } catch (const api::Refused &refused) {
        fail(refused);
    } catch (const std::exception &error) {
        fail({500, "server_error", error.what(), ""});
    }
}

// The others are of no use without this one.
void Generation::fail(const api::Refused &refused) {
    claim_ = nullptr;
    refuse(refused);
    cancel();
}

} // namespace serve
