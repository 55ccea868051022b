// Admission, and the end; see engine.h.
#include "tools/serve/engine/engine.h"

#include <algorithm>
#include <chrono>

namespace serve {

namespace {

// Those for replies wait for stores, and are as many as replies where these stand still. Slow ones
// compute.
constexpr size_t kWorkers = 4, kWorkersMost = 1024, kSlowWorkers = 2;
// Requests for what is stored that run at the same time; each has a worker if it must.
constexpr size_t kStored = 64;

} // namespace

Engine::Engine(std::vector<std::unique_ptr<ServedModel>> models, Store store,
               const EngineLimits &limits)
    : limits_(limits), models_(std::move(models)),
      sessions_(std::move(store), limits.live_max, limits.live_bytes),
      kept_(sessions_.store(), models_), slow_workers_(kSlowWorkers, kSlowWorkers),
      workers_(kWorkers, std::min(kWorkers + limits.running_max, kWorkersMost) + kStored),
      pinger_(limits.ping_ms), deadlines_(limits.timeout_ms) {}

ServedModel &Engine::model(const std::string &name) const {
    for (const std::unique_ptr<ServedModel> &model : models_) {
        if (name.empty() || model->name() == name) {
            return *model;
        }
    }
    throw api::Refused{404, "model_not_found",
                       "the model '" + name +
                           "' is not served here: GET /v1/models lists those "
                           "that are",
                       "model"};
}

void Engine::require_slow_place() const {
    constexpr size_t kWaiting = 64;
    if (slow_workers_.waiting() >= kWaiting) {
        throw api::Refused{429, "rate_limit_exceeded", "too many long requests wait already", ""};
    }
}

void Engine::finish() {
    workers_.finish(); // first: its work may be for the slow ones
    slow_workers_.finish();
}

void Engine::enter(stasis_cancel *request, size_t replies) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing()) {
        throw refusal(STASIS_CANCELLED, "");
    }
    if (running_ + replies > limits_.running_max) {
        throw api::Refused{429, "rate_limit_exceeded",
                           std::to_string(running_) + " replies run or wait already, of at most " +
                               std::to_string(limits_.running_max),
                           ""};
    }
    running_ += replies;
    requests_.insert(request);
}

void Engine::leave(size_t replies) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ -= replies;
}

void Engine::forget(stasis_cancel *request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.erase(request);
    changed_.notify_all();
}

void Engine::enter_stored() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stored_ == kStored) {
        throw api::Refused{429, "rate_limit_exceeded",
                           std::to_string(kStored) + " requests for what is stored run already",
                           ""};
    }
    ++stored_;
}

void Engine::leave_stored() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --stored_;
}

size_t Engine::stored() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stored_;
}

size_t Engine::running() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return running_;
}

void Engine::begin_sending() {
    constexpr size_t kSending = 128; // files
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sending_ >= kSending) {
        throw api::Refused{429, "rate_limit_exceeded",
                           std::to_string(kSending) + " exports and reports are sent already", ""};
    }
    ++sending_;
}

void Engine::end_sending() {
    const std::lock_guard<std::mutex> lock(mutex_);
    --sending_;
    changed_.notify_all();
}

size_t Engine::sending() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sending_;
}

size_t Engine::refuse_all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    return requests_.size();
}

bool Engine::close(uint32_t seconds) {
    constexpr uint32_t kLeast = 5; // for a pass to end, and a put
    std::unique_lock<std::mutex> lock(mutex_);
    const auto over = [this] { return requests_.empty(); };
    if (changed_.wait_for(lock, std::chrono::seconds(seconds),
                          [&] { return over() && sending_ == 0; })) {
        return true;
    }
    for (stasis_cancel *request : requests_) {
        stasis_cancel_request(request);
    }
    return changed_.wait_for(lock, std::chrono::seconds(std::max(seconds, kLeast)), over);
}

} // namespace serve
