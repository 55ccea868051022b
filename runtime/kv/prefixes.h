// Full pages by what led to them: the page before, 64 tokens and the events among them. The model
// and the contract belong to the key as well: one index serves one model under this build. A hash
// only finds candidates; tokens are compared. Holds no session alive: an entry lives as long as
// somebody holds one of its pages, ends there or goes on from there, or its pages wait among those
// recently let go. Has no lock and counts no bytes: the pool (page_pool.h) owns it and does both.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/state/digest.h"
#include "runtime/kv/page.h"

namespace stasis {

struct KvPage;

using PageTokens = std::span<const uint32_t, kPage>;

// Who may take whose pages, and what the log says beside its tokens.
struct PrefixRealm {
    uint64_t domain = 0;
    Digest events = {}; // of the events up to the page's end; zero: none
};

// One full page of every group.
struct Prefix {
    Prefix *parent = nullptr; // the page before; null: none
    uint64_t index = 0;       // of the page: positions index * 64 and on
    PrefixRealm realm;
    // What a file says of the page, and what follows from it. Appends of other sessions never take
    // such pages: a file may lie, and would lie to all of them.
    bool stored = false;
    uint64_t hash = 0;
    std::array<uint32_t, kPage> tokens = {};
    std::vector<KvPage *> pages;  // [group]; null: nobody has it any more
    std::vector<Digest> digests;  // [group]
    std::vector<uint16_t> hidden; // final hidden state of the last position; empty: not known

    uint32_t uses = 0;                         // pages, entries behind it, sessions that end here
    uint32_t idle = 0;                         // pages that nobody holds
    Prefix *older = nullptr, *newer = nullptr; // among entries with idle pages
};

class Prefixes {
  public:
    Prefixes() = default;
    ~Prefixes();
    Prefixes(const Prefixes &) = delete;
    Prefixes &operator=(const Prefixes &) = delete;

    // The entry behind `parent`. Of computed entries there is one, which appends find; `digests`,
    // if not empty, finds any entry with these, computed ones first.
    Prefix *find(const Prefix *parent, const PrefixRealm &realm, PageTokens tokens,
                 std::span<const Digest> digests) const;
    // Takes over a new entry, of parent, realm, tokens. Strong guarantee.
    Prefix *insert(std::unique_ptr<Prefix> entry);
    // One use less; the entry, and those before it, go with their last.
    void let_go(Prefix *entry) noexcept;

    // One page more that nobody holds, the entry's latest use; and one less.
    void park(Prefix *entry) noexcept;
    void unpark(Prefix *entry) noexcept;
    // It was used: what has not been for longest gives way first.
    void touch(Prefix *entry) noexcept;
    Prefix *oldest() const { return oldest_; } // of those with idle pages

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
};

} // namespace stasis
