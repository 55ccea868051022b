// Chooses the parts of a pass under a profile, and checks profiles of files; see profile.h.
#include "runtime/compute/profile.h"

#include <algorithm>

#include "runtime/compute/backend.h"
#include "runtime/compute/network.h"

namespace stasis {

namespace {

size_t padded_rows(size_t rows) {
    return *std::find_if(std::begin(kProfileRows), std::end(kProfileRows),
                         [&](size_t shape) { return rows <= shape; });
}

const char *text_of(const std::string &id) {
    return id.empty() ? "the contract" : id.c_str();
}

} // namespace

// A schedule decides alone. Without one, long appends under a profile are cut into its largest
// shape.
ProfilePart next_part(const std::string &id, const Profile *schedule, uint64_t begin, size_t left,
                      size_t most) {
    if (schedule == nullptr) {
        if (id.empty() || left < kProfileLeast) {
            return {std::min(left, most), 0};
        }
        const size_t rows = std::min(left, *std::rbegin(kProfileRows));
        return {rows, padded_rows(rows)};
    }
    const auto next = std::lower_bound(
        schedule->chunks.begin(), schedule->chunks.end(), begin,
        [](const ProfileChunk &chunk, uint64_t position) { return chunk.begin < position; });
    if (next != schedule->chunks.end() && next->begin == begin) {
        return {std::min<size_t>(left, next->rows), next->padded};
    }
    const uint64_t before = next == schedule->chunks.end() ? UINT64_MAX : next->begin - begin;
    return {static_cast<size_t>(std::min<uint64_t>({left, most, before})), 0};
}

std::string open_profile(const Network &network, const std::string &name) {
    if (name.empty() || name == "contract") {
        return "";
    }
    if (name != "device") {
        fail(Status::unsupported, "profile \"%s\": profiles are \"contract\" and \"device\"",
             name.c_str());
    }
    return network.backend->open_profile(network);
}

void check_profile(const State &state, const Network &network, bool any) {
    const Profile &profile = state.profile;
    if (profile.id != network.profile && !any) {
        fail(Status::version,
             "KV format version differs: the snapshot was computed under %s, this model computes "
             "under %s; loading it all the same (STASIS_LOAD_ANY_PROFILE) leaves what is loaded "
             "unverifiable",
             text_of(profile.id), text_of(network.profile));
    }
    for (const ProfileChunk &chunk : profile.chunks) {
        const bool known =
            std::count(std::begin(kProfileRows), std::end(kProfileRows), size_t{chunk.padded}) != 0;
        if (!known && profile.id == network.profile) {
            fail(Status::corrupt, "device profile: products of %u rows from position %llu on",
                 chunk.padded, Number{chunk.begin});
        }
    }
}

void check_computable(const Profile &profile) {
    if (profile.foreign != 0) {
        fail(Status::unsupported,
             "positions below %llu were computed under another profile: they cannot be computed "
             "again",
             Number{profile.foreign});
    }
}

} // namespace stasis
