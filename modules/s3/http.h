// Requests over HTTP by libcurl, and the connections that are kept for the next ones. Must not know
// what is asked for.
#pragma once

#include <curl/curl.h>

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "modules/s3/failure.h"

namespace stasis_s3 {

// A request and its answer. It stays where it is while it runs.
struct Exchange {
    std::string method, url;
    std::vector<std::pair<std::string, std::string>> headers; // names in lower case
    std::span<const uint8_t> body;
    std::span<uint8_t> into; // where the body of an answer 206 goes
    size_t text_max = 65536; // of any other answer's body, which goes to `text`

    long status = 0;   // 0: no answer, and `problem` says why
    bool sent = false; // without an answer: the service may have done what was asked
    int begun = 0; // times that it was sent: libcurl itself sends again on a lost old connection
    size_t received = 0;
    std::string text, etag, date, content_range, problem;
    uint64_t content_length = 0;
};

// Connections are kept in lanes; a call has one to itself, and runs its requests side by side.
class Http {
  public:
    Http();

    // Runs all of them to their ends. Throws if the host ends the call.
    void run(std::span<Exchange> exchanges, const Host &host);

  private:
    struct Lane;
    struct Close {
        void operator()(Lane *lane) const;
    };
    using OwnLane = std::unique_ptr<Lane, Close>;

    OwnLane take();
    void give_back(OwnLane lane);

    const pid_t process_;
    const std::string authorities_; // whose certificates are believed; "": libcurl knows them
    std::mutex mutex_;
    std::vector<OwnLane> idle_;
};

} // namespace stasis_s3
