// Stasis for C++20: options of calls that take long, and of sessions. Included by stasis.hpp.
#pragma once

#include <functional>
#include <optional>

#include "stasis/cancel.hpp"
#include "stasis/trace.hpp"

namespace stasis {

// Called from time to time with how far a call has come. An exception ends the call.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;
// Called with the logits of an appended position, which are valid until it returns.
using OnLogits = std::function<void(std::uint64_t position, std::span<const float> logits)>;
// Takes bytes of a snapshot, all of them.
using Sink = std::function<void(std::span<const std::byte> bytes)>;
// Fills a part of the space, at least one byte, and returns how many; 0 at the end.
using Source = std::function<std::size_t(std::span<std::byte> space)>;

// How a call computes positions. Nothing of it influences results.
struct RunOptions {
    std::uint32_t chunk = 0; // positions computed together; 0: chosen
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // positions of this call
    OnLogits logits = {};
};

enum class Track : std::uint32_t {
    Off = 0,
    Total = STASIS_TRACK_TOTAL,
    ByHead = STASIS_TRACK_BY_HEAD,
};

// Settings of a session, fixed when it is created: stasis_session_options.
struct SessionOptions {
    std::uint64_t capacity = 0;      // most positions; 0: the model's context
    std::uint64_t reserve = 0;       // positions whose memory is taken at once
    std::uint64_t window_retain = 0; // STASIS_WINDOW_RETAIN_NONE: none
    Track track_attention = Track::Off;
    std::uint64_t domain = STASIS_DOMAIN_COMMON;
};

enum class Codec : std::uint32_t {
    Default = STASIS_CODEC_DEFAULT,
    Raw = STASIS_CODEC_RAW,
    Zstd = STASIS_CODEC_ZSTD,
};
enum class Keep : std::uint32_t {
    Full = STASIS_KEEP_FULL,
    Nothing = STASIS_KEEP_NONE, // 14 bytes a token, and loading computes them again
};

struct SaveOptions {
    bool replace = false;     // the file, whatever it holds
    bool full_logits = false; // store the whole row with the hidden state
    bool if_match = false;    // only onto what this session loaded or saved: Error(Conflict)
    Codec codec = Codec::Default;
    Keep keep = Keep::Full;
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // bytes of keys and values
};

struct LoadOptions {
    bool no_recompute = false; // refuse a file without keys and values
    bool trusted = false;      // the file is one's own, or verified: its pages may be shared
    bool any_profile = false;
    bool accept_older = false; // the state before the last commit, if that one is damaged
    bool skip_known = false;   // pages that are in memory under their digests are not read
    std::optional<SessionOptions> session = {}; // without: as it was saved
    std::optional<Trace> trace = {};            // of the new session
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {}; // bytes of keys and values, or positions where it recomputes
};

namespace detail {

// A call with options that may be cancelled and report progress: their C struct, and the callback.
template <typename Options, typename Raw> struct CallWith : Call {
    explicit CallWith(const Options &options) : given(options) {
        raw.cancel = raw_of(given.cancel);
        raw.timeout_ms = raw_ms(given.timeout);
        if (given.progress) {
            raw.progress = [](void *user, std::uint64_t done, std::uint64_t total) {
                auto &call = *static_cast<CallWith *>(user);
                return call.run([&] { call.given.progress(done, total); });
            };
            raw.progress_user = this;
        }
    }
    CallWith(const CallWith &) = delete;
    CallWith &operator=(const CallWith &) = delete;

    const Options &given; // outlives the call
    Raw raw = sized<Raw>();
};

struct RunCall : CallWith<RunOptions, stasis_run_options> {
    explicit RunCall(const RunOptions &options) : CallWith(options) {
        raw.chunk = given.chunk;
        if (given.logits) {
            raw.logits = [](void *user, std::uint64_t position, const float *logits,
                            std::size_t count) {
                auto &call = *static_cast<RunCall *>(user);
                return call.run([&] { call.given.logits(position, {logits, count}); });
            };
            raw.logits_user = this;
        }
    }
};

struct SaveCall : CallWith<SaveOptions, stasis_save_options> {
    explicit SaveCall(const SaveOptions &options) : CallWith(options) {
        raw.flags = (given.replace ? STASIS_SAVE_REPLACE : 0) |
                    (given.full_logits ? STASIS_SAVE_FULL_LOGITS : 0) |
                    (given.if_match ? STASIS_SAVE_IF_MATCH : 0);
        raw.codec = static_cast<std::uint32_t>(given.codec);
        raw.keep = static_cast<std::uint32_t>(given.keep);
    }
};

inline stasis_session_options raw_of(const SessionOptions &options) noexcept {
    auto raw = sized<stasis_session_options>();
    raw.capacity = options.capacity;
    raw.reserve = options.reserve;
    raw.window_retain = options.window_retain;
    raw.track_attention = static_cast<std::uint32_t>(options.track_attention);
    raw.domain = options.domain;
    return raw;
}

struct LoadCall : CallWith<LoadOptions, stasis_load_options> {
    explicit LoadCall(const LoadOptions &options)
        : CallWith(options), session(raw_of(given.session.value_or(SessionOptions{}))) {
        raw.flags = (given.no_recompute ? STASIS_LOAD_NO_RECOMPUTE : 0) |
                    (given.trusted ? STASIS_LOAD_TRUSTED : 0) |
                    (given.any_profile ? STASIS_LOAD_ANY_PROFILE : 0) |
                    (given.accept_older ? STASIS_LOAD_ACCEPT_OLDER : 0) |
                    (given.skip_known ? STASIS_LOAD_SKIP_KNOWN : 0);
        raw.session = given.session ? &session : nullptr;
        if (given.trace) {
            listener = std::make_shared<Listener>(*given.trace);
            trace = listener->raw();
            raw.trace = &trace;
        }
    }

    stasis_session_options session;
    std::shared_ptr<Listener> listener; // without a trace: none
    stasis_trace_options trace{};
};

// A sink or source for the length of a call, which throws what that throws.
template <typename Function> struct Lent {
    Call &call;
    const Function &function;
};

inline stasis_sink raw_of(Lent<Sink> &sink) noexcept {
    auto raw = sized<stasis_sink>();
    raw.user = &sink;
    raw.write = [](void *user, const void *data, std::size_t size) {
        auto &lent = *static_cast<Lent<Sink> *>(user);
        return lent.call.run([&] { lent.function({static_cast<const std::byte *>(data), size}); });
    };
    return raw;
}

inline stasis_source raw_of(Lent<Source> &source) noexcept {
    auto raw = sized<stasis_source>();
    raw.user = &source;
    raw.read = [](void *user, void *data, std::size_t size) {
        auto &lent = *static_cast<Lent<Source> *>(user);
        std::int64_t count = -1;
        lent.call.run([&] {
            count =
                static_cast<std::int64_t>(lent.function({static_cast<std::byte *>(data), size}));
        });
        return count;
    };
    return raw;
}

// Returns a text for C. Throws Error(InvalidArgument) if it holds a zero, which would cut it.
inline const char *c_text(const std::string &text, const char *name) {
    if (text.find('\0') != std::string::npos) {
        throw Error(Status::InvalidArgument, std::string(name) + ": a zero byte in the text");
    }
    return text.c_str();
}

// The same of an option, where an empty text is none.
inline const char *c_option(const std::string &text, const char *name) {
    return text.empty() ? nullptr : c_text(text, name);
}

} // namespace detail
} // namespace stasis
