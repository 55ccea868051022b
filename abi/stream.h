// The host's sinks and sources in the form that format/ takes, for the length of a call. Callbacks
// run in the host's own floating-point environment, and their results are checked. Must not know
// what the bytes mean.
#pragma once

#include "abi/boundary.h"
#include "abi/options.h"
#include "format/stream.h"

namespace stasis::abi {

class HostSink {
  public:
    HostSink(const Caller &caller, const stasis_sink *sink);
    // Returns a sink that refers to this object. Its write throws Error(io) if the host's fails.
    format::Sink sink() { return {this, write}; }

  private:
    static void write(void *user, const void *data, size_t size_bytes);

    const Caller &caller_;
    const stasis_sink given_;
    uint64_t done_ = 0; // bytes so far, for messages
};

class HostSource {
  public:
    HostSource(const Caller &caller, const stasis_source *source);
    // Returns a source that refers to this object. Its read throws Error(io) if the host's fails,
    // and Error(invalid_argument) if it claims more bytes than were asked for.
    format::Source source() { return {this, read}; }

  private:
    static size_t read(void *user, void *data, size_t size_bytes);

    const Caller &caller_;
    const stasis_source given_;
    uint64_t done_ = 0; // bytes so far, for messages
};

} // namespace stasis::abi
