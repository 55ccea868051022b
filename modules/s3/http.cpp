// Requests by libcurl; see http.h.
#include "modules/s3/http.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace stasis_s3 {

namespace {

constexpr long kConnectMs = 10'000; // until a connection stands
constexpr long kStallSeconds = 30;  // without a byte in either direction
constexpr int kLookMs = 20;         // between two looks whether the call should end
constexpr size_t kIdleMax = 16;     // lanes kept

[[noreturn]] void fail_curl(const char *what) {
    fail(STASIS_IO, "s3: libcurl: %s", what);
}

template <typename Value> void set(CURL *easy, CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(easy, option, value);
    if (code != CURLE_OK) {
        fail_curl(curl_easy_strerror(code));
    }
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
        text.remove_suffix(1);
    }
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    return text;
}

size_t hear_header(char *data, size_t, size_t count, void *user) noexcept {
    auto &exchange = *static_cast<Exchange *>(user);
    const std::string_view line(data, count);
    const size_t colon = line.find(':');
    if (colon == line.npos) {
        return count;
    }
    const std::string_view value = trimmed(line.substr(colon + 1));
    const auto is = [&](std::string_view name) {
        return name.size() == colon && ::strncasecmp(name.data(), line.data(), colon) == 0;
    };
    try {
        if (is("etag")) {
            exchange.etag = value;
        } else if (is("date")) {
            exchange.date = value;
        } else if (is("content-range")) {
            exchange.content_range = value;
        } else if (is("content-length")) {
            std::from_chars(value.data(), value.data() + value.size(), exchange.content_length);
        }
    } catch (const std::exception &) {
        return 0;
    }
    return count;
}

// Takes bytes of an answer. Another number than it is given ends the transfer.
size_t take_body(char *data, size_t, size_t count, void *user) noexcept {
    auto &exchange = *static_cast<Exchange *>(user);
    if (exchange.status == 206) {
        if (count > exchange.into.size() - exchange.received) {
            return 0;
        }
        std::memcpy(exchange.into.data() + exchange.received, data, count);
    } else if (count > exchange.text_max - exchange.text.size()) {
        return 0;
    } else {
        try {
            exchange.text.append(data, count);
        } catch (const std::exception &) {
            return 0;
        }
    }
    exchange.received += count;
    return count;
}

int count_begun(void *user, char *, char *, int, int) noexcept {
    static_cast<Exchange *>(user)->begun += 1;
    return CURL_PREREQFUNC_OK;
}

// A request's body, which may be sent again from its beginning.
struct Upload {
    Exchange *exchange = nullptr;
    size_t sent = 0;
};

size_t give_body(char *data, size_t, size_t room, void *user) noexcept {
    auto &upload = *static_cast<Upload *>(user);
    const size_t count = std::min(room, upload.exchange->body.size() - upload.sent);
    std::memcpy(data, upload.exchange->body.data() + upload.sent, count);
    upload.sent += count;
    return count;
}

int rewind_body(void *user, curl_off_t offset, int origin) noexcept {
    auto &upload = *static_cast<Upload *>(user);
    if (origin != SEEK_SET || offset < 0 ||
        static_cast<uint64_t>(offset) > upload.exchange->body.size()) {
        return CURL_SEEKFUNC_FAIL;
    }
    upload.sent = static_cast<size_t>(offset);
    return CURL_SEEKFUNC_OK;
}

struct FreeHeaders {
    void operator()(curl_slist *list) const { curl_slist_free_all(list); }
};

// One easy handle, and what it refers to while it runs.
struct Line {
    CURL *easy = nullptr;
    Exchange *exchange = nullptr;
    Upload upload;
    std::unique_ptr<curl_slist, FreeHeaders> headers;
    char problem[CURL_ERROR_SIZE] = {};
    bool running = false;
};

size_t take_body_first(char *data, size_t size, size_t count, void *user) noexcept {
    auto &line = *static_cast<Line *>(user);
    curl_easy_getinfo(line.easy, CURLINFO_RESPONSE_CODE, &line.exchange->status);
    return take_body(data, size, count, line.exchange);
}

