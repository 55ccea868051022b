// The computing thread of a model; see served_model.h.
#include "tools/serve/engine/served_model.h"

#include <chrono>

#include "tools/cli/terminal.h"

namespace serve {

api::Refused refusal(stasis_status status, const char *message) {
    switch (status) {
    case STASIS_FULL:
        return {400, "context_length_exceeded", message, "messages"};
    case STASIS_INVALID_ARGUMENT:
    case STASIS_UNSUPPORTED:
    case STASIS_NO_TOKEN:
        return {400, "invalid_request_error", message, ""};
    case STASIS_NOT_FOUND:
        return {404, "not_found", message, ""};
    case STASIS_POOL_EXHAUSTED:
    case STASIS_NO_MEMORY:
        return {503, "overloaded", std::string("no memory is left for this session: ") + message,
                ""};
    case STASIS_TIMEOUT:
        return {504, "timeout", message, ""};
    case STASIS_CANCELLED:
        return {503, "cancelled", "the server is shutting down", ""};
    case STASIS_IO:
    case STASIS_CORRUPT: // paths and keys are the server's own
        command::say(message);
        return {500, "server_error", "the store failed; the server's log says why", ""};
    default:
        return {500, "server_error", std::string(message) + " (" + stasis_status_name(status) + ")",
                ""};
    }
}

void require(stasis_status status, const stasis_error &error) {
    if (status != STASIS_OK) {
        throw refusal(status, error.message);
    }
}

command::Cancel make_cancel() {
    stasis_cancel *cancel = nullptr;
    stasis_error error{};
    require(stasis_cancel_create(&cancel, &error), error);
    return command::Cancel(cancel);
}

ServedModel::ServedModel(std::string name, command::Model model, uint32_t sessions_max)
    : name_(std::move(name)), model_(std::move(model)) {
    info_.struct_size = sizeof info_;
    stasis_error error{};
    command::check(stasis_model_get_info(model_.get(), &info_, &error), error, name_);
    identity_ = command::hex(info_.model);
    auto options = command::sized<stasis_scheduler_options>();
    options.sessions_max = sessions_max;
    options.events_max = UINT32_MAX; // they are fetched as they come
    stasis_scheduler *made = nullptr;
    command::check(stasis_scheduler_create(model_.get(), &options, &made, &error), error, name_);
    scheduler_.reset(made);
    thread_ = std::thread([this] { compute(); });
}

ServedModel::~ServedModel() {
    stasis_scheduler_stop(scheduler_.get());
    thread_.join();
}

void ServedModel::compute() {
    while (true) {
        stasis_scheduler_event *event = nullptr;
        stasis_error error{};
        const stasis_status status =
            stasis_scheduler_next(scheduler_.get(), nullptr, STASIS_FOREVER, &event, &error);
        if (status == STASIS_CANCELLED) {
            return;
        }
        if (event == nullptr) { // a whole pass failed: memory, a device; nothing is lost
            command::say(name_ + ": " + error.message);
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            continue;
        }
        static_cast<Listener *>(event->user)->hear(*event);
        stasis_scheduler_event_free(event);
    }
}

void ServedModel::submit(stasis_session *session, stasis_generate_options options,
                         const stasis_prompt &prompt, Listener &listener) {
    options.callback_user = &listener;
    stasis_error error{};
    require(stasis_scheduler_submit(scheduler_.get(), session, &options, &prompt, &error), error);
}

void ServedModel::cancel(const stasis_session *session) {
    stasis_error error{};
    stasis_scheduler_cancel(scheduler_.get(), session, &error); // NOT_FOUND: it has ended
}

stasis_scheduler_stats ServedModel::stats() const {
    auto stats = command::sized<stasis_scheduler_stats>();
    stasis_error error{};
    command::check(stasis_scheduler_get_stats(scheduler_.get(), &stats, &error), error, name_);
    return stats;
}

stasis_model_stats ServedModel::memory() const {
    auto stats = command::sized<stasis_model_stats>();
    stasis_error error{};
    command::check(stasis_model_get_stats(model_.get(), &stats, &error), error, name_);
    return stats;
}

} // namespace serve
