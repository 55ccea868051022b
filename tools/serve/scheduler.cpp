// Continuous batching; see scheduler.h.
#include "tools/serve/scheduler.h"

#include <algorithm>

namespace serve {

using command::check;
using command::Failure;
using command::sized;

namespace {

command::TextStream make_text(const stasis_model *model, const Request &request) {
    std::vector<const char *> strings;
    for (const std::string &string : request.stop_strings) {
        strings.push_back(string.c_str());
    }
    auto options = sized<stasis_generate_options>();
    options.tokens_max = request.tokens_max;
    options.stop_tokens = request.stop_tokens.data();
    options.stop_token_count = request.stop_tokens.size();
    options.stop_strings = strings.data();
    options.stop_string_count = strings.size();
    stasis_text_stream *stream = nullptr;
    stasis_error error{};
    check(stasis_text_stream_create(model, &options, &stream, &error), error, "text");
    return command::TextStream(stream);
}

End end_of(uint32_t stop_reason) {
    return stop_reason == STASIS_STOP_END_TOKEN ? End::token
           : stop_reason == STASIS_STOP_STRING  ? End::string
                                                : End::length;
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
        running_.push_back(
            {waiting_.front(), command::Session(session), make_text(model_, request), bytes});
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

    if (const End reason = hear(running, item.token); reason != End::none) {
        end(running, reason);
    }
}

// Adds the text of a token to the reply. Returns why the reply ends with it; none: it does not.
End Scheduler::hear(Running &running, stasis_token token) {
    Reply &reply = replies_[running.request];
    auto piece = sized<stasis_text_piece>();
    stasis_error error{};
    check(stasis_text_stream_push(running.text.get(), token, &piece, &error), error, "text");
    reply.text.append(piece.text, piece.length);
    const bool leaves = reply.tokens.size() == requests_[running.request].leaves_after;
    if (piece.stopped == 0 && !leaves) {
        return End::none;
    }
    check(stasis_text_stream_finish(running.text.get(), &piece, &error), error, "text");
    reply.text.append(piece.text, piece.length); // what was held back
    return piece.stopped != 0 ? end_of(piece.stop_reason) : End::left;
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