void add_header(Line &line, const std::string &text) {
    curl_slist *const longer = curl_slist_append(line.headers.get(), text.c_str());
    if (longer == nullptr) {
        fail(STASIS_NO_MEMORY, "s3: an allocation failed");
    }
    line.headers.release();
    line.headers.reset(longer);
}

// Where systems keep the certificates of those whom they believe: Debian, Fedora and RHEL,
// openSUSE, Alpine and Arch.
constexpr const char *kAuthorities[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

// A system's libcurl knows the place. The one in a wheel was built for no system (tools/wheel): it
// is told what SSL_CERT_FILE names, as Python's own TLS is, or else the first that is there.
std::string find_authorities() {
    CURL *const easy = curl_easy_init();
    if (easy == nullptr) {
        fail(STASIS_NO_MEMORY, "s3: an allocation failed");
    }
    char *file = nullptr, *folder = nullptr;
    curl_easy_getinfo(easy, CURLINFO_CAINFO, &file);
    curl_easy_getinfo(easy, CURLINFO_CAPATH, &folder);
    const bool known = file != nullptr || folder != nullptr;
    curl_easy_cleanup(easy);
    if (known) {
        return "";
    }
    if (const char *given = std::getenv("SSL_CERT_FILE"); given != nullptr && *given != '\0') {
        return given;
    }
    const auto *found = std::find_if(std::begin(kAuthorities), std::end(kAuthorities),
                                     [](const char *path) { return ::access(path, R_OK) == 0; });
    return found != std::end(kAuthorities) ? *found : "";
}

void prepare(Line &line, Exchange &exchange, const std::string &authorities) {
    CURL *const easy = line.easy;
    curl_easy_reset(easy); // connections stay
    line.exchange = &exchange;
    line.upload = {&exchange, 0};
    line.headers.reset();
    line.problem[0] = '\0';
    set(easy, CURLOPT_URL, exchange.url.c_str());
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    set(easy, CURLOPT_PATH_AS_IS, 1L);
    set(easy, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(easy, CURLOPT_USERAGENT, "stasis");
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    set(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(easy, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
    set(easy, CURLOPT_ERRORBUFFER, line.problem);
    set(easy, CURLOPT_PREREQFUNCTION, count_begun);
    set(easy, CURLOPT_PREREQDATA, &exchange);
    set(easy, CURLOPT_HEADERFUNCTION, hear_header);
    set(easy, CURLOPT_HEADERDATA, &exchange);
    set(easy, CURLOPT_WRITEFUNCTION, take_body_first);
    set(easy, CURLOPT_WRITEDATA, &line);
    if (exchange.method == "PUT") {
        set(easy, CURLOPT_UPLOAD, 1L);
        set(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(exchange.body.size()));
        set(easy, CURLOPT_READFUNCTION, give_body);
        set(easy, CURLOPT_READDATA, &line.upload);
        set(easy, CURLOPT_SEEKFUNCTION, rewind_body);
        set(easy, CURLOPT_SEEKDATA, &line.upload);
    } else if (exchange.method == "HEAD") {
        set(easy, CURLOPT_NOBODY, 1L);
    } else if (exchange.method != "GET") {
        set(easy, CURLOPT_CUSTOMREQUEST, exchange.method.c_str());
    }
    for (const auto &[name, value] : exchange.headers) {
        if (name != "host") { // which libcurl makes of the URL, as it is signed
            add_header(line, name + ": " + value);
        }
    }
    add_header(line, "Expect:"); // no wait for leave to send
    set(easy, CURLOPT_HTTPHEADER, line.headers.get());
    if (!authorities.empty()) {
        set(easy, CURLOPT_CAINFO, authorities.c_str());
    }
}

void finish(Line &line, CURLcode code) {
    Exchange &exchange = *line.exchange;
    curl_easy_getinfo(line.easy, CURLINFO_RESPONSE_CODE, &exchange.status);
    if (code != CURLE_OK) {
        exchange.status = 0;
        exchange.sent = code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_COULDNT_CONNECT &&
                        code != CURLE_SSL_CONNECT_ERROR && code != CURLE_PEER_FAILED_VERIFICATION;
        exchange.problem = line.problem[0] != '\0' ? line.problem : curl_easy_strerror(code);
    }
}

} // namespace

struct Http::Lane {
    CURLM *multi = nullptr;
    std::vector<std::unique_ptr<Line>> lines;

    // No transfer stays, whatever ended the call.
    void stop() {
        for (const auto &line : lines) {
            if (line->running) {
                curl_multi_remove_handle(multi, line->easy);
                line->running = false;
            }
        }
    }
};

void Http::Close::operator()(Lane *lane) const {
    lane->stop();
    for (const auto &line : lane->lines) {
        curl_easy_cleanup(line->easy);
    }
    curl_multi_cleanup(lane->multi);
    delete lane;
}

Http::Http() : process_(::getpid()), authorities_(find_authorities()) {
    idle_.reserve(kIdleMax);
}

Http::OwnLane Http::take() {
    if (::getpid() != process_) { // its connections are the parent's
        fail(STASIS_UNSUPPORTED, "s3: a child of fork() must open the store itself");
    }
    {
        const std::lock_guard held(mutex_);
        if (!idle_.empty()) {
            OwnLane lane = std::move(idle_.back());
            idle_.pop_back();
            return lane;
        }
    }
    OwnLane lane(new Lane);
    lane->multi = curl_multi_init();
    if (lane->multi == nullptr) {
        fail(STASIS_NO_MEMORY, "s3: an allocation failed");
    }
    curl_multi_setopt(lane->multi, CURLMOPT_MAXCONNECTS, 8L);
    return lane;
}

void Http::give_back(OwnLane lane) {
    const std::lock_guard held(mutex_);
    if (idle_.size() < kIdleMax) {
        idle_.push_back(std::move(lane)); // its memory was reserved
    }
}

void Http::run(std::span<Exchange> exchanges, const Host &host) {
    OwnLane lane = take();
    while (lane->lines.size() < exchanges.size()) {
        auto line = std::make_unique<Line>();
        line->easy = curl_easy_init();
        if (line->easy == nullptr) {
            fail(STASIS_NO_MEMORY, "s3: an allocation failed");
        }
        Line *const made = line.get();
        try {
            lane->lines.push_back(std::move(line));
        } catch (const std::bad_alloc &) {
            curl_easy_cleanup(made->easy);
            throw;
        }
    }
    for (size_t i = 0; i < exchanges.size(); ++i) {
        Line &line = *lane->lines[i];
        prepare(line, exchanges[i], authorities_);
        if (curl_multi_add_handle(lane->multi, line.easy) != CURLM_OK) {
            fail_curl("a transfer cannot be added");
        }
        line.running = true;
    }
    for (size_t left = exchanges.size(); left > 0;) {
        int running = 0, waiting = 0;
        if (curl_multi_perform(lane->multi, &running) != CURLM_OK) {
            fail_curl("the transfers cannot go on");
        }
        while (const CURLMsg *message = curl_multi_info_read(lane->multi, &waiting)) {
            if (message->msg != CURLMSG_DONE) {
                continue;
            }
            for (size_t i = 0; i < exchanges.size(); ++i) {
                Line &line = *lane->lines[i];
                if (line.easy == message->easy_handle) {
                    const CURLcode code = message->data.result;
                    finish(line, code);
                    curl_multi_remove_handle(lane->multi, line.easy);
                    line.running = false;
                    --left;
                    break;
                }
            }
        }
        host.look_around();
        if (left > 0 && curl_multi_poll(lane->multi, nullptr, 0, kLookMs, nullptr) != CURLM_OK) {
            fail_curl("the transfers cannot be waited for");
        }
    }
    give_back(std::move(lane));
}

} // namespace stasis_s3
