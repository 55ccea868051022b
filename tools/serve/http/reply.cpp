// See reply.h.
#include "tools/serve/http/reply.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace serve::http {
namespace {

// Returns the name or value with what would end its line replaced: texts of models and of clients
// get into headers.
std::string on_one_line(std::string_view text) {
    std::string result(text);
    std::replace_if(
        result.begin(), result.end(),
        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
    return result;
}

bool same_name(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
        return std::tolower(static_cast<unsigned char>(x)) ==
               std::tolower(static_cast<unsigned char>(y));
    });
}

bool has_no_body(int status) {
    return status == 204 || status == 304;
}

std::string date_now() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    static constexpr const char *kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char *kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    char text[64]; // not strftime, whose names follow the locale
    std::snprintf(text, sizeof text, "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                  utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                  utc.tm_sec);
    return text;
}

} // namespace

const char *status_words(int status) {
    static constexpr std::pair<int, const char *> kWords[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
        {529, "Overloaded"},
    };
    for (const auto &[known, words] : kWords) {
        if (known == status) {
            return words;
        }
    }
    return status < 400 ? "OK" : "Error";
}

std::string error_text(int status, std::string_view reason) {
    const char *type = status >= 500 ? "api_error" : "invalid_request_error";
    const nlohmann::ordered_json text = {
        {"type", "error"}, {"error", {{"type", type}, {"message", reason}, {"code", status}}}};
    return text.dump() + "\n";
}

void give_piece(Exchange &exchange, uint64_t &at, uint64_t length, std::string piece) {
    at += piece.size();
    const bool last = at == length; // known before others may move it
    exchange.write(std::move(piece));
    if (last) {
        exchange.end();
    }
}

void Reply::append_head(int status, const Headers &headers, bool with_length, uint64_t length) {
    if (status < 200 || status > 599) {
        throw std::invalid_argument("the status of a reply is from 200 to 599");
    }
    status_ = status;
    std::string head = "HTTP/1.1 " + std::to_string(status) + " " + status_words(status) + "\r\n";
    head += "Date: " + date_now() + "\r\n";
    for (const auto &[name, value] : headers) {
        if (!same_name(name, "content-length") && !same_name(name, "transfer-encoding") &&
            !same_name(name, "connection") && !same_name(name, "date")) {
            head += on_one_line(name) + ": " + on_one_line(value) + "\r\n";
        }
    }
    if (!has_no_body(status)) {
        chunked_ = !with_length && !form_.http_1_0;
        head += with_length ? "Content-Length: " + std::to_string(length) + "\r\n"
                : chunked_  ? "Transfer-Encoding: chunked\r\n"
                            : "";
    }
    // Without a length the client of HTTP/1.0 reads until the connection ends.
    form_.keep_alive = form_.keep_alive && (with_length || chunked_ || has_no_body(status));
    head += !form_.keep_alive ? "Connection: close\r\n"
            : form_.http_1_0  ? "Connection: keep-alive\r\n"
                              : "";
    append(head + "\r\n");
}

// Adds bytes for the client, unless nobody reads them. Called with the lock.
void Reply::append(std::string_view bytes) {
    if (!gone_) {
        out_.append(bytes);
        set_waiting(waiting_ + bytes.size());
    }
}

void Reply::set_waiting(size_t bytes) {
    all_waiting_->fetch_add(uint64_t{bytes} - std::exchange(waiting_, bytes));
}

// Tells the server's thread that there is something to take. Called with the lock.
void Reply::tell() {
    if (!told_) {
        mailbox_->post(shared_from_this());
        told_ = true;
    }
}

void Reply::append_whole(int status, const Headers &headers, std::string_view body) {
    append_head(status, headers, true, body.size());
    if (!form_.head_only && !has_no_body(status)) {
        append(body);
    }
}

void Reply::whole(int status, const Headers &headers, std::string_view body, bool changed) {
    std::vector<std::function<void()>> callbacks; // destroyed without the lock
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::fresh) {
        throw std::logic_error("a request gets one reply");
    }
    if (!changed && body.size() > kSmallBody && *all_waiting_ + body.size() > all_max_) {
        const std::string why = error_text(503, "replies that clients have not read exceed " +
                                                    std::to_string(all_max_) + " bytes");
        append_whole(503, {{"Content-Type", "application/json"}, {"Retry-After", "1"}}, why);
    } else {
        append_whole(status, headers, body);
    }
    stage_ = Stage::ended;
    std::swap(callbacks, callbacks_);
    tell();
}

void Reply::begin(int status, const Headers &headers) {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::fresh) {
        throw std::logic_error("a request gets one reply");
    }
    append_head(status, headers, false, 0);
    stage_ = Stage::begun;
    tell();
}

