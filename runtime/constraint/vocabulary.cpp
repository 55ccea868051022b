// Makes the tree of a vocabulary; see vocabulary.h.
#include "runtime/constraint/vocabulary.h"

#include <algorithm>
#include <utility>

#include "format/state/error.h"

namespace stasis::constraint {

Vocabulary::Vocabulary(std::vector<std::string> pieces, std::vector<uint32_t> end_tokens)
    : pieces_(std::move(pieces)), end_tokens_(std::move(end_tokens)),
      alike_(pieces_.size(), kNone) {
    for (const uint32_t token : end_tokens_) {
        if (token >= pieces_.size()) {
            fail(Status::invalid_argument, "end token %u is not in the vocabulary", token);
        }
        pieces_[token].clear();
    }
    std::vector<uint32_t> sorted;
    for (uint32_t token = 0; token < pieces_.size(); ++token) {
        if (pieces_[token].size() > UINT16_MAX) {
            fail(Status::unsupported, "token %u is longer than 65535 bytes", token);
        }
        if (!pieces_[token].empty()) {
            sorted.push_back(token);
        }
    }
    std::sort(sorted.begin(), sorted.end(), [&](uint32_t left, uint32_t right) {
        const int order = pieces_[left].compare(pieces_[right]);
        return order != 0 ? order < 0 : left < right;
    });
    std::vector<uint32_t> path; // nodes of the last token
    for (const uint32_t token : sorted) {
        const std::string &piece = pieces_[token];
        size_t shared = 0;
        while (shared < path.size() && shared < piece.size() &&
               nodes_[path[shared]].byte == static_cast<uint8_t>(piece[shared])) {
            ++shared;
        }
        for (; path.size() > shared; path.pop_back()) {
            nodes_[path.back()].after = static_cast<uint32_t>(nodes_.size());
        }
        for (size_t i = shared; i < piece.size(); ++i) {
            path.push_back(static_cast<uint32_t>(nodes_.size()));
            nodes_.push_back(
                {.depth = static_cast<uint16_t>(i), .byte = static_cast<uint8_t>(piece[i])});
        }
        alike_[token] = std::exchange(nodes_[path.back()].token, token);
        depth_ = std::max(depth_, piece.size());
    }
    for (const uint32_t node : path) {
        nodes_[node].after = static_cast<uint32_t>(nodes_.size());
    }
}

} // namespace stasis::constraint
