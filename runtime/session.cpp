// How a session's timeline grows, forks and shrinks; see session.h. Everything that changes it goes
// through extend, cut or swap_timeline.
#include "runtime/session.h"

#include <algorithm>
#include <cstring>

#include "runtime/forward.h"

namespace stasis {

namespace {

constexpr uint64_t kPage = kernels::kPagePositions;
constexpr size_t kChunk = 512; // positions computed together unless the caller says otherwise
constexpr size_t kChunkMax = 4096;

using ull = unsigned long long;

} // namespace

Session::Session(std::shared_ptr<Model> model, const SessionOptions &options)
    : model_(std::move(model)), log_(*model_->log_nodes) {
    const Config &config = model_->config;
    capacity_ = options.capacity == 0 ? config.context : options.capacity;
    if (capacity_ > config.context) {
        fail(Status::invalid_argument, "capacity %llu exceeds the model's context of %u positions",
             ull{capacity_}, config.context);
    }
    if (options.reserve > capacity_) {
        fail(Status::invalid_argument, "reserve %llu exceeds the capacity of %llu positions",
             ull{options.reserve}, ull{capacity_});
    }
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
}

Session::Session(const Session &parent) = default;

Session::~Session() {
    model_->held_bytes -= held_bytes_;
}

// Calls the caller back with the logits of each row.
void Session::report_logits(Workspace &work, size_t rows, uint64_t begin,
                            const RunOptions &options) {
    for (size_t row = 0; row < rows; ++row) {
        project_logits(*model_, work, work.hidden + row * model_->config.hidden, work.logits);
        if (!options.logits(options.logits_user, begin + row, work.logits,
                            model_->config.vocabulary)) {
            fail(Status::stopped, "the logits callback asked to stop at position %llu",
                 ull{begin + row});
        }
    }
}

void Session::run_chunk(Workspace &work, std::span<const TokenEntry> entries, uint64_t start,
                        const RunOptions &options) {
    const uint64_t begin = log_.size(), end = begin + entries.size();
    work.tokens.clear();
    for (const TokenEntry &entry : entries) {
        work.tokens.push_back(entry.token);
    }
    make_writable(begin, end);
    name_pages(work, begin, end);
    forward(*model_, work, work.tokens, begin);
    if (options.logits != nullptr) {
        report_logits(work, entries.size(), begin, options);
    }
    for (const TokenEntry &entry : entries) {
        log_.push_back(entry);
    }
    digest_full_pages(begin, end);
    release_outrun(end, (start + kPage - 1) / kPage); // undo needs what was there at the start
}

void Session::extend(std::span<const TokenEntry> entries, const RunOptions &options) {
    const uint64_t start = log_.size();
    if (entries.size() > capacity_ - start) {
        fail(Status::full,
             "session full: %zu tokens at position %llu exceed the capacity of %llu positions",
             entries.size(), ull{start}, ull{capacity_});
    }
    if (entries.empty()) {
        return;
    }
    // A system call, and so not for every token that is decoded.
    if (entries.size() > 1 || start % kPage == 0) {
        model_->weights.checkpoint.check_unchanged();
    }
    const size_t chunk = std::min(options.chunk == 0 ? kChunk : options.chunk, kChunkMax);
    WorkspaceLease work(*model_);
    size_t rows = 0;
    try {
        options.watch.step(0, entries.size());
        work->fit(model_->config, std::min(chunk, entries.size()));
        for (size_t done = 0; done < entries.size(); done += rows) {
            rows = std::min(chunk, entries.size() - done);
            run_chunk(*work, entries.subspan(done, rows), start, options);
            options.watch.step(done + rows, entries.size());
        }
        own_outrun(log_.size()); // so that nothing can fail from here on
    } catch (...) {
        roll_back(start);
        throw;
    }
    std::memcpy(hidden_.data(), work->hidden + (rows - 1) * model_->config.hidden,
                model_->config.hidden * sizeof(uint16_t));
    hidden_valid_ = true;
    row_valid_ = false;
    stored_logits_.reset();
    release_outrun(log_.size(), 0);
    for (size_t group = 0; group < pages_.size(); ++group) {
        first_page_[group] = std::max(first_page_[group],
                                      keep_from(model_->groups[group].window, log_.size()) / kPage);
    }
    account();
}

// Makes sure that the final hidden state is there: after a rewind the last token runs once more. It
// runs on copies of its pages, and its keys and values must come out with the bits that they have.
void Session::require_hidden(Workspace &work) {
    const uint64_t position = log_.size();
    if (position == 0) {
        fail(Status::not_found, "no logits before the first position");
    }
    if (hidden_valid_) {
        return;
    }
    const uint32_t token = log_[position - 1].token;
    work.fit(model_->config, 1);
    Session again(*this);
    again.held_bytes_ = 0;
    again.make_writable(position - 1, position);
    again.name_pages(work, position - 1, position);
    forward(*model_, work, {&token, 1}, position - 1);
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        const size_t last = (position - 1) / kPage;
        if (std::memcmp(pages_[group][last].page.data(), again.pages_[group][last].page.data(),
                        model_->pool->shape(group).bytes()) != 0) {
            fail(Status::diverged, "position %llu gives other keys or values than the cache holds",
                 ull{position - 1});
        }
    }
    std::memcpy(hidden_.data(), work.hidden, hidden_.size() * sizeof(uint16_t));
    hidden_valid_ = true;
}

