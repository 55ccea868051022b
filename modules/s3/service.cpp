// Signing, trying again, refusing; see service.h.
#include "modules/s3/service.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

#include "modules/s3/sign.h"

namespace stasis_s3 {

namespace {

constexpr int kTries = 6;
constexpr int64_t kPauseMs = 100, kPauseMaxMs = 3000; // doubled after each try

std::optional<int64_t> read_date(const std::string &text, const char *format) {
    tm utc{};
    const char *const end = strptime(text.c_str(), format, &utc);
    return end == nullptr ? std::nullopt : std::optional<int64_t>(timegm(&utc));
}

// What the service says of a failure: "Code: Message", without what a terminal would obey.
std::string reason_of(const Answer &answer) {
    Element error;
    if (!read_xml(answer.text, error) || error.name != "Error") {
        return "";
    }
    std::string text(error.text_of("Code"));
    text += ": ";
    text += error.text_of("Message");
    text.resize(std::min<size_t>(text.size(), 200));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return text;
}

} // namespace

std::optional<int64_t> http_date(const std::string &text) {
    return read_date(text, "%a, %d %b %Y %H:%M:%S GMT");
}

std::optional<int64_t> xml_date(std::string_view text) {
    return read_date(std::string(text.substr(0, 19)), "%Y-%m-%dT%H:%M:%S");
}

void Service::prepare(const Question &question, Exchange &exchange) const {
    Signed request;
    request.method = question.method;
    request.path = settings_.base_path + (question.key.empty() ? "" : "/");
    request.path += encoded(question.key, true);
    request.path += request.path.empty() ? "/" : "";
    request.query = question.query;
    request.headers = question.headers;
    request.headers.emplace_back("host", settings_.host);
    request.body_digest = sha256_hex(question.body);
    // SeaweedFS takes a body that is cut off before its first byte, as by a kill of this process,
    // for an empty one, which is there whole; but not against this.
    if (std::string digest = question.body.empty() ? "" : md5_base64(question.body);
        !digest.empty()) {
        request.headers.emplace_back("content-md5", std::move(digest));
    }
    sign(request, settings_.credentials, settings_.region, "s3", ::time(nullptr) + ahead_);
    exchange = {};
    exchange.method = question.method;
    exchange.url = settings_.origin + request.path;
    exchange.url += question.query.empty() ? "" : "?" + question.query;
    exchange.headers = std::move(request.headers);
    exchange.body = question.body;
    exchange.into = question.into;
    exchange.text_max = question.text_max;
}

// Moves what was heard into the answer. False: to be asked again.
bool Service::settles(Exchange &exchange, Answer &answer) {
    const bool before = answer.repeated || exchange.begun > 1;
    answer = {exchange.status,
              exchange.received,
              std::move(exchange.text),
              std::move(exchange.etag),
              std::move(exchange.content_range),
              exchange.content_length,
              http_date(exchange.date).value_or(0),
              before};
    if (exchange.status == 0) {
        answer.text = exchange.problem;
        answer.repeated = before || exchange.sent;
        return false;
    }
    if (exchange.status >= 500 && exchange.status != 501 && exchange.status != 507) {
        answer.repeated = true;
        return false;
    }
    const std::string reason = exchange.status >= 400 ? reason_of(answer) : "";
    if (reason.starts_with("RequestTimeTooSkewed") && answer.date != 0) {
        ahead_ = answer.date - ::time(nullptr);
        return false;
    }
    return exchange.status != 429 && exchange.status != 408 &&
           !reason.starts_with("RequestTimeout") && !reason.starts_with("SlowDown");
}

// Waits longer after each try, and not as long as others who failed at the same moment.
void Service::pause(int tried) const {
    const auto moment = std::chrono::steady_clock::now().time_since_epoch().count();
    std::minstd_rand random(static_cast<uint32_t>(moment ^ reinterpret_cast<intptr_t>(&moment)));
    const int64_t whole = std::min(kPauseMaxMs, kPauseMs << tried);
    int64_t left = whole / 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(whole / 2));
    while (left > 0) {
        host_.look_around();
        const int64_t step = std::min<int64_t>(left, 10);
        std::this_thread::sleep_for(std::chrono::milliseconds(step));
        left -= step;
    }
}

std::vector<Answer> Service::ask(std::span<const Question> questions) {
    std::vector<Answer> answers(questions.size());
    std::vector<size_t> open(questions.size());
    for (size_t i = 0; i < open.size(); ++i) {
        open[i] = i;
    }
    for (int tried = 0; tried < kTries && !open.empty(); ++tried) {
        if (tried > 0) {
            pause(tried - 1);
        }
        std::vector<Exchange> exchanges(open.size());
        for (size_t i = 0; i < open.size(); ++i) {
            prepare(questions[open[i]], exchanges[i]);
        }
        http_.run(exchanges, host_);
        std::vector<size_t> again;
        for (size_t i = 0; i < open.size(); ++i) {
            if (!settles(exchanges[i], answers[open[i]])) {
                again.push_back(open[i]);
            }
        }
        open = std::move(again);
    }
    if (!open.empty()) {
        refuse(questions[open[0]], answers[open[0]]);
    }
    return answers;
}

Answer Service::ask(const Question &question) {
    return std::move(ask(std::span(&question, 1))[0]);
}

void Service::refuse(const Question &question, const Answer &answer) const {
    const std::string place = settings_.origin + settings_.base_path + "/" + question.key;
    if (answer.status == 0) {
        fail(STASIS_IO, "%s %s: %s", question.method, place.c_str(), answer.text.c_str());
    }
    const std::string reason = reason_of(answer);
    fail(STASIS_IO, "%s %s: HTTP status %ld%s%s", question.method, place.c_str(), answer.status,
         reason.empty() ? "" : ": ", reason.c_str());
}

} // namespace stasis_s3