void Reply::begin_asked(int status, const Headers &headers, uint64_t length,
                        std::function<void()> more) {
    const std::lock_guard lock(mutex_); // before `more`, which a gone client's reply drops
    if (stage_ != Stage::fresh) {
        throw std::logic_error("a request gets one reply");
    }
    append_head(status, headers, true, length);
    stage_ = form_.head_only || has_no_body(status) || length == 0 ? Stage::ended : Stage::begun;
    ungiven_ = length;
    if (!gone_ && stage_ == Stage::begun) {
        more_ = std::move(more);
    }
    tell();
}

void Reply::write(std::string_view piece) {
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::begun) {
        throw std::logic_error("pieces stand between the begin and the end of a reply");
    }
    if (more_ && piece.size() > ungiven_) {
        throw std::logic_error("a piece is behind the length of its reply");
    }
    ungiven_ -= more_ ? piece.size() : 0;
    asked_ = false;
    if (gone_ || form_.head_only || has_no_body(status_) || piece.empty()) {
        return;
    }
    if (waiting_ > backlog_max_ || (waiting_ > kSmallBody && *all_waiting_ > all_max_)) {
        gone_ = overrun_ = true;
        out_ = {};
        set_waiting(0);
    } else if (chunked_) {
        char size[20];
        std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
        append(size);
        append(piece);
        append("\r\n");
    } else {
        append(piece);
    }
    tell();
}

void Reply::end() {
    std::vector<std::function<void()>> callbacks;
    std::function<void()> more;
    const std::lock_guard lock(mutex_);
    if (stage_ != Stage::begun) {
        throw std::logic_error("a reply that was not begun, or has ended, cannot end");
    }
    if (more_ && ungiven_ > 0 && !gone_) {
        throw std::logic_error("a reply ends before its length");
    }
    std::swap(more, more_);
    if (chunked_ && !form_.head_only) {
        append("0\r\n\r\n");
    }
    stage_ = Stage::ended;
    std::swap(callbacks, callbacks_);
    tell();
}

size_t Reply::backlog() const {
    const std::lock_guard lock(mutex_);
    return waiting_;
}

bool Reply::gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
}

void Reply::on_gone(std::function<void()> callback) {
    {
        const std::lock_guard lock(mutex_);
        if (stage_ == Stage::ended) {
            return;
        }
        if (!left_) { // also of a client that was given up: the server's thread will tell
            callbacks_.push_back(std::move(callback));
            return;
        }
    }
    callback();
}

void Reply::drop() {
    std::unique_lock lock(mutex_);
    if (stage_ == Stage::fresh) {
        lock.unlock();
        whole(500, {{"Content-Type", "application/json"}}, error_text(500, "the server failed"));
        return;
    }
    if (stage_ == Stage::begun) {
        std::vector<std::function<void()>> callbacks;
        std::function<void()> more;
        cut_ = true;
        stage_ = Stage::ended;
        std::swap(callbacks, callbacks_);
        std::swap(more, more_);
        tell();
        lock.unlock(); // before the callbacks are destroyed
    }
}

Reply::Taken Reply::take() {
    const std::lock_guard lock(mutex_);
    told_ = false;
    return {std::exchange(out_, {}), stage_ == Stage::ended, cut_, overrun_};
}

void Reply::sent(size_t bytes) {
    std::function<void()> more;
    {
        const std::lock_guard lock(mutex_);
        set_waiting(waiting_ - std::min(waiting_, bytes));
        // Not behind the last piece, whose giver has not called `end` yet.
        if (waiting_ == 0 && more_ && ungiven_ > 0 && !std::exchange(asked_, true)) {
            more = more_;
        }
    }
    if (more) {
        more();
    }
}

void Reply::leave() {
    std::vector<std::function<void()>> callbacks;
    std::function<void()> more;
    {
        const std::lock_guard lock(mutex_);
        gone_ = left_ = true;
        out_ = {};
        set_waiting(0);
        std::swap(callbacks, callbacks_);
        std::swap(more, more_);
    }
    for (const auto &callback : callbacks) {
        callback();
    }
}

void Reply::close_after() {
    const std::lock_guard lock(mutex_);
    form_.keep_alive = false;
}

bool Reply::made() const {
    const std::lock_guard lock(mutex_);
    return stage_ == Stage::ended || more_;
}

int Reply::status() const {
    const std::lock_guard lock(mutex_);
    return status_;
}

bool Reply::keep_alive() const {
    const std::lock_guard lock(mutex_);
    return form_.keep_alive;
}

bool Reply::cut_needs_reset() const {
    const std::lock_guard lock(mutex_);
    return cut_ && !chunked_;
}

} // namespace serve::http
