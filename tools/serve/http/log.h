// The server's log: a JSON object a line, for programs to read. Never what requests and replies
// hold, and no keys.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/serve/http/server.h"

namespace serve::http {

class Log {
  public:
    // Writes to `file`, which outlives it: standard error, as a rule.
    explicit Log(std::FILE *file = stderr) : file_(file) {}

    // Writes how a request went: time, event "request", method, path (without the query, which may
    // hold secrets), status, bytes, seconds, peer, whole, and error if there is one. Any thread.
    void request(const Served &served);
    // Writes {"time": ..., "event": event, then the members of `more`}. Any thread. Bytes that are
    // no UTF-8 are shown as U+FFFD. What cannot be written is lost: a full disk stops no server.
    void event(std::string_view event, const nlohmann::ordered_json &more);

  private:
    std::FILE *const file_;
    std::mutex mutex_;
};

} // namespace serve::http
