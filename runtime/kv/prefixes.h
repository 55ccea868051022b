// The prefix cache: full pages, found by their key: the page before, 64 tokens and the events among
// them. The model and the contract belong to the key as well, because one index serves one model of
// this build. A hash only finds candidates; tokens are compared. Keeps no session alive. An entry
// lives as long as one of its pages is held or cached, a session ends at it, or a later entry
// continues it. Has no lock and counts no bytes: the pool (page_pool.h) owns it and does both.
// Callers hold the pool's lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/state/digest.h"
#include "runtime/kv/page.h"
#include "runtime/kv/state_pool.h"

namespace stasis {

struct KvPage;

using PageTokens = std::span<const uint32_t, kPage>;

// The sessions that may share pages, and the events of the log beside its tokens.
struct PrefixRealm {
    uint64_t domain = 0;
    Digest events = {}; // of the events up to the page's end; zero: none
    bool long_rope = false;
    bool operator==(const PrefixRealm &) const = default;
};

// One full page of every group.
struct Prefix {
    Prefix *parent = nullptr; // the page before; null: none
    uint64_t index = 0;       // of the page: positions index * 64 and on
    PrefixRealm realm;
    // The page's numbers, or those it follows from, come from a file. Appends of other sessions
    // never take such pages: a forged file would affect all of them.
    bool stored = false;
    uint64_t hash = 0;
    std::array<uint32_t, kPage> tokens = {};
    std::vector<KvPage *> pages;  // [group]; null: no page is held or cached
    std::vector<Digest> digests;  // [group]
    std::vector<uint16_t> hidden; // final hidden state of the last position; empty: none
    StateRef state;               // of recurrent layers after the last position; none: not held
    uint64_t state_used = 0;      // the greater, the later it was last taken

    uint32_t uses = 0;                         // pages, entries after it, sessions that end at it
    uint32_t idle = 0;                         // pages that no table holds
    Prefix *older = nullptr, *newer = nullptr; // among entries with idle pages
};

class Prefixes {
  public:
    Prefixes() = default;
    ~Prefixes();
    Prefixes(const Prefixes &) = delete;
    Prefixes &operator=(const Prefixes &) = delete;

    // Returns the entry after `parent`, or null. At most one computed entry matches, which appends
    // find. `digests`, if not empty, finds any entry with these digests, computed ones first.
    Prefix *find(const Prefix *parent, const PrefixRealm &realm, PageTokens tokens,
                 std::span<const Digest> digests) const;
    // Takes over a new entry whose parent, realm and tokens are set. Strong guarantee.
    Prefix *insert(std::unique_ptr<Prefix> entry);
    // Removes one use; an entry without uses is destroyed, and then its ancestors in turn.
    void let_go(Prefix *entry) noexcept;

    // Count one more idle page of the entry, which becomes the newest, and one less.
    void park(Prefix *entry) noexcept;
    void unpark(Prefix *entry) noexcept;
    // Gives an entry without a state one.
    void put_state(Prefix *entry, const StateRef &state) noexcept;
    // Takes an entry's state away.
    StateRef take_state(Prefix *entry) noexcept;
    // Makes the entry's state the one that was used last.
    void touch_state(Prefix *entry) noexcept { entry->state_used = ++state_uses_; }
    // Returns the entry whose state was not used for longest, among states that only the cache
    // holds, or `shared` as well; null: none.
    Prefix *oldest_state(bool shared) const;
    // Makes an idle entry the newest: the one unused for longest is reclaimed first.
    void touch(Prefix *entry) noexcept;
    Prefix *oldest() const { return oldest_; } // of entries with idle pages; null: none

    template <typename Visit> void each(const Visit &visit) const {
        for (const auto &[hash, entry] : entries_) {
            visit(*entry);
        }
    }

  private:
    void link(Prefix *entry) noexcept;
    void unlink(Prefix *entry) noexcept;

    std::unordered_multimap<uint64_t, Prefix *> entries_;
    Prefix *oldest_ = nullptr, *newest_ = nullptr;
    uint64_t states_ = 0, state_uses_ = 0; // entries that have one, and how often one was used
};

} // namespace stasis
