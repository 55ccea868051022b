// The host's sinks and sources as the format takes them, for the length of a call: callbacks run in
// the host's own environment, and what they say is checked.
#pragma once

#include "abi/boundary.h"
#include "abi/options.h"
#include "format/stream.h"

namespace stasis::abi {

class HostSink {
  public:
    HostSink(const Caller &caller, const stasis_sink *sink);
    format::Sink sink() { return {this, write}; }

  private:
    static void write(void *user, const void *data, size_t size_bytes);

    const Caller &caller_;
    const stasis_sink given_;
    uint64_t done_ = 0;
};

class HostSource {
  public:
    HostSource(const Caller &caller, const stasis_source *source);
    format::Source source() { return {this, read}; }

  private:
    static size_t read(void *user, void *data, size_t size_bytes);

    const Caller &caller_;
    const stasis_source given_;
    uint64_t done_ = 0;
};

} // namespace stasis::abi
