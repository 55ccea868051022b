// Reports a session's KV cache to one listener: operations, and the pages that its tables take and
// release. A trace stores what it last reported of each page, and compares. So the events together
// always give the tables as they are, whatever caused a change. Knows no operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/kv/page_pool.h"

namespace stasis {

struct Network;
struct Sequence;

enum class TraceKind : uint32_t {
    held = 1,
    taken,
    shared,
    copied,
    filled,
    released,
    read,
    append,
    undone,
    rewind,
    evict,
    fork,
    save,
    load
};

struct TraceEvent {
    static constexpr uint32_t kAllGroups = UINT32_MAX;

    TraceKind kind;
    uint32_t group = kAllGroups;
    uint64_t begin = 0, end = 0; // positions
    uint64_t bytes = 0;
    Digest digest = {}; // of a full page, or of a state; else zero
};

struct TraceListener {
    void (*hear)(void *user, const TraceEvent &event) noexcept;
    void *user;
    bool reads; // report reads as well
};

// The origin of pages that have appeared in the tables since the last comparison.
enum class PageOrigin {
    computed,  // empty ones, and copies of those that others hold
    known,     // the prefix cache
    before,    // an earlier state of the session: its beginning, or one that an undo restores
    elsewhere, // another table that replaced this one
};

class Trace {
  public:
    Trace(const TraceListener &listener, const Network &network);

    // Reports how the tables [group] differ from the last report. Throws std::bad_alloc before
    // anything is reported, and only if a table is longer than before.
    void compare(std::span<const PageTable> tables, PageOrigin origin);
    // Reports the pages that a pass is about to read for a sequence, if the listener wants reads.
    void reads(const Sequence &sequence) const;
    void operation(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest) const;

  private:
    struct Told {
        PageAddress page = PageAddress::null; // the page reported as held
        bool full = false;                    // and whether its digest was reported
        Digest digest = {};
    };

    void compare_page(uint32_t group, uint64_t index, const PageEntry &entry, PageOrigin origin);
    void page(TraceKind kind, uint32_t group, uint64_t index) const;

    const TraceListener listener_;
    const Network &network_;
    std::vector<std::vector<Told>> told_; // [group][page]
};

// A session's trace, or none. A copy of a session has none.
class TraceRef {
  public:
    TraceRef() = default;
    explicit TraceRef(std::unique_ptr<Trace> trace) : trace_(std::move(trace)) {}
    TraceRef(const TraceRef &) {}
    TraceRef(TraceRef &&) = default;
    TraceRef &operator=(const TraceRef &) = delete;
    TraceRef &operator=(TraceRef &&) = default;
    ~TraceRef() = default;
    explicit operator bool() const { return trace_ != nullptr; }
    Trace *operator->() const { return trace_.get(); }

  private:
    std::unique_ptr<Trace> trace_;
};

} // namespace stasis
