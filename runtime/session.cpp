// How a session's timeline grows, forks and shrinks; see session.h. Everything that changes it goes
// through extend, cut or swap_timeline.
#include "runtime/session.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/forward.h"

namespace stasis {

namespace {

constexpr uint64_t kPage = kernels::kPagePositions;
constexpr size_t kChunk = 128; // positions computed together unless the caller says otherwise
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
        model_->pool->reserve(group, (positions + kPage - 1) / kPage);
    }
    hidden_.resize(config.hidden);
}

Session::Session(const Session &parent) = default;

Session::~Session() {
    model_->held_bytes -= held_bytes_;
}

// First position that must stay for layers of a window when the next token takes `position`: the
// window of the last token, which a rewind to here runs again, and what the session retains.
uint64_t Session::keep_from(uint32_t window, uint64_t position) const {
    if (window == 0 || position <= window + window_retain_) {
        return 0;
    }
    return position - window - window_retain_;
}

// Keeps the model's count of KV bytes held up to date.
void Session::account() {
    uint64_t bytes = 0;
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t pages =
            pages_[group].size() - std::min<uint64_t>(pages_[group].size(), first_page_[group]);
        bytes += pages * model_->pool->shape(static_cast<uint32_t>(group)).bytes();
    }
    model_->held_bytes += bytes - held_bytes_;
    held_bytes_ = bytes;
}

// Makes every page that holds a position of [begin, end) this session's own, taking new pages and
// copying shared ones.
void Session::make_writable(uint64_t begin, uint64_t end) {
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        PageTable &table = pages_[group];
        for (uint64_t index = begin / kPage; index <= (end - 1) / kPage; ++index) {
            if (index == table.size()) {
                table.push_back({model_->pool->take(group), {}, false});
                continue;
            }
            PageEntry &entry = table.mutate(index);
            if (!entry.page.unique()) {
                PageRef copy = model_->pool->take(group);
                std::memcpy(copy.data(), entry.page.data(), model_->pool->shape(group).bytes());
                entry.page = std::move(copy);
            }
        }
    }
}

// Names for the forward pass all pages that positions [begin, end) may see.
void Session::name_pages(Workspace &work, uint64_t begin, uint64_t end) const {
    work.pages.resize(pages_.size());
    work.first_page.resize(pages_.size());
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint32_t window = model_->groups[group].window;
        const uint64_t low = window == 0 || begin < window ? 0 : begin - window + 1;
        const size_t first = low / kPage;
        work.first_page[group] = first;
        work.pages[group].clear();
        for (size_t index = first; index <= (end - 1) / kPage; ++index) {
            work.pages[group].push_back(pages_[group][index].page.data());
        }
    }
}

// Digests the pages that became full between two positions, all at once.
void Session::digest_full_pages(uint64_t begin, uint64_t end) {
    const uint64_t first = begin / kPage, count = end / kPage - first;
    if (count == 0) {
        return;
    }
    std::vector<PageEntry *> entries;
    for (PageTable &table : pages_) {
        for (uint64_t index = first; index < first + count; ++index) {
            entries.push_back(&table.mutate(index));
        }
    }
    std::atomic<bool> failed{false};
    model_->threads->run(entries.size(), 1, [&](size_t from, size_t to) {
        for (size_t i = from; i < to; ++i) {
            const auto group = static_cast<uint32_t>(i / count);
            const PageShape &shape = model_->pool->shape(group);
            try {
                entries[i]->digest = page_digest(group, first + i % count, entries[i]->page.data(),
                                                 shape.rows(), kPage, kPage, shape.head_dim);
                entries[i]->digested = true;
            } catch (...) {
                failed = true;
            }
        }
    });
    if (failed) {
        fail(Status::no_memory, "out of memory while digesting KV pages");
    }
}

// Lets go of local layers' pages that no query from `position` on needs, starting at a page.
void Session::release_outrun(uint64_t position, uint64_t from_page) {
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t keep = keep_from(model_->groups[group].window, position) / kPage;
        for (uint64_t index = std::max(from_page, first_page_[group]);
             index < std::min<uint64_t>(keep, pages_[group].size()); ++index) {
            if (pages_[group][index].page) {
                pages_[group].mutate(index).page = PageRef();
            }
        }
    }
}

