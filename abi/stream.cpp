// Callbacks of the host's sinks and sources; see stream.h. Must not know what the bytes mean.
#include "abi/stream.h"

namespace stasis::abi {

HostSink::HostSink(const Caller &caller, const stasis_sink *sink)
    : caller_(caller), given_((require(sink, "sink"), read_struct(sink, "sink"))) {
    require_zero(given_.reserved, "sink");
    require(reinterpret_cast<const void *>(given_.write), "sink.write");
}

void HostSink::write(void *user, const void *data, size_t size_bytes) {
    HostSink &self = *static_cast<HostSink *>(user);
    const int32_t answer =
        self.caller_.lend([&] { return self.given_.write(self.given_.user, data, size_bytes); });
    if (answer != 0) {
        fail(Status::io, "the sink refused %zu bytes at byte %llu: it returned %d", size_bytes,
             Number{self.done_}, answer);
    }
    self.done_ += size_bytes;
}

HostSource::HostSource(const Caller &caller, const stasis_source *source)
    : caller_(caller), given_((require(source, "source"), read_struct(source, "source"))) {
    require_zero(given_.reserved, "source");
    require(reinterpret_cast<const void *>(given_.read), "source.read");
}

size_t HostSource::read(void *user, void *data, size_t size_bytes) {
    HostSource &self = *static_cast<HostSource *>(user);
    const int64_t count =
        self.caller_.lend([&] { return self.given_.read(self.given_.user, data, size_bytes); });
    if (count < 0) {
        fail(Status::io, "the source failed at byte %llu: it returned %lld", Number{self.done_},
             static_cast<long long>(count));
    }
    if (static_cast<uint64_t>(count) > size_bytes) {
        fail(Status::invalid_argument,
             "the source returned %lld at byte %llu: it was asked for %zu bytes",
             static_cast<long long>(count), Number{self.done_}, size_bytes);
    }
    self.done_ += static_cast<uint64_t>(count);
    return static_cast<size_t>(count);
}

} // namespace stasis::abi
