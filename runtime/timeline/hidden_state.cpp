// The values that follow from a timeline's last position: the final hidden state, logits, the
// state's digest; see timeline.h.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/compute/forward.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

// Throws Error(diverged) unless keys and values of [begin, end) are the same in both.
void Timeline::check_again(const Timeline &again, uint64_t begin, uint64_t end) const {
    for (size_t group = 0; group < pages.size(); ++group) {
        for (uint64_t page = begin / kPage; page * kPage < end; ++page) {
            const uint64_t valid = std::min(end - page * kPage, kPage);
            if (!network->pool->same(pages[group][page].page, again.pages[group][page].page,
                                     valid)) {
                fail(Status::diverged,
                     "position %llu gives other keys or values than the cache holds",
                     Number{page * kPage + valid - 1});
            }
        }
    }
}

// Computes positions [begin, end) on copies of their pages, which must give the keys and values
// held. Keeps the recurrent layers' state at `end`; that at `begin` is held.
void Timeline::compute_again(Pass &pass, uint64_t begin, uint64_t end, const Watch &watch) {
    const ProfileChunk *chunk = profile.chunk_of(begin);
    const size_t padded = chunk != nullptr ? chunk->padded : 0;
    pass.fit(std::max<size_t>(end - begin, padded));
    Timeline again(*this);
    again.states.cut(0); // so that this timeline's are its own
    again.make_writable(begin, end);
    pass.clear();
    for (uint64_t i = begin; i < end; ++i) {
        pass.tokens.push_back(log[i].token);
    }
    Sequence &sequence = pass.add_sequence(begin, end - begin, pages.size());
    again.name_pages(sequence);
    pass.padded = padded;
    StateRef next_state;
    if (states.used()) {
        next_state = states.take(begin, *network->pool);
        sequence.state = states.at(begin).numbers();
        sequence.next_states = {{end - begin, next_state.writable()}};
    }
    if (trace) {
        trace->reads(sequence);
    }
    forward(pass, watch, begin, log.size());
    if (sequence.failed) {
        fail_sequence(*network, sequence);
    }
    if (end > profile.foreign) { // below it, another profile computed the bits held
        check_again(again, begin, end);
    }
    if (states.used()) {
        states.add(end, std::move(next_state), 0); // that at `begin` stays as a checkpoint alone
    }
}

// Runs again what gives the last position: its chunk under a profile, with recurrent layers all
// that follows the last state before it, else the position alone. Where the pool lacks pages for
// the copies of all positions up to a checkpoint, each page is a pass of its own. A failure may
// leave other states than there were, but never a wrong one.
void Timeline::require_hidden(Pass &pass, const Watch &watch) {
    const uint64_t position = log.size();
    if (position == 0) {
        fail(Status::not_found, "no logits before the first position");
    }
    if (hidden.valid && states.holds(position)) {
        return;
    }
    const ProfileChunk *chunk = profile.chunk_of(position - 1);
    uint64_t begin = chunk != nullptr ? chunk->begin : position - 1;
    if (states.used()) {
        begin = states.nearest(position - 1);
        states.cut(begin);
    }
    bool by_page = false;
    for (uint64_t end = begin; begin < position; begin = end) {
        const uint64_t most = by_page ? (begin / kPage + 1) * kPage : next_checkpoint(begin);
        end = states.used() ? std::min(position, most) : position;
        try {
            compute_again(pass, begin, end, watch);
        } catch (const Error &error) {
            if (error.status() != Status::pool_exhausted || by_page || !states.used()) {
                throw;
            }
            by_page = true;
            end = begin; // once more
        }
    }
    states.thin(position);

    const size_t width = network->config.hidden;
    std::memcpy(hidden.numbers.data(), pass.hidden + (pass.row_count - 1) * width,
                width * sizeof(uint16_t));
    hidden.valid = true;
}

std::span<const float> Timeline::compute_logits(Pass &pass, const Watch &watch) {
    require_hidden(pass, watch); // which may move pass.logits
    pass.fit(1);
    project_logits(pass, hidden.numbers.data(), 1, pass.logits);
    const std::span<const float> row{pass.logits, network->config.vocabulary};
    check_logits_row(row);
    return row;
}

void Timeline::check_logits_row(std::span<const float> row) {
    check_logits(*network, row);
    if (next.stored && Sha256().bytes(row.data(), row.size_bytes()).finish() != *next.stored) {
        fail(Status::diverged, "logits: the kept hidden state gives other logits than stored");
    }
    next.stored.reset();
}

const std::vector<float> &Timeline::logits(const Watch &watch) {
    if (!next.valid) {
        if (next.row == nullptr || next.row.use_count() > 1) { // null, or a copy shares it
            next.row = std::make_shared<std::vector<float>>(network->config.vocabulary);
        }
        // A copy in another thread may just have released its reference. The fence orders that
        // thread's reads of the row before the writes below.
        std::atomic_thread_fence(std::memory_order_acquire);
        PassLease pass(*network);
        const std::span<const float> row = compute_logits(*pass, watch);
        std::copy(row.begin(), row.end(), next.row->begin());
        next.valid = true;
    }
    return *next.row;
}

Digest Timeline::digest(const Digest &model, const Watch &watch) {
    if (!log.empty()) {
        PassLease pass(*network);
        require_hidden(*pass, watch);
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
        for (size_t page = 0; page < pages_of_log(group); ++page) {
            digests.push_back(page_digest_of(group, page));
        }
    }
    if (!log.empty()) {
        parts.hidden = hidden.numbers;
    }
    if (states.used() && !log.empty()) {
        parts.recurrent = states.at(log.size()).digest(log.size());
    }
    return state_digest(parts);
}

} // namespace stasis
