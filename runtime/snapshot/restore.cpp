// A session from a stored state: its pages read into place, or computed again from the log. The
// session is new, so whatever throws leaves nothing behind.
#include <algorithm>
#include <cstring>

#include "runtime/compute/profile.h"
#include "runtime/compute/workspace.h"
#include "runtime/host/first_error.h"
#include "runtime/kv/page_staging.h"
#include "runtime/session/session.h"
#include "runtime/snapshot/verify.h"

namespace stasis {

namespace {

// A page to be read.
struct Job {
    uint32_t group;
    uint64_t index;
    PageRef page;                // none: it is known, and read only to see that the file is whole
    uint16_t *numbers = nullptr; // while its batch is read: where to; null: anywhere
};

// The pages of a batch, on all threads.
void read_batch(const Model &model, std::span<const Job> batch, const StoredPages &pages,
                std::vector<std::vector<uint16_t>> &buffers) {
    FirstError failed;
    model.threads->run(batch.size(), 1, [&](size_t from, size_t to, size_t thread) {
        failed.guard([&] {
            for (const Job &job : batch.subspan(from, to - from)) {
                if (job.numbers == nullptr) {
                    buffers[thread].resize(model.pool->shape(job.group).elements());
                }
                pages.read(job.group, job.index,
                           job.numbers != nullptr ? job.numbers : buffers[thread].data());
            }
        });
    });
    failed.rethrow();
}

// Batch by batch: while far pages of one go to where they belong, the next one is read. Progress in
// bytes, `total` of them.
void read_pages(const Model &model, std::span<Job> jobs, const StoredPages &pages,
                const Watch &watch, uint64_t total) {
    const PagePool &pool = *model.pool;
    PageStaging stagings[2] = {PageStaging(pool), PageStaging(pool)};
    std::vector<std::vector<uint16_t>> buffers(model.threads->count());
    uint64_t done = 0;
    watch.step(done, total);
    for (size_t begin = 0, turn = 0; begin < jobs.size(); ++turn) {
        size_t end = begin;
        const uint64_t before = done;
        while (end < jobs.size() && done - before < pool.memory().batch_bytes) {
            done += pool.shape(jobs[end++].group).bytes();
        }
        const std::span<Job> batch = jobs.subspan(begin, end - begin);
        PageStaging &staging = stagings[turn % 2];
        staging.fit(done - before);
        for (Job &job : batch) {
            job.numbers = job.page ? staging.place(job.page) : nullptr;
        }
        read_batch(model, batch, pages, buffers);
        for (const Job &job : batch) {
            if (job.page) {
                staging.write(job.page, job.numbers);
            }
        }
        watch.step(done, total);
        begin = end;
    }
    for (PageStaging &staging : stagings) {
        staging.finish();
    }
}

} // namespace

// The session still empty, all that needs no page checked.
std::unique_ptr<Session> Session::prepare(std::shared_ptr<Model> model, const State &state,
                                          const SessionOptions *options, const Watch &watch) {
    watch.step(0, 0);
    check_identity(state.model, model->identity);
    check_geometry(state, *model);
    check_profile(state, *model, options != nullptr && options->any_profile);
    SessionOptions chosen;
    chosen.capacity = std::min<uint64_t>(state.capacity, model->config.context);
    chosen.window_retain = state.window_retain;
    chosen.tracking = static_cast<Tracking>(state.tracking);
    if (options != nullptr) {
        chosen = *options;
    }
    auto session = std::make_unique<Session>(model, chosen);
    if (state.log.size() > session->capacity_) {
        fail(Status::full, "the snapshot holds %zu positions, more than the capacity of %llu",
             state.log.size(), Number{session->capacity_});
    }
    if (!state.log.empty() && state.hidden.size() != model->config.hidden) {
        fail(Status::corrupt, "the final hidden state has %zu values, expected %u",
             state.hidden.size(), model->config.hidden);
    }
    for (const TokenEntry &entry : state.log) {
        if (entry.token >= model->config.vocabulary) {
            fail(Status::corrupt, "token %u of the log is outside the vocabulary", entry.token);
        }
        if (entry.source == TokenSource::sampled && entry.sampling >= state.samplings.size()) {
            fail(Status::corrupt, "a token of the log names sampling settings %u of %zu",
                 entry.sampling, state.samplings.size());
        }
    }
    watch.step(0, 0);
    session->adopt_settings(state);
    watch.step(0, 0);
    session->profile_.id = state.profile.id; // until its digest was compared
    return session;
}

void Session::adopt_settings(const State &state) {
    for (const Sampling &sampling : state.samplings) {
        try {
            check_sampling(sampling, model_->config.vocabulary);
        } catch (const Error &error) {
            fail(Status::corrupt, "stored sampling settings: %s", error.what());
        }
    }
    samplings_ = state.samplings;
    if (state.sampling < samplings_.size()) {
        sampling_ = samplings_[state.sampling];
    }
    pending_system_ = state.pending_system;
}

// Fills the page tables: first with memory, then that on all threads.
void Session::adopt_pages(const State &state, const StoredPages &pages, const Watch &watch) {
    std::vector<Job> jobs;
    std::vector<PageRef> known = find_stored(state, watch);    // [page][group]
    for (uint32_t group = 0; group < pages_.size(); ++group) { // before any page is taken
        const uint64_t keep = keep_from(model_->groups[group].window, log_.size()) / kPage;
        for (size_t index = 0; index < state.pages[group].size(); ++index) {
            if (index < keep || evictions_.whole(index) || !pages.stored(group, index)) {
                known[index * pages_.size() + group] = PageRef();
            }
        }
    }
    constexpr uint8_t kKnown = 1, kFile = 2;
    std::vector<uint8_t> came_from((log_.size() + kPage - 1) / kPage);
    uint64_t total = 0;
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        const uint64_t keep = keep_from(model_->groups[group].window, log_.size()) / kPage;
        for (size_t index = 0; index < state.pages[group].size(); ++index) {
            const Page &page = state.pages[group][index];
            PageEntry entry{PageRef(), page.digest, page.valid, page.digest, page.valid};
            const bool stored = pages.stored(group, index), evicted = evictions_.whole(index);
            const bool wanted = stored && index >= keep && !evicted;
            if (wanted) {
                entry.page = std::move(known[index * pages_.size() + group]);
                came_from[index] |= entry.page ? kKnown : kFile;
                jobs.push_back({group, index, PageRef(), nullptr});
                if (!entry.page) {
                    entry.page = jobs.back().page = model_->pool->take_unset(group);
                }
                total += model_->pool->shape(group).bytes();
            } else if (!stored && !evicted) {
                first_page_[group] = index + 1; // pages are released from the beginning on
            }
            pages_[group].push_back(std::move(entry));
        }
        first_page_[group] = std::max(first_page_[group], keep);
        const uint32_t window = model_->groups[group].window;
        const uint64_t needed =
            window == 0 ? 0 : log_.size() - std::min<uint64_t>(log_.size(), window);
        if (!log_.empty() && first_page_[group] * kPage > needed) {
            fail(Status::corrupt,
                 "KV cache: group %u holds nothing before position %llu, the window begins at %llu",
                 group, Number{first_page_[group] * kPage}, Number{needed});
        }
    }
    tokens_reused_ =
        kPage * static_cast<uint64_t>(std::count(came_from.begin(), came_from.end(), kKnown));
    read_pages(*model_, jobs, pages, watch, total);
}

