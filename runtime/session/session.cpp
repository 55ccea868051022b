// How a session's timeline grows, forks and shrinks; see session.h. Everything that changes it goes
// through extend, cut or swap_timeline.
#include "runtime/session/session.h"

#include <algorithm>
#include <cstring>

#include "runtime/compute/forward.h"

namespace stasis {

Session::Session(std::shared_ptr<Model> model, const SessionOptions &options)
    : model_(std::move(model)), log_(*model_->log_nodes) {
    const Config &config = model_->config;
    capacity_ = options.capacity == 0 ? config.context : options.capacity;
    if (capacity_ > config.context) {
        fail(Status::invalid_argument, "capacity %llu exceeds the model's context of %u positions",
             Number{capacity_}, config.context);
    }
    if (options.reserve > capacity_) {
        fail(Status::invalid_argument, "reserve %llu exceeds the capacity of %llu positions",
             Number{options.reserve}, Number{capacity_});
    }
    domain_ = options.domain;
    profile_.id = model_->profile;
    // Under a profile the bits of a page are not those of its tokens alone.
    shares_ = domain_ != SessionOptions::kPrivate && options.tracking == Tracking::off &&
              profile_.id.empty();
    trusted_ = options.trusted;
    std::vector<PageRef> reserved; // goes back to the pool's free pages at the end
    const uint32_t window = model_->groups.back().window;
    window_retain_ = options.window_retain == SessionOptions::kDefaultRetain
                         ? window
                         : std::min<uint64_t>(options.window_retain, capacity_);
    for (uint32_t group = 0; group < model_->groups.size(); ++group) {
        pages_.emplace_back(*model_->table_nodes);
        first_page_.push_back(0);
        const uint32_t layer_window = model_->groups[group].window;
        const uint64_t positions =
            layer_window == 0 ? options.reserve
                              : std::min(options.reserve, layer_window + window_retain_ + kPage);
        for (uint64_t page = 0; page < (positions + kPage - 1) / kPage; ++page) {
            reserved.push_back(model_->pool->take(group)); // zeroed, so the memory is there
        }
    }
    hidden_.resize(config.hidden);
    sums_ = tracked_sums(*model_, options, capacity_);
}

Session::Session(const Session &parent) = default;

Session::~Session() {
    model_->held_bytes -= held_bytes_;
}

// Keys and values from a position on must be the same where they were computed again.
void Session::check_again(const Session &again, uint64_t begin) const {
    const uint64_t position = log_.size();
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        for (uint64_t page = begin / kPage; page * kPage < position; ++page) {
            const uint64_t valid = std::min(position - page * kPage, kPage);
            if (!model_->pool->same(pages_[group][page].page, again.pages_[group][page].page,
                                    valid)) {
                fail(Status::diverged,
                     "position %llu gives other keys or values than the cache holds",
                     Number{page * kPage + valid - 1});
            }
        }
    }
}

// Makes sure that the final hidden state is there: after a rewind the last token runs once more,
// together with those before it that it was computed with under a profile. They run on copies of
// their pages, and keys and values must come out with the bits that they have.
void Session::require_hidden(Workspace &work) {
    const uint64_t position = log_.size();
    if (position == 0) {
        fail(Status::not_found, "no logits before the first position");
    }
    if (hidden_valid_) {
        return;
    }
    const ProfileChunk *chunk = profile_.chunk_of(position - 1);
    const uint64_t begin = chunk != nullptr ? chunk->begin : position - 1;
    const size_t rows = position - begin, padded = chunk != nullptr ? chunk->padded : 0;
    work.fit(model_->config, model_->weights.groups, std::max(rows, padded));
    Session again(*this);
    again.held_bytes_ = 0;
    again.make_writable(begin, position);
    work.clear_sequences();
    work.tokens.clear();
    for (uint64_t i = begin; i < position; ++i) {
        work.tokens.push_back(log_[i].token);
    }
    again.name_pages(work.add_sequence(begin, rows, pages_.size()));
    work.padded = padded;
    if (trace_) {
        trace_->reads(work.sequences[0]);
    }
    forward(*model_, work);
    if (work.sequences[0].failed) {
        fail_sequence(*model_, work.sequences[0]);
    }
    if (position > profile_.foreign) { // else another profile's bits, which stay
        check_again(again, begin);
    }
    std::memcpy(hidden_.data(), work.hidden + (rows - 1) * hidden_.size(),
                hidden_.size() * sizeof(uint16_t));
    hidden_valid_ = true;
}

