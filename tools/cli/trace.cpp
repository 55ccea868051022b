// Trace events as JSON lines; see trace.h. A line that cannot be written does not end the call:
// finish() reports it.
#include "tools/cli/trace.h"

#include <cerrno>
#include <cstring>

#include "tools/cli/terminal.h"

namespace command {

namespace {

const char *name_of(uint32_t kind) {
    static const char *const names[] = {"held",     "taken", "shared", "copied", "filled",
                                        "released", "read",  "append", "undone", "rewind",
                                        "evict",    "fork",  "save",   "load"};
    return kind >= STASIS_TRACE_HELD && kind <= STASIS_TRACE_LOAD ? names[kind - 1] : "unknown";
}

Json line_of(const stasis_trace_event &event) {
    Json line = {{"event", name_of(event.kind)}};
    if (event.group != STASIS_TRACE_ALL_GROUPS) {
        line["group"] = event.group;
        line["window"] = event.window;
    }
    line["begin"] = event.begin;
    line["end"] = event.end;
    line["bytes"] = event.bytes;
    const stasis_digest none{};
    if (std::memcmp(&event.digest, &none, sizeof none) != 0) {
        line["digest"] = hex(event.digest);
    }
    return line;
}

} // namespace

Recorder::Recorder(const std::string &path, bool reads)
    : path_(path), reads_(reads), file_(std::fopen(path.c_str(), "w")) {
    if (!file_) {
        throw Failure("--trace: " + path_ + ": " + std::strerror(errno));
    }
}

stasis_trace_options Recorder::options() {
    stasis_trace_options options;
    stasis_trace_options_init(&options, sizeof options);
    options.flags = reads_ ? STASIS_TRACE_READS : 0;
    options.callback = hear;
    options.user = this;
    return options;
}

void Recorder::finish() {
    if (error_ == 0 && std::fflush(file_.get()) != 0) {
        error_ = errno;
    }
    if (error_ != 0) {
        throw Failure("--trace: " + path_ + ": " + std::strerror(error_));
    }
}

void Recorder::hear(void *user, const stasis_trace_event *event) noexcept {
    Recorder &self = *static_cast<Recorder *>(user);
    if (self.error_ != 0) {
        return;
    }
    try {
        const std::string line = line_of(*event).dump() + "\n";
        if (std::fwrite(line.data(), 1, line.size(), self.file_.get()) != line.size()) {
            self.error_ = errno;
        }
    } catch (...) {
        self.error_ = ENOMEM;
    }
}

} // namespace command
