// Proposes tokens by the model's MTP head (multi-token prediction): from the final hidden state of
// a position and the token after it, a layer with attention predicts the token after that; from its
// own final hidden state and that token, the next; and so on. See MtpWeights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/session/draft.h"

namespace stasis {

// The head sees what has been computed since it was chosen. After positions whose hidden states
// nobody computed (a loaded log, a prefix that was reused) it begins anew. It draws with the same
// settings, seed and positions as the session.
class MtpDrafter final : public Drafter {
  public:
    // The model has a head.
    explicit MtpDrafter(std::shared_ptr<Model> model);
    ~MtpDrafter() override;

    void propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) override;
    void computed(const TokenLog &log, uint64_t begin,
                  std::span<const uint16_t> hidden) noexcept override;
    void rewound(uint64_t position) noexcept override;
    double cost() const override { return cost_; }
    bool release() noexcept override { return false; } // its pages are no use to the model

  private:
    size_t width() const { return model_->config.hidden; }
    uint64_t rows() const { return timeline_ ? timeline_->position() : 0; }
    uint64_t waiting() const { return waiting_.size() / width(); }
    uint64_t end() const { return first_ + rows() + waiting(); }
    void shorten(uint64_t rows) noexcept;
    void add(uint64_t begin, std::span<const uint16_t> hidden);
    void run(std::span<const uint32_t> tokens, const uint16_t *hidden, const Watch &watch);
    void catch_up(const TokenLog &log, const Watch &watch);
    uint32_t draw(const Sampling &sampling, uint64_t position, const DraftMask &mask);

    std::shared_ptr<Model> model_;
    double cost_;
    // Row i has the hidden state of log position first_ + i, and the log's token after it.
    std::optional<Timeline> timeline_; // of the head's network
    uint64_t first_ = 0;
    std::vector<uint16_t> waiting_; // hidden states of the positions after its rows
    std::vector<uint32_t> history_; // what the penalties read
};

} // namespace stasis
