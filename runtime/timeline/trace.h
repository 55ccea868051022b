// What a session tells one listener of its KV cache: operations, and the pages that its tables take
// and let go of. A trace remembers what it has told of each page, and compares: so whatever way a
// change came about, all events together give the tables as they are. Knows no operation.
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
    bool reads; // are told as well
};

// Where pages that have appeared in the tables since the last comparison come from.
enum class PageOrigin {
    computed,  // empty ones, and copies of those that others hold
    known,     // the index of known pages
    before,    // an earlier state of the session: its beginning, or one that an undo brings back
    elsewhere, // another table that took the place of this one
};

class Trace {
  public:
    Trace(const TraceListener &listener, const Network &network);

    // Tells how the tables [group] differ from what was told before. Throws std::bad_alloc, then
    // nothing was told; not where no table is longer than it was.
    void compare(std::span<const PageTable> tables, PageOrigin origin);
    // Tells of what a pass is about to read for a sequence, if asked for.
    void reads(const Sequence &sequence) const;
    void operation(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest) const;

  private:
    struct Told {
        PageAddress page = PageAddress::null; // that it is held
        bool full = false;                    // and its digest
        Digest digest = {};
    };

    void compare_page(uint32_t group, uint64_t index, const PageEntry &entry, PageOrigin origin);
    void page(TraceKind kind, uint32_t group, uint64_t index) const;

    const TraceListener listener_;
    const Network &network_;
    std::vector<std::vector<Told>> told_; // [group][page]
};

// A session's trace, or none. A copy of the session has none.
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