// Adds what the log will hold of tokens that the caller gives. Strong guarantee.
void Session::add_entries(std::span<const uint32_t> tokens,
                          std::vector<TokenEntry> &entries) const {
    const size_t before = entries.size();
    entries.resize(before + tokens.size());
    const uint8_t turn = next_turn(false);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= model_->config.vocabulary) {
            entries.resize(before);
            fail(Status::invalid_argument,
                 "token %u at index %zu is outside the vocabulary of %u tokens", tokens[i], i,
                 model_->config.vocabulary);
        }
        TokenEntry &entry = entries[before + i];
        entry.token = tokens[i];
        entry.turn = i == 0 ? turn : turn & ~TokenEntry::kTurnStart;
    }
}

void Session::append(std::span<const uint32_t> tokens, const RunOptions &options) {
    std::vector<TokenEntry> entries;
    add_entries(tokens, entries);
    extend(entries, options);
}

std::unique_ptr<Session> Session::fork() {
    std::unique_ptr<Session> child(new Session(*this));
    child->held_bytes_ = 0;
    child->drafting_.reset();
    child->tokens_reused_ = 0; // what it shares from the start it has not reused
    child->account();
    return child;
}

void Session::swap_timeline(Session &other) {
    std::swap(log_, other.log_);
    std::swap(profile_, other.profile_);
    std::swap(pages_, other.pages_);
    std::swap(first_page_, other.first_page_);
    std::swap(evictions_, other.evictions_);
    std::swap(known_, other.known_);
    std::swap(unproven_, other.unproven_);
    std::swap(hidden_, other.hidden_);
    std::swap(hidden_valid_, other.hidden_valid_);
    std::swap(row_, other.row_);
    std::swap(row_valid_, other.row_valid_);
    std::swap(stored_logits_, other.stored_logits_);
    std::swap(sums_, other.sums_);
    std::swap(held_bytes_, other.held_bytes_);
}

// The timeline ends at a position that the floors allow.
void Session::go_back(uint64_t position) {
    Session shorter(*this); // all that can fail happens to the copy
    shorter.held_bytes_ = 0;
    shorter.log_.truncate(position);
    shorter.cut(position);
    shorter.hidden_valid_ = false;
    shorter.row_valid_ = false;
    shorter.stored_logits_.reset();
    shorter.sums_.forget();
    if (position == 0) {
        std::fill(shorter.first_page_.begin(), shorter.first_page_.end(), 0);
        shorter.evictions_ = Evictions();
        shorter.unproven_ = 0;
    } else if (position == evictions_.last()) {
        shorter.hidden_ = evictions_.events().back()->hidden;
        shorter.hidden_valid_ = true;
    }
    shorter.account();
    swap_timeline(shorter);
    tell_pages(PageOrigin::elsewhere); // fewer than before, so nothing can fail
}

void Session::rewind_to_append(uint64_t position) {
    if (position != 0 && position < append_floor()) {
        fail(Status::unsupported, "what position %llu sees is not there any more",
             Number{position});
    }
    go_back(position);
}

void Session::rewind(uint64_t position, bool recompute, const RunOptions &options) {
    if (position > log_.size()) {
        fail(Status::invalid_argument, "rewind to %llu lies beyond the position %llu",
             Number{position}, Number{log_.size()});
    }
    if (position == log_.size()) {
        if (position == 0) {
            pending_system_.clear(); // to 0 is a reset
        }
        return;
    }
    const uint64_t end = log_.size(), floor = rewind_floor();
    if (position == 0 || position >= floor) {
        go_back(position);
    } else {
        if (!recompute) {
            fail(Status::unsupported,
                 "rewind to %llu lies below the floor %llu: %s; it needs recomputing "
                 "(STASIS_REWIND_RECOMPUTE)",
                 Number{position}, Number{floor},
                 floor == evictions_.last() ? "at that position tokens were evicted"
                                            : "local layers have released their pages");
        }
        SessionOptions fresh;
        fresh.capacity = capacity_;
        fresh.window_retain = window_retain_;
        fresh.tracking = sums_.tracking();
        fresh.domain = domain_;
        Session again(model_, fresh);
        std::vector<TokenEntry> entries;
        for (uint64_t i = 0; i < position; ++i) {
            entries.push_back(log_[i]);
        }
        RunOptions run = options;
        run.logits = nullptr;
        run.schedule = &profile_;
        again.replay(entries, evictions_, run);
        swap_timeline(again);
        tell_pages(PageOrigin::elsewhere); // fewer than before, so nothing can fail
        tokens_reused_ += again.tokens_reused_;
    }
    pending_system_.clear();
    if (position == 0) {
        samplings_.clear();
    }
    if (drafting_ != nullptr) {
        drafting_->drafter->rewound(position);
    }
    tell(TraceKind::rewind, position, end);
}

} // namespace stasis