void Session::check_digest(const State &state) {
    const Digest own = digest();
    if (own != state.digest) {
        fail(Status::corrupt, "the state's digest is %s, the file says %s", to_hex(own).c_str(),
             to_hex(state.digest).c_str());
    }
}

std::unique_ptr<Session> Session::restore(std::shared_ptr<Model> model, const State &state,
                                          const SessionOptions *options, const StoredPages &pages,
                                          const Watch &watch) {
    std::unique_ptr<Session> session = prepare(std::move(model), state, options, watch);
    for (const TokenEntry &entry : state.log) {
        session->log_.push_back(entry);
    }
    session->evictions_ = Evictions(state.evictions);
    session->profile_ = state.profile;
    Profile profile = state.profile;
    profile.go_on_under(session->model_->profile);
    session->trusted_ &= profile.foreign == 0; // no others may take it for what its tokens give
    session->unproven_ = session->trusted_ ? 0 : state.log.size();
    session->adopt_pages(state, pages, watch);
    if (!state.log.empty()) {
        session->hidden_ = state.hidden;
        session->hidden_valid_ = true;
        session->stored_logits_ = state.logits; // computed by whoever needs them first
    }
    session->account();
    watch.look(0, 0);
    session->check_digest(state);
    watch.look(0, 0);
    session->profile_ = std::move(profile);
    session->offer_stored();
    return session;
}

