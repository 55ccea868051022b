// The values that follow from a timeline's last position: the final hidden state, logits, the
// state's digest; see timeline.h.
#include <atomic>
#include <cstring>

#include "runtime/compute/forward.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

// Throws Error(diverged) unless keys and values from a position on are the same in both.
void Timeline::check_again(const Timeline &again, uint64_t begin) const {
    const uint64_t position = log.size();
    for (size_t group = 0; group < pages.size(); ++group) {
        for (uint64_t page = begin / kPage; page * kPage < position; ++page) {
            const uint64_t valid = std::min(position - page * kPage, kPage);
            if (!network->pool->same(pages[group][page].page, again.pages[group][page].page,
                                     valid)) {
                fail(Status::diverged,
                     "position %llu gives other keys or values than the cache holds",
                     Number{page * kPage + valid - 1});
            }
        }
    }
}

// Computes the last position, or its chunk, on copies of its pages, and checks that the keys and
// values equal those held.
void Timeline::require_hidden(Pass &pass) {
    const uint64_t position = log.size();
    if (position == 0) {
        fail(Status::not_found, "no logits before the first position");
    }
    if (hidden.valid) {
        return;
    }
    const ProfileChunk *chunk = profile.chunk_of(position - 1);
    const uint64_t begin = chunk != nullptr ? chunk->begin : position - 1;
    const size_t rows = position - begin, padded = chunk != nullptr ? chunk->padded : 0;
    const size_t width = network->config.hidden;

    // Computes the rows on a copy of the timeline.
    pass.fit(std::max(rows, padded));
    Timeline again(*this);
    again.make_writable(begin, position);
    pass.clear();
    for (uint64_t i = begin; i < position; ++i) {
        pass.tokens.push_back(log[i].token);
    }
    again.name_pages(pass.add_sequence(begin, rows, pages.size()));
    pass.padded = padded;
    if (trace) {
        trace->reads(pass.sequences[0]);
    }
    forward(pass);
    if (pass.sequences[0].failed) {
        fail_sequence(*network, pass.sequences[0]);
    }

    if (position > profile.foreign) { // below it, another profile computed the bits held
        check_again(again, begin);
    }
    std::memcpy(hidden.numbers.data(), pass.hidden + (rows - 1) * width, width * sizeof(uint16_t));
    hidden.valid = true;
}

void Timeline::compute_logits(Pass &pass, std::span<float> row) {
    require_hidden(pass);
    pass.fit(1);
    project_logits(pass, hidden.numbers.data(), 1, row.data());
    check_logits_row(row);
}

void Timeline::check_logits_row(std::span<const float> row) {
    check_logits(*network, row);
    if (next.stored && Sha256().bytes(row.data(), row.size_bytes()).finish() != *next.stored) {
        fail(Status::diverged, "logits: the kept hidden state gives other logits than stored");
    }
    next.stored.reset();
}

const std::vector<float> &Timeline::logits() {
    if (!next.valid) {
        if (next.row == nullptr || next.row.use_count() > 1) { // null, or a copy shares it
            next.row = std::make_shared<std::vector<float>>(network->config.vocabulary);
        }
        // A copy in another thread may just have released its reference. The fence orders that
        // thread's reads of the row before the writes below.
        std::atomic_thread_fence(std::memory_order_acquire);
        PassLease pass(*network);
        compute_logits(*pass, *next.row);
        next.valid = true;
    }
    return *next.row;
}

Digest Timeline::digest(const Digest &model) {
    if (!log.empty()) {
        PassLease pass(*network);
        require_hidden(*pass);
    }

    // The contract and the model.
    StateParts parts;
    const Config &config = network->config;
    parts.contract_core = kernels::kContractCore;
    parts.contract_kv = kernels::kContractKv;
    parts.contract_recurrent = config.recurrent.value_heads != 0 ? kernels::kContractRecurrent : 0;
    parts.contract_experts = config.experts.count != 0 ? kernels::kContractExperts : 0;
    parts.profile = profile.id;
    parts.model = model;
    parts.position = log.size();
    // The log, and the evictions.
    Sha256 tokens;
    for (uint64_t i = 0; i < log.size(); ++i) {
        tokens.u32(log[i].token);
    }
    parts.tokens = tokens.finish();
    for (const Evictions::Event &eviction : evictions.events()) {
        for (const PositionRange &range : eviction->ranges) {
            parts.evicted.push_back({eviction->position, range.begin, range.end});
        }
    }
    // The pages, and the final hidden state.
    for (size_t group = 0; group < pages.size(); ++group) {
        parts.windows.push_back(network->groups[group].window);
        std::vector<Digest> &digests = parts.pages.emplace_back();
        for (size_t page = 0; page < pages[group].size(); ++page) {
            digests.push_back(page_digest_of(group, page));
        }
    }
    if (!log.empty()) {
        parts.hidden = hidden.numbers;
    }
    return state_digest(parts);
}

} // namespace stasis
