// Stasis for C++20: what a saved session holds, and its proof. Included by stasis.hpp.
#pragma once

#include <algorithm>
#include <filesystem>
#include <istream>
#include <ostream>

#include "stasis/backend.hpp"
#include "stasis/model.hpp"

namespace stasis {

using SnapshotInfo = stasis_snapshot_info;
using Difference = stasis_difference;
using VerifyReport = stasis_verify_report;

// Where a token of a log came from.
enum class TokenSource : std::uint8_t {
    Prompt = STASIS_SOURCE_PROMPT,
    Template = STASIS_SOURCE_TEMPLATE,
    Text = STASIS_SOURCE_TEXT,
    Sampled = STASIS_SOURCE_SAMPLED,
};

// Whose turn a token belongs to.
enum class Role : std::uint32_t {
    None = STASIS_ROLE_NONE,
    System = STASIS_ROLE_SYSTEM,
    User = STASIS_ROLE_USER,
    Assistant = STASIS_ROLE_ASSISTANT,
    Other = STASIS_ROLE_OTHER,
};

// `role` is a Role, and `source` a TokenSource.
using Turn = stasis_turn;

// A name of a host's data, and the bytes under it; how much there may be.
using DataEntry = stasis_data_entry;
inline constexpr std::size_t kDataNameMax = STASIS_DATA_NAME_MAX;
inline constexpr std::size_t kDataEntriesMax = STASIS_DATA_ENTRIES_MAX;
inline constexpr std::size_t kDataBytesMax = STASIS_DATA_BYTES_MAX;

// The Big 8 + 4 of a session's state.
enum class Element : std::uint32_t {
    KvCache = 1,
    TokenEmbeddings,
    PositionalState,
    InputTokenBuffer,
    AttentionMask,
    ModelConfigSnapshot,
    LayerNormState,
    AttentionModuleWeights,
    Logits,
    TokenizerState,
    KvFormatVersion,
    PromptInjectionMeta,
};

// What Snapshot::verify throws if something differs: the status is Diverged, and the report says
// where.
class Diverged : public Error {
  public:
    Diverged(const std::string &message, const VerifyReport &report)
        : Error(Status::Diverged, message), report_(report) {}
    const VerifyReport &report() const noexcept { return report_; }

  private:
    VerifyReport report_;
};

// What Snapshot::verify computes: the whole log, or an audit of some pages.
struct VerifyOptions {
    std::uint32_t chunk = 0;
    double audit_percent = 0;     // share of the pages; 0: the whole log
    std::uint64_t audit_seed = 0; // to be chosen after the file was made
    bool strict = false;          // check all checksums of the file first
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // positions
};

namespace detail {

inline std::vector<TokenSource> sources_of(const std::vector<std::uint8_t> &raw) {
    std::vector<TokenSource> sources;
    for (const std::uint8_t each : raw) {
        sources.push_back(static_cast<TokenSource>(each));
    }
    return sources;
}

// Streams as sources and sinks. One that fails without an exception of its own ends the call with
// Error(Io).
inline Source source_of(std::istream &from) {
    return [&from](std::span<std::byte> space) {
        from.read(reinterpret_cast<char *>(space.data()),
                  static_cast<std::streamsize>(space.size()));
        if (from.bad()) {
            throw Error(Status::Io, "reading the stream failed");
        }
        return static_cast<std::size_t>(from.gcount());
    };
}
inline Sink sink_of(std::ostream &to) {
    return [&to](std::span<const std::byte> bytes) {
        to.write(reinterpret_cast<const char *>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
        if (!to) {
            throw Error(Status::Io, "writing to the stream failed");
        }
    };
}

} // namespace detail

// A saved state, opened without its model. It keeps what it was opened with, whatever is saved to
// the file later.
class Snapshot {
  public:
    explicit Snapshot(const std::filesystem::path &path) {
        const char *name = detail::c_text(path.native(), "the path");
        detail::Call call;
        open(call,
             [&](stasis_snapshot **to) { return stasis_snapshot_open(name, to, call.error()); });
    }
    static Snapshot read(const Source &source) {
        detail::Call call;
        detail::Lent<Source> lent{call, source};
        const stasis_source given = detail::raw_of(lent);
        Snapshot made;
        made.open(call, [&](stasis_snapshot **to) {
            return stasis_snapshot_open_source(&given, to, call.error());
        });
        return made;
    }
    static Snapshot read(std::istream &from) { return read(detail::source_of(from)); }

