// Requests to the service as it wants them: signed, sent again while that helps, refused with what
// it says. Must not know what objects mean.
#pragma once

#include <atomic>
#include <optional>

#include "modules/s3/http.h"
#include "modules/s3/settings.h"
#include "modules/s3/xml.h"

namespace stasis_s3 {

// What is asked for. Names of headers in lower case.
struct Question {
    const char *method;
    std::string key;   // with the prefix; empty: the bucket
    std::string query; // encoded, its names in order
    std::vector<std::pair<std::string, std::string>> headers = {};
    std::span<const uint8_t> body = {};
    std::span<uint8_t> into = {};
    size_t text_max = 65536;
};

struct Answer {
    long status = 0;
    size_t received = 0; // bytes of `into` or `text`
    std::string text, etag, content_range;
    uint64_t content_length = 0;
    int64_t date = 0; // the service's clock, seconds since 1970; 0: not told
    // An earlier try may have done what was asked, and its answer was lost.
    bool repeated = false;
};

class Service {
  public:
    Service(const Settings &settings, const Host &host) : settings_(settings), host_(host) {}

    // Asks until there is an answer that is no passing trouble: at most 6 times, with pauses that
    // grow. Returns it, whatever its status; throws if there is none.
    Answer ask(const Question &question);
    // The same for several, side by side.
    std::vector<Answer> ask(std::span<const Question> questions);

    // Throws for an answer that nobody expects: its status, the service's code and message.
    [[noreturn]] void refuse(const Question &question, const Answer &answer) const;

    const Settings &settings() const { return settings_; }

  private:
    void prepare(const Question &question, Exchange &exchange) const;
    bool settles(Exchange &exchange, Answer &answer);
    void pause(int tried) const;

    const Settings settings_;
    const Host host_;
    Http http_;
    std::atomic<int64_t> ahead_{0}; // seconds that the service's clock is before ours
};

// Seconds since 1970 of "Thu, 26 Nov 2026 21:57:35 GMT", and of "2026-11-26T21:57:38.000Z".
std::optional<int64_t> http_date(const std::string &text);
std::optional<int64_t> xml_date(std::string_view text);

} // namespace stasis_s3