std::unique_ptr<Session> Session::restore(std::shared_ptr<Model> model, const State &state,
                                          const SessionOptions *options) {
    const Model &shaped = *model;
    const StoredPages pages{
        [&](size_t group, uint64_t index) { return state.pages[group][index].kept(); },
        [&](size_t group, uint64_t index, uint16_t *data) {
            const Page &page = state.pages[group][index];
            const PageShape &shape = shaped.pool->shape(static_cast<uint32_t>(group));
            if (page.far) {
                const PageName name{group, index};
                const FetchedPages fetched = state.fetch({&name, 1});
                fetched.wait();
                std::memcpy(data, fetched.numbers[0], shape.bytes());
            } else {
                std::memcpy(data, page.data, shape.bytes());
            }
            for (size_t row = 0; row < shape.rows(); ++row) { // unused slots of a live page
                std::fill(data + shape.head_elements() * row + page.valid * shape.head_dim,
                          data + shape.head_elements() * (row + 1), uint16_t{0});
            }
        },
        nullptr};
    return restore(model, state, options, pages, Watch());
}

// Page digests outlive the pages, so all of them can be compared at the end.
void Session::check_pages(const State &state, const StoredPages &pages, const Watch &watch) {
    const size_t count = state.pages.empty() ? 0 : state.pages[0].size();
    for (uint64_t index = 0; index < count; ++index) {
        bool equal = true;
        for (size_t group = 0; group < pages_.size(); ++group) {
            equal &= digest_of(group, index) == state.pages[group][index].digest;
        }
        if (equal) {
            continue;
        }
        const std::optional<Divergence> found =
            find_divergence(model_, state, pages, {0, {watch.cancel, nullptr, nullptr}}, index);
        if (!found || found->layer == Divergence::kNowhere) {
            fail(Status::diverged,
                 "recomputed keys and values of positions %llu to %llu do not give the stored "
                 "digest; the file cannot tell more",
                 Number{index * kPage}, Number{index * kPage + state.pages[0][index].valid - 1});
        }
        fail(Status::diverged,
             "recomputed keys and values differ from the stored ones at position %llu, layer %u",
             Number{found->position}, found->layer);
    }
}

std::unique_ptr<Session> Session::recompute(std::shared_ptr<Model> model, const State &state,
                                            const SessionOptions *options, const StoredPages &pages,
                                            const Watch &watch) {
    std::unique_ptr<Session> session = prepare(std::move(model), state, options, watch);
    if (state.profile.id != session->model_->profile && !state.profile.chunks.empty()) {
        fail(Status::version,
             "the snapshot keeps no keys and values, and only a model of the profile %s computes "
             "them again",
             state.profile.id.c_str());
    }
    RunOptions run;
    run.watch = watch;
    run.schedule = &state.profile;
    if (!state.log.empty()) {
        session->replay(state.log, Evictions(state.evictions), run);
    }
    watch.look(0, 0);
    session->check_pages(state, pages, watch);
    watch.look(0, 0);
    if (!state.log.empty()) { // known pages may come without it
        WorkspaceLease work(*session->model_);
        session->require_hidden(*work);
    }
    if (!state.log.empty() && session->hidden_ != state.hidden) {
        fail(Status::diverged,
             "the recomputed final hidden state, of position %zu, is not the stored one",
             state.log.size() - 1);
    }
    for (size_t i = 0; i < state.evictions.size(); ++i) {
        if (*session->evictions()[i] != state.evictions[i]) {
            fail(Status::diverged,
                 "the recomputed hidden state of position %llu, kept for a rewind to where "
                 "positions were evicted, is not the stored one",
                 Number{state.evictions[i].position - 1});
        }
    }
    session->check_digest(state);
    if (!state.log.empty()) {
        session->stored_logits_ = state.logits;
        session->logits();
    }
    session->profile_.go_on_under(session->model_->profile);
    return session;
}

} // namespace stasis