    SnapshotInfo info() const {
        auto info = detail::sized<SnapshotInfo>();
        detail::call(failures_, [&](stasis_error *error) {
            return stasis_snapshot_get_info(raw(), &info, error);
        });
        return info;
    }
    Digest digest() const { return info().digest; }
    // Returns an element as a JSON object.
    std::string element(Element element) const {
        return detail::filled<std::string>(failures_, 0, [&](auto... place) {
            return stasis_snapshot_element(raw(), static_cast<std::uint32_t>(element), place...);
        });
    }
    // Both return what stands from `begin` to the end.
    std::vector<Token> tokens(std::uint64_t begin = 0) const {
        return detail::filled<std::vector<Token>>(failures_, 256, [&](Token *data, auto... place) {
            return stasis_snapshot_tokens(raw(), begin, data, nullptr, place...);
        });
    }
    std::vector<TokenSource> sources(std::uint64_t begin = 0) const {
        return detail::sources_of(detail::filled<std::vector<std::uint8_t>>(
            failures_, 256, [&](std::uint8_t *data, auto... place) {
                return stasis_snapshot_tokens(raw(), begin, nullptr, data, place...);
            }));
    }
    // Returns the turns of the log from the one that position `begin` is in.
    std::vector<Turn> turns(std::uint64_t begin = 0) const {
        return detail::filled<std::vector<Turn>>(failures_, 16, [&](Turn *turns, auto... place) {
            return stasis_snapshot_turns(raw(), begin, turns, sizeof *turns, place...);
        });
    }
    // Returns the names of the data that the session had, and the bytes under one of them. Throws
    // Error(NotFound) if it is not there.
    std::vector<DataEntry> list_data() const {
        return detail::filled<std::vector<DataEntry>>(
            failures_, 8, [&](DataEntry *entries, auto... place) {
                return stasis_snapshot_list_data(raw(), entries, sizeof *entries, place...);
            });
    }
    std::vector<std::byte> data(const std::string &name) const {
        const char *own = detail::c_text(name, "the name");
        return detail::filled<std::vector<std::byte>>(failures_, 256, [&](auto... place) {
            return stasis_snapshot_get_data(raw(), own, place...);
        });
    }
    // Returns the first difference from another state; none: they are equal.
    std::optional<Difference> compare(const Snapshot &other) const {
        auto difference = detail::sized<Difference>();
        detail::call(failures_, [&](stasis_error *error) {
            return stasis_snapshot_compare(raw(), other.raw(), &difference, error);
        });
        return difference.equal != 0 ? std::nullopt : std::optional(difference);
    }
    // Computes the log again and compares every bit. Throws Diverged, with the report, if something
    // differs: a report that is returned says `verified`.
    VerifyReport verify(const Model &model, const VerifyOptions &options = {}) const {
        detail::CallWith<VerifyOptions, stasis_verify_options> call(options);
        call.raw.chunk = options.chunk;
        call.raw.audit_percent = options.audit_percent;
        call.raw.audit_seed = options.audit_seed;
        call.raw.flags = options.strict ? STASIS_VERIFY_STRICT : 0;
        auto report = detail::sized<VerifyReport>();
        const stasis_status status =
            stasis_snapshot_verify(raw(), model.raw(), &call.raw, &report, call.error());
        if (status == STASIS_DIVERGED) {
            throw Diverged(call.error()->message, report);
        }
        if (failures_) {
            failures_->rethrow(status, call.error()->message);
        }
        call.check(status);
        return report;
    }

    // For calls of the C interface; null after a move.
    stasis_snapshot *raw() const noexcept { return handle_.get(); }

  private:
    friend class Store;
    Snapshot() = default;
    template <typename Function> void open(detail::Call &call, const Function &function) {
        stasis_snapshot *raw = nullptr;
        const stasis_status status = function(&raw);
        handle_.reset(raw);
        call.check(status);
    }

    std::shared_ptr<detail::Failures> failures_; // of the host's backend that it is read from
    detail::Handle<stasis_snapshot, stasis_snapshot_close> handle_;
};

// Replaces a file by one that holds its state and nothing else. Of the options codec, cancel and
// progress are used.
inline void compact(const std::filesystem::path &path, const SaveOptions &options = {}) {
    detail::SaveCall call(options);
    call.check(stasis_snapshot_compact(detail::c_text(path.native(), "the path"), &call.raw,
                                       call.error()));
}

} // namespace stasis
