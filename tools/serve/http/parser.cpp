// The reader of requests; see parser.h. It follows RFC 9112, and where that leaves a choice,
// refuses.
#include "tools/serve/http/parser.h"

#include <algorithm>

namespace serve::http {
namespace {

constexpr size_t kChunkLineMax = 1024; // the size of a chunk with its extensions
constexpr size_t kDigitsMax = 15;      // of a length, beyond which every limit is passed

struct Refusal {
    int status;
    std::string reason;
};

char lower(char byte) {
    return byte >= 'A' && byte <= 'Z' ? char(byte + ('a' - 'A')) : byte;
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(), [](char c) { return lower(c); });
    return result;
}

bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

bool is_token(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char byte) {
        return is_digit(byte) || (lower(byte) >= 'a' && lower(byte) <= 'z') ||
               (byte != 0 && std::string_view("!#$%&'*+-.^_`|~").find(byte) != std::string::npos);
    });
}

// Returns whether it has no control character but tabs: none of them has a meaning here.
bool is_text(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
    });
}

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    return first == std::string_view::npos
               ? std::string_view()
               : text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

// Returns the digit's value, or 16.
unsigned hex_digit(char byte) {
    const char c = lower(byte);
    return is_digit(c) ? unsigned(c - '0') : c >= 'a' && c <= 'f' ? unsigned(c - 'a') + 10 : 16;
}

std::string percent_decoded(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            result += text[i];
            continue;
        }
        const unsigned high = i + 2 < text.size() ? hex_digit(text[i + 1]) : 16;
        const unsigned low = i + 2 < text.size() ? hex_digit(text[i + 2]) : 16;
        if (high > 15 || low > 15) {
            throw Refusal{400, "a '%' in the path is not followed by two hexadecimal digits"};
        }
        if (high == 0 && low == 0) {
            throw Refusal{400, "the path holds a NUL"};
        }
        result += static_cast<char>(high << 4 | low);
        i += 2;
    }
    return result;
}

} // namespace

size_t Parser::take(std::string_view bytes) {
    size_t taken = 0;
    try {
        while (taken < bytes.size() && stage_ != Stage::whole && status_ == 0) {
            const std::string_view rest = bytes.substr(taken);
            const bool data = stage_ == Stage::sized || stage_ == Stage::chunk;
            taken += data ? take_body(rest) : take_line(rest);
        }
    } catch (const Refusal &refusal) {
        status_ = refusal.status;
        reason_ = refusal.reason;
    }
    return taken;
}

bool Parser::wants_continue() {
    const bool waits = expects_ && request_.body.empty() && line_.empty() &&
                       (stage_ == Stage::sized || stage_ == Stage::chunk_size);
    expects_ = expects_ && !waits;
    return waits;
}

size_t Parser::take_line(std::string_view bytes) {
    const char first = bytes[0];
    if (stage_ == Stage::request_line && line_.empty()) {
        if (first != '\r' && first != '\n' && !is_token(bytes.substr(0, 1))) {
            begun_ = true;
            throw Refusal{400, "this is no request of HTTP"};
        }
    }
    const size_t newline = bytes.find('\n');
    const size_t count = newline == std::string_view::npos ? bytes.size() : newline + 1;
    count_line(count);
    begun_ = true;
    line_.append(bytes.substr(0, count));
    if (newline == std::string_view::npos) {
        return count;
    }
    if (line_.size() < 2 || line_[line_.size() - 2] != '\r') {
        throw Refusal{400, "a line ends with a line feed alone"};
    }
    const std::string line = std::move(line_);
    line_ = {};
    read_line(std::string_view(line).substr(0, line.size() - 2));
    return count;
}

// Throws Refusal if that many bytes more are too many for where they stand.
void Parser::count_line(size_t bytes) {
    if (stage_ == Stage::chunk_end && line_.size() + bytes > 2) {
        throw Refusal{400, "a chunk is longer than its size says"};
    }
    if (stage_ == Stage::chunk_size && line_.size() + bytes > kChunkLineMax) {
        throw Refusal{400, "the line before a chunk is too long"};
    }
    if (stage_ == Stage::chunk_size || stage_ == Stage::chunk_end) {
        return;
    }
    if (bytes > limits_->header_bytes - head_bytes_) {
        begun_ = true;
        const std::string limit = std::to_string(limits_->header_bytes);
        throw stage_ == Stage::request_line
            ? Refusal{414, "the request line is longer than " + limit + " bytes"}
            : Refusal{431, "the headers are longer than " + limit + " bytes"};
    }
    head_bytes_ += bytes;
}

void Parser::read_line(std::string_view line) {
    if (!is_text(line)) {
        throw Refusal{400, "a line of the head holds a control character"};
    }
    switch (stage_) {
    case Stage::request_line:
        if (line.empty()) { // some clients send one after a body
            begun_ = false;
            return;
        }
        read_request_line(line);
        stage_ = Stage::header;
        break;
    case Stage::header:
        line.empty() ? end_head() : read_header(line, true);
        break;
    case Stage::chunk_size:
        read_chunk_size(line);
        break;
    case Stage::chunk_end:
        if (!line.empty()) {
            throw Refusal{400, "a chunk is longer than its size says"};
        }
        stage_ = Stage::chunk_size;
        break;
    case Stage::trailer:
        if (line.empty()) {
            stage_ = Stage::whole;
        } else {
            read_header(line, false);
        }
        break;
    case Stage::sized:
    case Stage::chunk:
    case Stage::whole: // have no lines
        break;
    }
}

