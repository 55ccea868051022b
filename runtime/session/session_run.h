// Generation on a device, where tokens are drawn: the device computes and draws several tokens in a
// row, and the session takes them one at a time, each as a decoded one. What it computed beyond the
// last token that is taken leaves no trace.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/compute/device/run.h"
#include "runtime/session/session.h"

namespace stasis {

class TokenRun {
  public:
    // Whether a generation of that session may go like this.
    static bool possible(const Session &session, const GenerateOptions &options);

    explicit TokenRun(Session &session);
    ~TokenRun() { drop(); }
    TokenRun(const TokenRun &) = delete;
    TokenRun &operator=(const TokenRun &) = delete;

    // As Session::decode. `most`: tokens that may come, this one included.
    uint32_t decode(uint64_t most);

  private:
    uint32_t first_token();
    bool try_run(uint64_t most);
    void forget() noexcept;
    void drop() noexcept;

    Session &session_;
    WorkspaceLease work_;
    DeviceRun run_;
    std::vector<TokenEntry> rows_; // computed; the first is drawn, the others are the run's tokens
    size_t taken_ = 0;             // rows that are in the timeline
    size_t length_ = 1;            // of the latest run: the next one is twice as long
};

} // namespace stasis
