// Bytes on their way to a client, on disk: a session's file may have gigabytes, and its reader any
// pace. Must not know what they are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tools/cli/handles.h"
#include "tools/serve/engine/routes.h"

namespace serve {

// A file without a name, in $TMPDIR or /var/tmp: it goes with this object, and with the process.
class Spool {
  public:
    Spool(); // throws api::Refused
    ~Spool();
    Spool(const Spool &) = delete;
    Spool &operator=(const Spool &) = delete;

    // Adds bytes. Throws api::Refused: there is no place on the disk.
    void write(std::string_view bytes);
    // Ends the writing.
    void finish();
    uint64_t size() const { return size_; }
    // Returns the bytes from `at` on, at most so many. Throws api::Refused.
    std::string read(uint64_t at, size_t most) const;
    // Opens the file as a snapshot, which is read as it is needed, while this object lives.
    command::Snapshot snapshot() const;

  private:
    int file_;
    uint64_t size_ = 0;
    std::string waiting_; // of `size_`, not written yet
};

// Sends what the spool has that `make` returns as a whole reply, in pieces for which the client's
// reading asks. Throws api::Refused, and does not call it: too many are on their way already; and
// what it throws.
void send_spooled(Engine &engine, const Call &call, const char *type,
                  const std::function<std::shared_ptr<const Spool>()> &make);

} // namespace serve