// Calls the caller back with the logits of each row.
void Session::report_logits(Workspace &work, size_t rows, uint64_t begin,
                            const RunOptions &options) {
    for (size_t row = 0; row < rows; ++row) {
        project_logits(*model_, work.hidden + row * model_->config.hidden, work.logits);
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
    forward(*model_, work, work.tokens, begin, options.logits != nullptr);
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
    model_->weights.checkpoint.check_unchanged();
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
    } catch (...) {
        roll_back(start);
        throw;
    }
    std::memcpy(hidden_.data(), work->hidden + (rows - 1) * model_->config.hidden,
                model_->config.hidden * sizeof(uint16_t));
    hidden_valid_ = true;
    release_outrun(log_.size(), 0);
    for (size_t group = 0; group < pages_.size(); ++group) {
        first_page_[group] = std::max(first_page_[group],
                                      keep_from(model_->groups[group].window, log_.size()) / kPage);
    }
    account();
}

// Undoes a failed extend: the paths and pages it touched are this session's own, so nothing here
// needs memory. Slots that it wrote may hold anything: they become zero again (C9).
void Session::roll_back(uint64_t position) {
    log_.truncate(position);
    cut(position);
    if (position % kPage == 0) {
        return;
    }
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        PageTable &table = pages_[group];
        const size_t last = position / kPage;
        if (last >= table.size() || !table[last].page || table.shared(last) ||
            !table[last].page.unique()) {
            continue; // never written by this call
        }
        const PageShape &shape = model_->pool->shape(group);
        for (size_t row = 0; row < shape.rows(); ++row) {
            uint16_t *slots = table.mutate(last).page.data() + row * shape.head_elements();
            std::fill(slots + (position % kPage) * shape.head_dim, slots + shape.head_elements(),
                      uint16_t{0});
        }
    }
}

// Cuts the page tables to the pages that hold positions below `position`.
void Session::cut(uint64_t position) {
    for (PageTable &table : pages_) {
        table.truncate((position + kPage - 1) / kPage);
        if (position % kPage != 0 && position / kPage < table.size() &&
            table[position / kPage].digested) {
            table.mutate(position / kPage).digested = false; // no longer full
        }
    }
}

// Makes sure that the final hidden state is there: after a rewind the last token runs once more.
// Its keys and values come out with the bits that they have.
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
    make_writable(position - 1, position);
    name_pages(work, position - 1, position);
    forward(*model_, work, {&token, 1}, position - 1, false);
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
        entries[i].turn = turn;
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
    std::swap(held_bytes_, other.held_bytes_);
}

void Session::rewind(uint64_t position, bool recompute, const RunOptions &options) {
    if (position > log_.size()) {
        fail(Status::invalid_argument, "rewind to %llu lies beyond the position %llu",
             ull{position}, ull{log_.size()});
    }
    if (position == log_.size()) {
        pending_system_.clear();
        return;
    }
    const uint64_t floor = info().rewind_floor;
    if (position == 0 || position >= floor) {
        Session shorter(*this); // all that can fail happens to the copy
        shorter.held_bytes_ = 0;
        shorter.log_.truncate(position);
        shorter.cut(position);
        shorter.hidden_valid_ = false;
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
}

SessionInfo Session::info() const {
    SessionInfo info{};
    info.position = log_.size();
    info.capacity = capacity_;
    info.window = model_->groups.back().window;
    info.window_retain = window_retain_;
    info.pending_bytes = pending_system_.size();
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t kept = first_page_[group] * kPage;
        info.window_begin = std::max(info.window_begin, kept);
        if (kept > 0) {
            info.rewind_floor = std::max(info.rewind_floor, kept + model_->groups[group].window);
        }
        const uint64_t bytes = model_->pool->shape(static_cast<uint32_t>(group)).bytes();
        for (size_t index = first_page_[group]; index < pages_[group].size(); ++index) {
            const bool shared = pages_[group].shared(index) || !pages_[group][index].page.unique();
            ++(shared ? info.pages_shared : info.pages_own);
            info.kv_bytes += bytes;
        }
    }
    return info;
}

void Session::copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys,
                      uint16_t *values) {
    const auto [group, layer_in_group] = model_->layer_group[layer];
    const PageShape &shape = model_->pool->shape(group);
    for (uint64_t position = begin; position < end; ++position) {
        const PageEntry &entry = pages_[group][position / kPage];
        if (!entry.page) {
            fail(Status::not_found, "layer %u has released position %llu (window of %u)", layer,
                 ull{position}, model_->groups[group].window);
        }
        for (size_t head = 0; head < shape.kv_heads; ++head) {
            const size_t slot = (position % kPage) * shape.head_dim;
            const size_t to = ((position - begin) * shape.kv_heads + head) * shape.head_dim;
            const size_t size_bytes = shape.head_dim * sizeof(uint16_t);
            std::memcpy(keys + to, entry.page.data() + shape.offset(layer_in_group, 0, head) + slot,
                        size_bytes);
            std::memcpy(values + to,
                        entry.page.data() + shape.offset(layer_in_group, 1, head) + slot,
                        size_bytes);
        }
    }
}

} // namespace stasis
