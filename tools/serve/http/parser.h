// Reads requests of HTTP/1.1 and 1.0 from bytes as they come. What is ambiguous is refused: two
// readers of the same bytes must not find different requests in them (request smuggling).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/serve/http/server.h"

namespace serve::http {

class Parser {
  public:
    // Of `limits` those in bytes, of heads and bodies.
    explicit Parser(const Limits &limits) : limits_(&limits) {}

    // Takes bytes until the request is whole or refused, and returns how many: the rest is of the
    // next request. How the bytes are cut into calls makes no difference. A body takes no memory
    // before its bytes come.
    size_t take(std::string_view bytes);

    bool begun() const { return begun_; } // a byte has come that is no empty line
    bool head_read() const { return stage_ > Stage::header; }
    bool whole() const { return stage_ == Stage::whole; }
    bool refused() const { return status_ != 0; }

    // The request as far as it has come, without `peer`.
    Request &request() { return request_; }
    bool http_1_0() const { return http_1_0_; }
    bool keep_alive() const { return keep_alive_; } // whether the client will send another one

    // Returns true once if the client waits for "100 Continue" before it sends the body.
    bool wants_continue();

    // Why it was refused: a status of HTTP, and a sentence.
    int status() const { return status_; }
    const std::string &reason() const { return reason_; }

  private:
    enum class Stage { request_line, header, sized, chunk_size, chunk, chunk_end, trailer, whole };

    size_t take_line(std::string_view bytes);
    size_t take_body(std::string_view bytes);
    void count_line(size_t bytes);
    void read_line(std::string_view line);
    void read_request_line(std::string_view line);
    void read_target(std::string_view target);
    void read_header(std::string_view line, bool keep);
    void read_connection(std::string_view value);
    void end_head();
    void read_length(std::string_view digits);
    void read_chunk_size(std::string_view line);

    const Limits *limits_;
    Stage stage_ = Stage::request_line;
    Request request_;
    std::string line_;      // begun and not ended
    size_t head_bytes_ = 0; // of the head and of trailers
    uint64_t left_ = 0;     // bytes of the body or chunk still to come
    bool begun_ = false, http_1_0_ = false, keep_alive_ = false, expects_ = false;
    int status_ = 0;
    std::string reason_;
};

} // namespace serve::http