void Session::append(std::span<const uint32_t> tokens, const RunOptions &options) {
    std::vector<TokenEntry> entries(tokens.size());
    const uint8_t turn = next_turn(false);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= model_->config.vocabulary) {
            fail(Status::invalid_argument,
                 "token %u at index %zu is outside the vocabulary of %u tokens", tokens[i], i,
                 model_->config.vocabulary);
        }
        entries[i].token = tokens[i];
        entries[i].turn = i == 0 ? turn : turn & ~TokenEntry::kTurnStart;
    }
    extend(entries, options);
}

std::unique_ptr<Session> Session::fork() {
    std::unique_ptr<Session> child(new Session(*this));
    child->held_bytes_ = 0;
    child->account();
    return child;
}

void Session::swap_timeline(Session &other) {
    std::swap(log_, other.log_);
    std::swap(pages_, other.pages_);
    std::swap(first_page_, other.first_page_);
    std::swap(hidden_, other.hidden_);
    std::swap(hidden_valid_, other.hidden_valid_);
    std::swap(row_, other.row_);
    std::swap(row_valid_, other.row_valid_);
    std::swap(stored_logits_, other.stored_logits_);
    std::swap(held_bytes_, other.held_bytes_);
}

void Session::rewind(uint64_t position, bool recompute, const RunOptions &options) {
    if (position > log_.size()) {
        fail(Status::invalid_argument, "rewind to %llu lies beyond the position %llu",
             ull{position}, ull{log_.size()});
    }
    if (position == log_.size()) {
        if (position == 0) {
            pending_system_.clear(); // to 0 is a reset
        }
        return;
    }
    const uint64_t floor = info().rewind_floor;
    if (position == 0 || position >= floor) {
        Session shorter(*this); // all that can fail happens to the copy
        shorter.held_bytes_ = 0;
        shorter.log_.truncate(position);
        shorter.cut(position);
        shorter.hidden_valid_ = false;
        shorter.row_valid_ = false;
        shorter.stored_logits_.reset();
        if (position == 0) {
            std::fill(shorter.first_page_.begin(), shorter.first_page_.end(), 0);
        }
        shorter.account();
        swap_timeline(shorter);
    } else {
        if (!recompute) {
            fail(Status::unsupported,
                 "rewind to %llu lies below the floor %llu, where local layers have released their "
                 "pages; it needs recomputing (STASIS_REWIND_RECOMPUTE)",
                 ull{position}, ull{floor});
        }
        SessionOptions fresh;
        fresh.capacity = capacity_;
        fresh.window_retain = window_retain_;
        Session again(model_, fresh);
        std::vector<TokenEntry> entries;
        for (uint64_t i = 0; i < position; ++i) {
            entries.push_back(log_[i]);
        }
        RunOptions run = options;
        run.logits = nullptr;
        again.extend(entries, run);
        swap_timeline(again);
    }
    pending_system_.clear();
    if (position == 0) {
        samplings_.clear();
    }
}

} // namespace stasis
