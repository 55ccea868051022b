// The index of full pages, and the order in which idle ones are reclaimed; see prefixes.h.
#include "runtime/kv/prefixes.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace stasis {

namespace {

// Hashes the key, to find candidates: multiply and fold, one token at a time.
uint64_t hash_of(const Prefix *parent, const PrefixRealm &realm, PageTokens tokens) {
    uint64_t hash = reinterpret_cast<uintptr_t>(parent) ^ realm.domain;
    const auto mix = [&hash](uint64_t value) {
        hash = (hash ^ value) * 0x9e3779b97f4a7c15U; // 2^64 over the golden ratio
        hash ^= hash >> 32;
    };
    for (const uint32_t token : tokens) {
        mix(token);
    }
    for (const uint8_t byte : realm.events.bytes) {
        mix(byte);
    }
    mix(realm.long_rope ? 1 : 0);
    return hash;
}

} // namespace

Prefixes::~Prefixes() {
    for (const auto &[hash, entry] : entries_) {
        delete entry;
    }
}

Prefix *Prefixes::find(const Prefix *parent, const PrefixRealm &realm, PageTokens tokens,
                       std::span<const Digest> digests) const {
    Prefix *found = nullptr;
    const auto [begin, end] = entries_.equal_range(hash_of(parent, realm, tokens));
    for (auto at = begin; at != end; ++at) {
        Prefix &entry = *at->second;
        const bool same = entry.parent == parent && entry.realm == realm &&
                          std::equal(tokens.begin(), tokens.end(), entry.tokens.begin());
        if (!same || (digests.empty() && entry.stored) ||
            (!digests.empty() && !std::equal(digests.begin(), digests.end(), entry.digests.begin(),
                                             entry.digests.end()))) {
            continue;
        }
        found = &entry;
        if (!entry.stored) {
            break;
        }
    }
    return found;
}

Prefix *Prefixes::insert(std::unique_ptr<Prefix> entry) {
    entry->hash = hash_of(entry->parent, entry->realm, entry->tokens);
    entries_.emplace(entry->hash, entry.get());
    if (entry->parent != nullptr) {
        entry->index = entry->parent->index + 1;
        ++entry->parent->uses;
    }
    return entry.release();
}

void Prefixes::let_go(Prefix *entry) noexcept {
    assert(entry == nullptr || entry->uses > 0);
    while (entry != nullptr && --entry->uses == 0) {
        const auto [begin, end] = entries_.equal_range(entry->hash);
        entries_.erase(
            std::find_if(begin, end, [&](const auto &item) { return item.second == entry; }));
        Prefix *parent = entry->parent;
        take_state(entry);
        delete entry;
        entry = parent;
    }
}

void Prefixes::put_state(Prefix *entry, const StateRef &state) noexcept {
    assert(!entry->state && state);
    entry->state = state;
    ++states_;
    touch_state(entry);
}

StateRef Prefixes::take_state(Prefix *entry) noexcept {
    states_ -= entry->state ? 1 : 0;
    return std::exchange(entry->state, StateRef());
}

Prefix *Prefixes::oldest_state(bool shared) const {
    Prefix *oldest = nullptr;
    for (auto at = entries_.begin(); states_ != 0 && at != entries_.end(); ++at) {
        Prefix *entry = at->second;
        if (entry->state && (shared || entry->state.unique()) &&
            (oldest == nullptr || entry->state_used < oldest->state_used)) {
            oldest = entry;
        }
    }
    return oldest;
}

void Prefixes::link(Prefix *entry) noexcept {
    entry->older = newest_;
    entry->newer = nullptr;
    (newest_ != nullptr ? newest_->newer : oldest_) = entry;
    newest_ = entry;
}

void Prefixes::unlink(Prefix *entry) noexcept {
    (entry->older != nullptr ? entry->older->newer : oldest_) = entry->newer;
    (entry->newer != nullptr ? entry->newer->older : newest_) = entry->older;
}

void Prefixes::park(Prefix *entry) noexcept {
    if (entry->idle++ != 0) {
        unlink(entry);
    }
    link(entry);
}

void Prefixes::unpark(Prefix *entry) noexcept {
    assert(entry->idle > 0);
    if (--entry->idle == 0) {
        unlink(entry);
    }
}

void Prefixes::touch(Prefix *entry) noexcept {
    if (entry->idle != 0) {
        unlink(entry);
        link(entry);
    }
}

} // namespace stasis
