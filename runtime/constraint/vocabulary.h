// The bytes of a vocabulary's tokens as a tree, so that one walk finds all tokens that may follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stasis::constraint {

class Vocabulary {
  public:
    static constexpr uint32_t kNone = UINT32_MAX;

    // Of each token the bytes that it adds in the middle of a text; empty for those that no
    // constraint allows, such as special tokens. `end_tokens` are allowed where a text is complete,
    // and nowhere else.
    Vocabulary(std::vector<std::string> pieces, std::vector<uint32_t> end_tokens);

    // A byte of a token, after the nodes of the bytes before it and before those that follow it.
    struct Node {
        uint32_t after = 0;     // the next node that does not follow this one
        uint32_t token = kNone; // that ends here
        uint16_t depth = 0;     // bytes before it
        uint8_t byte = 0;
    };
    const std::vector<Node> &nodes() const { return nodes_; }
    size_t depth() const { return depth_; }                             // of the longest token
    uint32_t next_alike(uint32_t token) const { return alike_[token]; } // with the same bytes
    const std::string &piece(uint32_t token) const { return pieces_[token]; }
    const std::vector<uint32_t> &end_tokens() const { return end_tokens_; }
    uint32_t size() const { return static_cast<uint32_t>(pieces_.size()); }

  private:
    std::vector<std::string> pieces_;
    std::vector<uint32_t> end_tokens_;
    std::vector<uint32_t> alike_;
    std::vector<Node> nodes_;
    size_t depth_ = 0;
};

} // namespace stasis::constraint
