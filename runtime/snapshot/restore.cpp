// See restore.h. The session is new, so nothing remains of it if something throws.
#include "runtime/snapshot/restore.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "format/state/sha256_lanes.h"
#include "runtime/compute/pass.h"
#include "runtime/compute/profile.h"
#include "runtime/host/first_error.h"
#include "runtime/kv/page_staging.h"
#include "runtime/sampling/sampling.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/verify.h"

namespace stasis {

namespace {

// A page to be read.
struct Job {
    uint32_t group;
    uint64_t index;
    PageRef page;                // none: it is known, and only its bytes are checked
    uint16_t *numbers = nullptr; // while its batch is read: where to; null: anywhere
};

// Memory of one thread for pages of which only the bytes are checked, each of its own.
using Unwanted = std::array<std::vector<uint16_t>, kSha256Lanes>;

// Reads the pages of a batch, on all threads, as many a thread at a time as are hashed together.
void read_batch(const Network &network, std::span<const Job> batch, const StoredPages &pages,
                std::vector<Unwanted> &unwanted) {
    FirstError failed;
    const size_t grain = messages_at_a_time(batch.size(), network.threads->count());
    network.threads->run(batch.size(), grain, [&](size_t from, size_t to, size_t thread) {
        failed.guard([&] {
            PageInto into[kSha256Lanes];
            for (size_t i = from; i < to; ++i) {
                const Job &job = batch[i];
                uint16_t *numbers = job.numbers;
                if (numbers == nullptr) {
                    std::vector<uint16_t> &buffer = unwanted[thread][i - from];
                    buffer.resize(network.pool->shape(job.group).elements());
                    numbers = buffer.data();
                }
                into[i - from] = {job.group, job.index, numbers};
            }
            pages.read({into, to - from});
        });
    });
    failed.rethrow();
}

// Reads batch by batch: while pages of one are copied to device memory, the next one is read.
// Progress in bytes, `total` of them.
void read_pages(const Network &network, std::span<Job> jobs, const StoredPages &pages,
                const Watch &watch, uint64_t total) {
    const PagePool &pool = *network.pool;
    PageStaging stagings[2] = {PageStaging(pool), PageStaging(pool)};
    std::vector<Unwanted> unwanted(network.threads->count());
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
        read_batch(network, batch, pages, unwanted);
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

void check_log(const State &state, uint32_t vocabulary) {
    for (const TokenEntry &entry : state.log) {
        if (entry.token >= vocabulary) {
            fail(Status::corrupt, "token %u of the log is outside the vocabulary", entry.token);
        }
        if (entry.source == TokenSource::sampled && entry.sampling >= state.samplings.size()) {
            fail(Status::corrupt, "a token of the log names sampling settings %u of %zu",
                 entry.sampling, state.samplings.size());
        }
    }
}

void check_samplings(const State &state, uint32_t vocabulary) {
    for (const Sampling &sampling : state.samplings) {
        try {
            check_sampling(sampling, vocabulary);
        } catch (const Error &error) {
            fail(Status::corrupt, "stored sampling settings: %s", error.what());
        }
    }
}

// Checks all of a state that needs no page, and returns an empty timeline for it.
Timeline prepare(Model &model, const State &state, const TimelineOptions *options,
                 const Watch &watch) {
    watch.step(0, 0);
    check_identity(state.model, model);
    check_geometry(state, model);
    check_profile(state, model, options != nullptr && options->any_profile);

    TimelineOptions chosen;
    chosen.capacity = std::min<uint64_t>(state.capacity, model.config.context);
    chosen.window_retain = state.window_retain;
    chosen.tracking = static_cast<Tracking>(state.tracking);
    if (options != nullptr) {
        chosen = *options;
    }
    chosen.long_rope = has_long_rope(state.model, model);
    const uint32_t long_from = model.config.long_rope_from();
    if (!*chosen.long_rope && chosen.capacity == 0) { // 0: the most that there may be
        chosen.capacity = long_from;
    }
    Timeline timeline(model, chosen);
    if (!timeline.long_rope && long_from != 0 && timeline.capacity > long_from) {
        fail(Status::unsupported,
             "the snapshot's keys have the RoPE factors of capacities up to %u, and cannot be "
             "continued with a capacity of %llu",
             long_from, Number{timeline.capacity});
    }
    if (state.log.size() > timeline.capacity) {
        fail(Status::full, "the snapshot holds %zu positions, more than the capacity of %llu",
             state.log.size(), Number{timeline.capacity});
    }
    if (!state.log.empty() && state.hidden.size() != model.config.hidden) {
        fail(Status::corrupt, "the final hidden state has %zu values, expected %u",
             state.hidden.size(), model.config.hidden);
    }
    if (model.state_size() != 0 && !state.log.empty() &&
        (state.states.empty() || state.states.back().position != state.log.size())) {
        fail(Status::corrupt, "KV cache: the recurrent state after position %zu is missing",
             state.log.size() - 1);
    }
    if (model.state_size() != 0 && !state.evictions.empty()) {
        fail(Status::corrupt, "positions were evicted, which is impossible in recurrent layers");
    }
    check_log(state, model.config.vocabulary);
    watch.step(0, 0);
    check_samplings(state, model.config.vocabulary);
    watch.step(0, 0);
    timeline.profile.id = state.profile.id; // until its digest was compared
    return timeline;
}

// Throws Error(corrupt) unless a group holds the whole window before the end of the log.
void check_window(const Timeline &timeline, uint32_t group) {
    const uint64_t end = timeline.position(), held = timeline.first_page[group] * kPage;
    const uint32_t window = timeline.network->groups[group].window;
    const uint64_t needed = window == 0 ? 0 : end - std::min<uint64_t>(end, window);
    if (end != 0 && held > needed) {
        fail(Status::corrupt,
             "KV cache: group %u holds nothing before position %llu, the window begins at %llu",
             group, Number{held}, Number{needed});
    }
}

// Fills the page tables, first with memory, then with the file's numbers. Pages that the prefix
// cache knows are held instead of new ones, and read only to see that the file is whole.
void adopt_pages(Timeline &timeline, const State &state, bool trusted, bool skip_known,
                 const StoredPages &pages, const Watch &watch) {
    const Network &network = *timeline.network;
    const Evictions &evictions = timeline.evictions;
    const auto groups = static_cast<uint32_t>(timeline.pages.size());
    const auto keep = [&](uint32_t group) {
        return timeline.keep_from(network.groups[group].window, timeline.position()) / kPage;
    };
    const auto wanted = [&](uint32_t group, uint64_t index) {
        return index >= keep(group) && !evictions.whole(index) && pages.stored(group, index);
    };
    std::vector<PageRef> known = timeline.find_stored(state, trusted, watch); // [page][group]
    const uint64_t count = groups == 0 ? 0 : known.size() / groups;
    for (uint32_t group = 0; group < groups; ++group) { // before any page is taken
        for (uint64_t index = 0; index < count; ++index) {
            if (!wanted(group, index)) {
                known[index * groups + group] = PageRef();
            }
        }
    }

    constexpr uint8_t kKnown = 1, kFile = 2;
    std::vector<uint8_t> came_from(count);
    std::vector<Job> jobs;
    uint64_t total = 0;
    for (uint32_t group = 0; group < groups; ++group) {
        for (uint64_t index = 0; index < count; ++index) {
            const Page &page = state.pages[group][index];
            PageEntry entry{PageRef(), page.digest, page.valid, page.digest, page.valid};
            if (wanted(group, index)) {
                entry.page = std::move(known[index * groups + group]);
                came_from[index] |= entry.page ? kKnown : kFile;
                if (!entry.page || !skip_known) {
                    jobs.push_back({group, index, PageRef(), nullptr});
                    total += network.page_shapes[group].bytes();
                }
                if (!entry.page) {
                    entry.page = jobs.back().page = network.pool->take_unset(group);
                }
            } else if (!pages.stored(group, index) && !evictions.whole(index)) {
                timeline.first_page[group] = index + 1; // released from the beginning on
            }
            timeline.pages[group].push_back(std::move(entry));
        }
        timeline.first_page[group] = std::max(timeline.first_page[group], keep(group));
        check_window(timeline, group);
    }
    timeline.tokens_reused =
        kPage * static_cast<uint64_t>(std::count(came_from.begin(), came_from.end(), kKnown));
    read_pages(network, jobs, pages, watch, total);
}

// Takes over the states of recurrent layers: that of the last position, and checkpoints as far as
// the budget goes, the latest first.
void adopt_states(Timeline &timeline, const State &state, const StoredPages &pages,
                  const Watch &watch) {
    if (!timeline.states.used() || state.log.empty()) {
        return;
    }
    StatePool &pool = *timeline.network->states;
    PagePool &known = *timeline.network->pool;
    std::vector<StateRef> read;
    for (size_t i = state.states.size(); i-- > 0;) {
        StateRef numbers;
        if (read.empty()) {
            numbers = timeline.states.take(state.log.size(), known);
        } else { // a checkpoint, which can be done without
            while (pool.full() && known.drop_oldest_state(false)) {
            }
            try {
                numbers = pool.full() ? StateRef() : pool.take();
            } catch (const Error &) {
            }
        }
        if (!numbers) {
            break;
        }
        pages.read_state(i, numbers.writable());
        read.push_back(std::move(numbers));
        watch.look(0, 0);
    }
    for (size_t i = state.states.size() - read.size(); i < state.states.size(); ++i) {
        const RecurrentState &stored = state.states[i];
        timeline.states.add(stored.position, std::move(read.back()), stored.position);
        read.pop_back();
    }
    timeline.states.thin(state.log.size());
}

void check_digest(Timeline &timeline, const Model &model, const State &state, const Watch &watch) {
    const Digest own = timeline.digest(model.identity_of(timeline.long_rope).model, watch);
    if (own != state.digest) {
        fail(Status::corrupt, "the state's digest is %s, the file says %s", to_hex(own).c_str(),
             to_hex(state.digest).c_str());
    }
}

} // namespace

Settings settings_of(const State &state) {
    Settings settings;
    settings.samplings = state.samplings;
    if (state.sampling < state.samplings.size()) {
        settings.sampling = state.samplings[state.sampling];
    }
    settings.pending_system = state.pending_system;
    settings.host_data = state.host_data;
    return settings;
}

Timeline restore_timeline(Model &model, const State &state, const TimelineOptions *options,
                          const StoredPages &pages, const Watch &watch) {
    Timeline timeline = prepare(model, state, options, watch);
    for (const TokenEntry &entry : state.log) {
        timeline.log.push_back(entry);
    }
    timeline.evictions = Evictions(state.evictions);
    timeline.profile = state.profile;
    Profile profile = state.profile;
    profile.go_on_under(model.profile);
    // What another profile computed is not what its tokens give.
    const bool trusted = options != nullptr && options->trusted && profile.foreign == 0;
    // Pages prove what follows from them, but nothing that a recurrent state says.
    timeline.unproven = trusted ? 0 : timeline.states.used() ? UINT64_MAX : state.log.size();

    const bool skip_known = options != nullptr && options->skip_known;
    adopt_pages(timeline, state, trusted, skip_known, pages, watch);
    adopt_states(timeline, state, pages, watch);
    if (!state.log.empty()) {
        timeline.hidden.numbers = state.hidden;
        timeline.hidden.valid = true;
        timeline.next.stored = state.logits; // compared when they are needed first
    }
    timeline.count_held();
    watch.look(0, 0);
    check_digest(timeline, model, state, watch);
    watch.look(0, 0);
    timeline.profile = std::move(profile);
    timeline.offer_stored(trusted);
    return timeline;
}

std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options, const StoredPages &pages,
                                         const Watch &watch) {
    Timeline timeline = restore_timeline(*model, state, options, pages, watch);
    auto session =
        std::make_unique<Session>(std::move(model), std::move(timeline), settings_of(state));
    session->check_constraint(watch);
    return session;
}

namespace {

// Copies a page that is in memory, here or far, with its unused slots, which may hold anything in a
// live page, set to zero.
void copy_page(const State &state, const PageShape &shape, const PageInto &into) {
    const Page &page = state.pages[into.group][into.index];
    if (page.far) {
        const PageName name{into.group, into.index};
        const FetchedPages fetched = state.fetch({&name, 1});
        fetched.wait();
        std::memcpy(into.data, fetched.numbers[0], shape.bytes());
    } else {
        std::memcpy(into.data, page.data, shape.bytes());
    }
    for (size_t row = 0; row < shape.rows(); ++row) {
        std::fill(into.data + shape.head_elements() * row + page.valid * shape.head_dim,
                  into.data + shape.head_elements() * (row + 1), uint16_t{0});
    }
}

} // namespace

StoredPages pages_of(const State &state, const Model &model) {
    return {[&](size_t group, uint64_t index) { return state.pages[group][index].kept(); },
            [&](std::span<const PageInto> pages) {
                for (const PageInto &into : pages) {
                    copy_page(state, model.page_shapes[into.group], into);
                }
            },
            nullptr,
            [&](size_t index, float *into) {
                std::copy_n(state.states[index].data, state.recurrent.numbers(), into);
            }};
}

std::unique_ptr<Session> restore_session(std::shared_ptr<Model> model, const State &state,
                                         const TimelineOptions *options) {
    const StoredPages pages = pages_of(state, *model);
    return restore_session(std::move(model), state, options, pages, Watch());
}

namespace {

// Compares the digests of all pages, which outlive the pages.
void check_pages(Timeline &timeline, const std::shared_ptr<Model> &model, const State &state,
                 const StoredPages &pages, const Watch &watch) {
    const size_t count = state.pages.empty() ? 0 : state.pages[0].size();
    for (uint64_t index = 0; index < count; ++index) {
        bool equal = true;
        for (size_t group = 0; group < timeline.pages.size(); ++group) {
            equal &= timeline.page_digest_of(group, index) == state.pages[group][index].digest;
        }
        if (equal) {
            continue;
        }
        const std::optional<Divergence> found =
            find_divergence(model, state, pages, {0, watch.silent()}, index);
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

// Compares the final hidden states, that of the last position and those kept at evictions.
void check_hidden(Timeline &timeline, const State &state, const Watch &watch) {
    {
        PassLease pass(*timeline.network);
        timeline.require_hidden(*pass, watch); // known pages may come without it
    }
    if (timeline.hidden.numbers != state.hidden) {
        fail(Status::diverged,
             "the recomputed final hidden state, of position %zu, is not the stored one",
             state.log.size() - 1);
    }
    if (timeline.states.used() && timeline.states.at(state.log.size()).digest(state.log.size()) !=
                                      state.states.back().digest) {
        fail(Status::diverged,
             "the recomputed state of the recurrent layers, after position %zu, is not the stored "
             "one",
             state.log.size() - 1);
    }
    for (size_t i = 0; i < state.evictions.size(); ++i) {
        if (*timeline.evictions.events()[i] != state.evictions[i]) {
            fail(Status::diverged,
                 "the recomputed hidden state of position %llu, kept for a rewind to where "
                 "positions were evicted, is not the stored one",
                 Number{state.evictions[i].position - 1});
        }
    }
}

} // namespace

std::unique_ptr<Session> recompute_session(std::shared_ptr<Model> model, const State &state,
                                           const TimelineOptions *options, const StoredPages &pages,
                                           const Watch &watch) {
    Timeline timeline = prepare(*model, state, options, watch);
    if (state.profile.id != model->profile && !state.profile.chunks.empty()) {
        fail(Status::version,
             "the snapshot keeps no keys and values, and only a model of the profile %s computes "
             "them again",
             state.profile.id.c_str());
    }
    AppendOptions run;
    run.watch = watch;
    run.schedule = &state.profile;
    if (!state.log.empty()) {
        replay(timeline, state.log, Evictions(state.evictions), run);
    }
    watch.look(0, 0);
    check_pages(timeline, model, state, pages, watch);
    watch.look(0, 0);
    if (!state.log.empty()) {
        check_hidden(timeline, state, watch);
    }
    check_digest(timeline, *model, state, watch);
    if (!state.log.empty()) {
        timeline.next.stored = state.logits;
        timeline.logits(watch);
    }
    timeline.profile.go_on_under(model->profile);
    auto session =
        std::make_unique<Session>(std::move(model), std::move(timeline), settings_of(state));
    session->check_constraint(watch);
    return session;
}

} // namespace stasis
