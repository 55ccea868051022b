// Digests of a checkpoint's tensors that an earlier process computed, in the user's cache directory
// ($XDG_CACHE_HOME/stasis/weights, else $HOME/.cache/stasis/weights). An entry is found by what the
// system says of the files: device, inode, size, times of the last write and of the last change.
// abi/stasis.h says what this trusts. Must not know how digests are computed. Included by
// weights.cpp only.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "format/state/digest.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

class KnownDigests {
  public:
    // Names the entry of these tensors, of files as they were when they were opened.
    KnownDigests(const Checkpoint &checkpoint, std::span<const PlannedTensor> plan);

    // Returns the digests of all tensors of the plan, or nothing: there is no entry, or it is
    // damaged, or another user could have written it.
    std::optional<std::vector<Digest>> find() const;
    // Stores the digests of files that were unchanged while they were read. Does nothing if a file
    // was so young when this object was made that a later change could have given it the same time,
    // or if the directory cannot be written to.
    void keep(std::span<const Digest> digests) const;

  private:
    std::string directory_; // empty: the user has none
    Digest key_;            // of all that the entry is found by
    std::string path_;      // of the entry
    bool young_ = false;    // a file was
    size_t count_;          // tensors
};

} // namespace stasis
