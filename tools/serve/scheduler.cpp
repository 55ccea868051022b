// Continuous batching; see scheduler.h.
#include "tools/serve/scheduler.h"

#include <algorithm>

namespace serve {

using command::check;
using command::Failure;
using command::sized;

namespace {

std::string text_of(const stasis_session *session, uint64_t begin, uint64_t end) {
    return command::fetch_text(
        [&](char *text, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_session_text(session, begin, end, text, capacity, length, error);
        },
        "text");
}

// Returns where the first complete stop string begins, the longest of several that end there; npos
// if none is complete.
size_t find_stop(const std::string &text, const std::vector<std::string> &stops) {
    size_t first = std::string::npos, first_end = std::string::npos;
    for (const std::string &stop : stops) {
        const size_t at = text.find(stop);
        const size_t end = at == std::string::npos ? at : at + stop.size();
        if (end < first_end || (end == first_end && at < first)) {
            first = at;
            first_end = end;
        }
    }
    return first;
}

bool holds(const stasis_token *tokens, size_t count, stasis_token token) {
    return std::find(tokens, tokens + count, token) != tokens + count;
}

} // namespace

Scheduler::Scheduler(stasis_model *model, const std::vector<Request> &requests,
                     const Limits &limits)
    : model_(model), requests_(requests), limits_(limits), replies_(requests.size()) {
    stasis_error error{};
    info_ = sized<stasis_model_info>();
    check(stasis_model_get_info(model_, &info_, &error), error, "model");
    auto stats = sized<stasis_model_stats>();
    check(stasis_model_get_stats(model_, &stats, &error), error, "model");
    budget_bytes_ = stats.kv_budget_bytes;
    for (const Request &request : requests_) {
        if (bytes_needed(request) > budget_bytes_) {
            throw Failure("a request needs " + std::to_string(bytes_needed(request)) +
                          " bytes of keys and values, more than the whole budget");
        }
    }
}

// Returns the bytes of a request's pages at its end, as if no layer had a window.
uint64_t Scheduler::bytes_needed(const Request &request) const {
    const uint64_t pages = (request.prompt.size() + request.tokens_max + info_.page_positions - 1) /
                           info_.page_positions;
    return pages * info_.page_positions * info_.layers * 2 * info_.kv_heads * info_.head_dim *
           sizeof(uint16_t);
}

void Scheduler::let_arrive() {
    while (arrived_ < requests_.size() && requests_[arrived_].arrival_step <= totals_.steps) {
        waiting_.push_back(arrived_++);
    }
}

// Admits waiting requests in the order of their arrival.
void Scheduler::admit() {
    while (!waiting_.empty() && running_.size() < limits_.sessions_max) {
        const Request &request = requests_[waiting_.front()];
        const uint64_t bytes = bytes_needed(request);
        if (bytes > budget_bytes_ - reserved_bytes_) {
            break;
        }
        stasis_error error{};
        stasis_session *session = nullptr;
        check(stasis_session_create(model_, nullptr, &session, &error), error, "session");
        running_.push_back({waiting_.front(), command::Session(session), bytes});
        check(stasis_session_set_sampling(session, &request.sampling, &error), error, "sampling");
        replies_[waiting_.front()].admitted_step = totals_.steps;
        reserved_bytes_ += bytes;
        waiting_.pop_front();
    }
    totals_.most_waiting = std::max(totals_.most_waiting, waiting_.size());
}

// Plans a step: one token of each session whose prompt is complete, then pieces of prompts, the
// oldest first.
void Scheduler::plan() {
    items_.clear(), item_of_.clear(), tokens_.clear();
    size_t left = limits_.step_tokens_max;
    for (const bool decodes : {true, false}) {
        for (size_t i = 0; i < running_.size() && left > 0; ++i) {
            Running &running = running_[i];
            const std::vector<stasis_token> &prompt = requests_[running.request].prompt;
            const size_t missing = prompt.size() - running.appended;
            if ((missing == 0) != decodes) {
                continue;
            }
            const size_t count = std::min(missing, left);
            auto item = sized<stasis_step_item>();
            item.session = running.session.get();
            item.begin = tokens_.size();
            item.count = count;
            item.flags = count == missing ? STASIS_STEP_SAMPLE : 0;
            const auto from = prompt.begin() + static_cast<std::ptrdiff_t>(running.appended);
            tokens_.insert(tokens_.end(), from, from + static_cast<std::ptrdiff_t>(count));
            items_.push_back(item);
            item_of_.push_back(i);
            left -= std::max<size_t>(count, 1);
        }
    }

    // Pointers to errors are set after the vector has its final size.
    errors_.resize(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
        items_[i].error = &errors_[i];
    }
}

void Scheduler::compute() {
    stasis_error error{};
    check(stasis_sessions_step(items_.data(), sizeof items_[0], items_.size(), tokens_.data(),
                               tokens_.size(), nullptr, &error),
          error, "step");
    const bool decoded = !items_.empty() && items_.front().count == 0;
    totals_.mixed_steps += decoded && !tokens_.empty() ? 1 : 0;
    totals_.most_together = std::max(totals_.most_together, items_.size());
    totals_.prompt_tokens += tokens_.size();
    auto stats = sized<stasis_model_stats>();
    check(stasis_model_get_stats(model_, &stats, &error), error, "model");
    totals_.kv_peak_bytes = std::max(totals_.kv_peak_bytes, stats.kv_used_bytes);
}

void Scheduler::end(Running &running, End end) {
    Reply &reply = replies_[running.request];
    reply.end = end;
    reply.end_step = totals_.steps;
    stasis_error error{};
    check(stasis_session_digest(running.session.get(), &reply.digest, &error), error, "digest");
    running.session.reset(); // waiting requests can use its pages
    reserved_bytes_ -= running.reserved_bytes;
}

// Records the result of a step for one session.
void Scheduler::take(Running &running, const stasis_step_item &item, const stasis_error &error) {
    const Request &request = requests_[running.request];
    Reply &reply = replies_[running.request];
    if (item.status != STASIS_OK) {
        reply.failure = error.message;
        return end(running, End::failed);
    }
    running.appended += item.count;
    reply.chunks += item.count != 0 ? 1 : 0;
    if ((item.flags & STASIS_STEP_SAMPLE) == 0) {
        return;
    }
    if (reply.tokens.empty()) {
        reply.first_token_step = totals_.steps;
    }
    reply.tokens.push_back(item.token);
    ++totals_.new_tokens;

    // The text so far, without the token that stops the reply.
    const uint64_t begin = request.prompt.size(), last = begin + reply.tokens.size() - 1;
    const bool stopped = holds(info_.end_tokens, info_.end_token_count, item.token) ||
                         holds(request.stop_tokens.data(), request.stop_tokens.size(), item.token);
    if ((info_.flags & STASIS_MODEL_TOKENIZER) != 0) {
        reply.text = text_of(running.session.get(), begin, stopped ? last : last + 1);
    }

    // Reasons to end, the first that applies.
    const size_t stop = find_stop(reply.text, request.stop_strings);
    if (stopped) {
        end(running, End::token);
    } else if (stop != std::string::npos) {
        reply.text.resize(stop);
        end(running, End::string);
    } else if (reply.tokens.size() == request.leaves_after) {
        end(running, End::left);
    } else if (reply.tokens.size() == request.tokens_max) {
        end(running, End::length);
    }
}

bool Scheduler::step() {
    let_arrive();
    admit();
    plan();
    compute();
    ++totals_.steps;
    for (size_t i = 0; i < items_.size(); ++i) {
        take(running_[item_of_[i]], items_[i], errors_[i]);
    }
    std::erase_if(running_, [](const Running &running) { return running.session == nullptr; });
    return arrived_ < requests_.size() || !waiting_.empty() || !running_.empty();
}

} // namespace serve
