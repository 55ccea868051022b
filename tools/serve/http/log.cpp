// See log.h.
#include "tools/serve/http/log.h"

#include <chrono>
#include <cmath>
#include <ctime>

namespace serve::http {
namespace {

// Returns the time as RFC 3339 has it, in UTC, with milliseconds.
std::string time_now() {
    using namespace std::chrono;
    const auto now = system_clock::now().time_since_epoch();
    const std::time_t seconds = duration_cast<std::chrono::seconds>(now).count();
    const int thousandths = static_cast<int>(duration_cast<milliseconds>(now).count() % 1000);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char text[80];
    std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900,
                  utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, thousandths);
    return text;
}

} // namespace

void Log::request(const Served &served) {
    nlohmann::ordered_json more = {{"method", served.method},
                                   {"path", served.path},
                                   {"status", served.status},
                                   {"bytes", served.bytes},
                                   {"seconds", std::round(served.seconds * 1e6) / 1e6},
                                   {"peer", served.peer},
                                   {"whole", served.whole}};
    if (!served.error.empty()) {
        more["error"] = served.error;
    }
    event("request", more);
}

void Log::event(std::string_view event, const nlohmann::ordered_json &more) {
    nlohmann::ordered_json object = {{"time", time_now()}, {"event", event}};
    object.update(more);
    const std::string line =
        object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(mutex_); // lines of several threads stay whole
    std::fwrite(line.data(), 1, line.size(), file_);
    std::fflush(file_);
}

} // namespace serve::http