void Parser::read_request_line(std::string_view line) {
    const size_t first = line.find(' '), last = line.rfind(' ');
    if (first == std::string_view::npos || first == last ||
        line.find(' ', first + 1) != last) { // blanks only between the three parts
        throw Refusal{400, "the request line is not METHOD TARGET VERSION"};
    }
    const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
    if (!is_token(method)) {
        throw Refusal{400, "the method is no word"};
    }
    if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || !is_digit(version[5]) ||
        version[6] != '.' || !is_digit(version[7])) {
        throw Refusal{400, "the request line does not end with a version of HTTP"};
    }
    request_.method = method;
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
        throw Refusal{505, "this server speaks HTTP/1.1"};
    }
    http_1_0_ = version == "HTTP/1.0";
    keep_alive_ = !http_1_0_;
    read_target(line.substr(first + 1, last - first - 1));
}

void Parser::read_target(std::string_view target) {
    const auto bad = [](char byte) { return byte <= ' ' || byte > '~' || byte == '#'; };
    if (target.empty() || std::any_of(target.begin(), target.end(), bad)) {
        throw Refusal{400, "the target holds a character that must be percent-encoded"};
    }
    if (target == "*" && request_.method == "OPTIONS") {
        request_.path = "*";
        return;
    }
    if (target[0] != '/') { // as to a proxy: with the scheme and the host
        const size_t authority = lower(target.substr(0, 8)) == "https://"  ? 8
                                 : lower(target.substr(0, 7)) == "http://" ? 7
                                                                           : 0;
        const size_t end = std::min(target.find_first_of("/?", authority), target.size());
        if (authority == 0 || end == authority) {
            throw Refusal{400, "the target does not begin with '/'"};
        }
        target = target.substr(end);
    }
    const size_t query = std::min(target.find('?'), target.size());
    request_.path = query == 0 ? "/" : percent_decoded(target.substr(0, query));
    request_.query = target.substr(std::min(query + 1, target.size()));
}

void Parser::read_header(std::string_view line, bool keep) {
    if (line[0] == ' ' || line[0] == '\t') {
        throw Refusal{400, "a header is folded over several lines"};
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
        throw Refusal{400, "a line of the head is not NAME: VALUE"};
    }
    if (keep) {
        request_.headers.emplace_back(lower(line.substr(0, colon)),
                                      trimmed(line.substr(colon + 1)));
    }
}

void Parser::read_connection(std::string_view value) {
    while (!value.empty()) {
        const size_t comma = std::min(value.find(','), value.size());
        const std::string word = lower(trimmed(value.substr(0, comma)));
        if (word == "close") {
            keep_alive_ = false;
            return; // whatever else it says
        }
        keep_alive_ = keep_alive_ || (word == "keep-alive");
        value = value.substr(std::min(comma + 1, value.size()));
    }
}

// What follows the head is decided here, from headers that may each occur once.
void Parser::end_head() {
    const std::string *length = nullptr, *coding = nullptr;
    size_t hosts = 0, lengths = 0, codings = 0;
    std::string connection;
    for (const auto &[name, value] : request_.headers) {
        if (name == "content-length") {
            length = &value, ++lengths;
        } else if (name == "transfer-encoding") {
            coding = &value, ++codings;
        } else if (name == "host") {
            ++hosts;
        } else if (name == "connection") {
            connection += "," + value;
        } else if (name == "expect" && !http_1_0_) {
            if (lower(value) != "100-continue") {
                throw Refusal{417, "this server expects nothing but 100-continue"};
            }
            expects_ = true;
        }
    }
    read_connection(connection);
    if (hosts > 1 || (hosts == 0 && !http_1_0_)) {
        throw Refusal{400, "a request has one header Host"};
    }
    if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0)) {
        throw Refusal{400, "the length of the body is given twice"};
    }
    if (codings > 0) {
        if (http_1_0_) {
            throw Refusal{400, "HTTP/1.0 has no Transfer-Encoding"};
        }
        if (lower(*coding) != "chunked") {
            throw Refusal{501, "the only Transfer-Encoding here is chunked"};
        }
        stage_ = Stage::chunk_size;
    } else {
        read_length(lengths > 0 ? std::string_view(*length) : "0");
        stage_ = left_ > 0 ? Stage::sized : Stage::whole;
    }
}

void Parser::read_length(std::string_view digits) {
    if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) {
        throw Refusal{400, "Content-Length is no number"};
    }
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    for (const char digit : digits.substr(0, kDigitsMax)) {
        left_ = left_ * 10 + uint64_t(digit - '0');
    }
    if (digits.size() > kDigitsMax || left_ > limits_->body_bytes) {
        throw Refusal{413,
                      "the body is longer than " + std::to_string(limits_->body_bytes) + " bytes"};
    }
}

void Parser::read_chunk_size(std::string_view line) {
    const size_t end = std::min(line.find(';'), line.size()); // extensions mean nothing here
    const std::string_view digits = line.substr(0, end);
    left_ = 0;
    for (const char digit : digits.substr(0, kDigitsMax)) {
        if (hex_digit(digit) > 15) {
            throw Refusal{400, "the size of a chunk is no hexadecimal number"};
        }
        left_ = left_ << 4 | hex_digit(digit);
    }
    if (digits.empty()) {
        throw Refusal{400, "a chunk has no size"};
    }
    if (digits.size() > kDigitsMax || left_ > limits_->body_bytes - request_.body.size()) {
        throw Refusal{413,
                      "the body is longer than " + std::to_string(limits_->body_bytes) + " bytes"};
    }
    stage_ = left_ > 0 ? Stage::chunk : Stage::trailer;
}

size_t Parser::take_body(std::string_view bytes) {
    const size_t count = std::min<uint64_t>(left_, bytes.size());
    request_.body.append(bytes.substr(0, count));
    left_ -= count;
    if (left_ == 0) {
        stage_ = stage_ == Stage::sized ? Stage::whole : Stage::chunk_end;
    }
    return count;
}

} // namespace serve::http
