// Admits requests, and hears what the scheduler tells of them; see service.h.
#include "tools/serve/service.h"

#include <algorithm>

namespace serve {

using command::check;
using command::Failure;
using command::sized;

Service::Service(stasis_model *model, const std::vector<Request> &requests, const Limits &limits)
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
    auto options = sized<stasis_scheduler_options>();
    options.sessions_max = static_cast<uint32_t>(limits_.sessions_max);
    options.slice = limits_.slice;
    stasis_scheduler *scheduler = nullptr;
    check(stasis_scheduler_create(model_, &options, &scheduler, &error), error, "scheduler");
    scheduler_.reset(scheduler);
}

// Returns the bytes of a request's pages at its end, as if no layer had a window.
uint64_t Service::bytes_needed(const Request &request) const {
    const uint64_t pages = (request.prompt.size() + request.tokens_max + info_.page_positions - 1) /
                           info_.page_positions;
    return pages * info_.page_positions * info_.layers * 2 * info_.kv_heads * info_.head_dim *
           sizeof(uint16_t);
}

// Requests arrive after a number of passes, which go by without any while there is nothing to do.
void Service::let_arrive() {
    if (running_.empty() && waiting_.empty() && arrived_ < requests_.size() &&
        requests_[arrived_].arrival_step > pass_) {
        idle_ += requests_[arrived_].arrival_step - pass_;
        pass_ = requests_[arrived_].arrival_step;
    }
    while (arrived_ < requests_.size() && requests_[arrived_].arrival_step <= pass_) {
        waiting_.push_back(arrived_++);
    }
}

// Admits waiting requests in the order of their arrival.
void Service::admit() {
    while (!waiting_.empty() && running_.size() < limits_.sessions_max) {
        const size_t number = waiting_.front();
        const uint64_t bytes = bytes_needed(requests_[number]);
        if (bytes > budget_bytes_ - reserved_bytes_) {
            break;
        }
        stasis_error error{};
        stasis_session *session = nullptr;
        check(stasis_session_create(model_, nullptr, &session, &error), error, "session");
        running_[session] = {number, command::Session(session), bytes};
        submit(session, requests_[number]);
        replies_[number].admitted_step = pass_;
        reserved_bytes_ += bytes;
        waiting_.pop_front();
    }
    most_waiting_ = std::max(most_waiting_, waiting_.size());
}

void Service::submit(stasis_session *session, const Request &request) {
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
    auto prompt = sized<stasis_prompt>();
    prompt.tokens = request.prompt.data();
    prompt.token_count = request.prompt.size();
    stasis_error error{};
    check(stasis_session_set_sampling(session, &request.sampling, &error), error, "sampling");
    check(stasis_scheduler_submit(scheduler_.get(), session, &options, &prompt, &error), error,
          "submit");
}

bool Service::advance() {
    let_arrive();
    admit();
    if (running_.empty()) {
        return false;
    }
    stasis_scheduler_event *event = nullptr;
    stasis_error error{};
    check(stasis_scheduler_next(scheduler_.get(), nullptr, STASIS_FOREVER, &event, &error), error,
          "next");
    const std::unique_ptr<stasis_scheduler_event, command::Releaser<stasis_scheduler_event_free>>
        held(event);
    take(*event);
    return true;
}

void Service::take(const stasis_scheduler_event &event) {
    Running &running = running_.at(event.session);
    Reply &reply = replies_[running.request];
    pass_ = event.pass + idle_;
    reply.text.append(event.text, event.length);
    if (event.end != 0) {
        return end(running, event);
    }
    if (reply.tokens.empty()) {
        reply.first_token_step = pass_;
    } else {
        reply.longest_wait = std::max(reply.longest_wait, pass_ - reply.end_step);
    }
    reply.end_step = pass_;
    reply.tokens.push_back(event.token);
    if (reply.tokens.size() == requests_[running.request].leaves_after) {
        stasis_error error{};
        check(stasis_scheduler_cancel(scheduler_.get(), event.session, &error), error, "cancel");
    }
}

void Service::end(Running &running, const stasis_scheduler_event &event) {
    Reply &reply = replies_[running.request];
    reply.end_step = pass_;
    reply.end = event.status == STASIS_CANCELLED             ? End::left
                : event.status != STASIS_OK                  ? End::failed
                : event.stop_reason == STASIS_STOP_END_TOKEN ? End::token
                : event.stop_reason == STASIS_STOP_STRING    ? End::string
                                                             : End::length;
    reply.failure = reply.end == End::failed ? event.message : "";
    stasis_error error{};
    check(stasis_session_digest(event.session, &reply.digest, &error), error, "digest");
    auto stats = sized<stasis_model_stats>();
    check(stasis_model_get_stats(model_, &stats, &error), error, "model");
    kv_peak_bytes_ = std::max(kv_peak_bytes_, stats.kv_used_bytes);
    reserved_bytes_ -= running.reserved_bytes;
    running_.erase(event.session); // waiting requests can use its pages
}

stasis_scheduler_stats Service::stats() const {
    auto stats = sized<stasis_scheduler_stats>();
    stasis_error error{};
    check(stasis_scheduler_get_stats(scheduler_.get(), &stats, &error), error, "stats");
    return stats;
}

} // namespace serve
