// Follows one text through a constraint, token by token, and says which tokens may come next. A
// value: a copy goes on by itself, and shares what was found before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "format/state/watch.h"
#include "runtime/constraint/automaton.h"
#include "runtime/constraint/places.h"
#include "runtime/constraint/vocabulary.h"

namespace stasis::constraint {

// A bit for each token, from the lowest bit of the first word on: whether it may come next.
using Mask = std::vector<uint64_t>;

inline bool allows(const Mask &mask, uint32_t token) {
    return (mask[token / 64] >> (token % 64) & 1U) != 0;
}

class Matcher {
  public:
    // Above these bytes, of places and of masks, what is not needed is forgotten and found again.
    static constexpr size_t kPlacesBytes = size_t{32} << 20, kMasksBytes = size_t{16} << 20;

    Matcher(std::shared_ptr<const Automaton> automaton,
            std::shared_ptr<const Vocabulary> vocabulary, size_t places_bytes = kPlacesBytes);

    // Goes on by a token's bytes, or by any bytes. Returns false, and stays where it was, if no
    // allowed text begins so, or if the token has no bytes. Throws Error(unsupported) as
    // Places::next.
    bool take_token(uint32_t token) {
        return !vocabulary_->piece(token).empty() && take(vocabulary_->piece(token));
    }
    bool take(std::string_view bytes);
    // Whether the text so far is complete; more may follow all the same.
    bool complete() const;
    // Returns the tokens that may come next: those whose bytes an allowed text may go on by, and
    // the end tokens where the text is complete. The text and the constraint decide, nothing else.
    // Throws Error(unsupported) as Places::next, Error(cancelled).
    std::shared_ptr<const Mask> mask(const Watch &watch = {});

  private:
    struct Found; // shared by copies

    Mask walk(std::unique_lock<std::mutex> &lock, const Watch &watch);
    void forget(std::vector<Place> &path, std::unique_lock<std::mutex> &lock);

    std::shared_ptr<const Automaton> automaton_;
    std::shared_ptr<const Vocabulary> vocabulary_;
    std::shared_ptr<Found> found_;
    Place place_ = Places::kDead;
    size_t places_bytes_;
};

} // namespace stasis::constraint
