// Passes of a batch, and who takes part in them; see batch.h.
#include "runtime/session/batch.h"

#include <algorithm>
#include <cassert>

#include "runtime/session/step.h"

namespace stasis {

namespace {

void pass_on(const StepItem &item, std::span<const float> row) {
    const Seat &seat = *static_cast<const Seat *>(item.owner);
    seat.drawn(seat.user, item.token, row);
}

// A prompt that this pass completes needs no copy to grow in. Parts of a profile have lengths of
// their own.
bool grows_apart(const Seat &seat) {
    return seat.slice < seat.prompt_left() || !seat.session->timeline().profile.id.empty();
}

// Hands the session's trace to the timeline that a pass changes, or back.
void hand_trace(Seat &seat) noexcept {
    if (seat.grown != nullptr) {
        std::swap(seat.grown->trace, seat.session->timeline().trace);
    }
}

// Takes over what a pass made of a prompt. Returns an error of the whole pass.
std::exception_ptr take_prompt(Seat &seat, Append &append) noexcept {
    if (append.error == nullptr) {
        seat.added = append.done - seat.added;
        seat.computed = seat.added - (seat.growing ? 0 : append.reused);
    } else {
        seat.added = 0;
    }
    if (append.error == nullptr && !append.committed) {
        assert(seat.grown != nullptr);
        hand_trace(seat);
        seat.growing.emplace(std::move(append)); // and goes on
        return nullptr;
    }
    seat.growing.reset();
    Timeline &timeline = seat.session->timeline();
    if (append.error != nullptr) {
        hand_trace(seat);
        seat.grown.reset();
        timeline.tell_pages(PageOrigin::before); // instead of the copy's
        seat.error = append.ended_call ? nullptr : append.error;
        return append.ended_call ? append.error : nullptr;
    }
    if (seat.grown != nullptr) { // with the trace
        std::swap(timeline, *seat.grown);
        seat.grown.reset();
    }
    seat.session->settings().pending_system = std::move(seat.prompt.pending_system);
    seat.prompt.entries.clear();
    return nullptr;
}

// Draws, then appends what was drawn and the slices of prompts together.
std::exception_ptr compute(Model &model, std::span<Seat *const> seats) {
    const StepLease buffers(model);
    for (Seat *seat : seats) {
        if (!seat->leaves && !seat->prompts()) {
            buffers->items.push_back({seat->session, {}, true});
            buffers->items.back().owner = seat;
            buffers->items.back().drawn = pass_on;
        } else if (!seat->leaves && !seat->growing && grows_apart(*seat)) {
            seat->grown = std::make_unique<Timeline>(seat->session->timeline());
        }
    }
    for (StepItem &item : buffers->items) {
        buffers->drawing.push_back(&item);
    }
    draw_together(model, buffers->drawing, true, {});
    collect_appends(buffers->items, false, *buffers);

    // From here on nothing throws: prompts move to the appends of the pass and back.
    std::vector<Append> &appends = buffers->appends;
    appends.reserve(appends.size() + seats.size());
    const size_t drawn = appends.size();
    for (Seat *seat : seats) {
        if (seat->leaves || !seat->prompts()) {
            continue;
        }
        if (seat->growing) {
            seat->added = seat->growing->done; // before the pass
            appends.push_back(std::move(*seat->growing));
        } else {
            Timeline &own = seat->session->timeline();
            appends.push_back(
                {seat->grown != nullptr ? seat->grown.get() : &own, seat->prompt.entries});
        }
        appends.back().slice = seat->slice;
        hand_trace(*seat);
    }
    advance_together(model, appends);

    std::exception_ptr whole = nullptr;
    for (size_t i = 0; i < drawn; ++i) {
        buffers->growing[i]->error = appends[i].ended_call ? nullptr : appends[i].error;
        buffers->growing[i]->ended_call = appends[i].ended_call;
        whole = appends[i].ended_call ? appends[i].error : whole;
    }
    for (const StepItem &item : buffers->items) {
        Seat &seat = *static_cast<Seat *>(item.owner);
        seat.error = item.error;
        seat.drew = item.error == nullptr && !item.ended_call;
        seat.token = item.token;
        if (seat.drew) {
            item.session->drew();
        }
    }
    size_t next = drawn;
    for (Seat *seat : seats) {
        if (!seat->leaves && seat->prompts()) {
            const std::exception_ptr error = take_prompt(*seat, appends[next++]);
            whole = error != nullptr ? error : whole;
        }
    }
    return whole;
}

} // namespace

void drop_prompt(Seat &seat) noexcept {
    assert(seat.growing);
    seat.growing.reset();
    seat.grown.reset();
}

void undo_prompt(Seat &seat) noexcept {
    const uint64_t begin = seat.growing->start, end = begin + seat.prompt.entries.size();
    drop_prompt(seat);
    Timeline &timeline = seat.session->timeline();
    timeline.tell_pages(PageOrigin::before); // at most as many as were told, so nothing can fail
    timeline.tell(TraceKind::undone, begin, end);
}

std::exception_ptr run_pass(Model &model, std::span<Seat *const> seats) noexcept {
    for (Seat *seat : seats) {
        seat->drew = false;
        seat->error = nullptr;
        seat->added = seat->computed = 0;
        if (seat->leaves) {
            undo_prompt(*seat);
        }
    }
    try {
        return compute(model, seats);
    } catch (...) {
        for (Seat *seat : seats) { // copies made for appends that did not begin
            if (!seat->growing) {
                seat->grown.reset();
            }
        }
        return std::current_exception();
    }
}

SliceSize::SliceSize(double seconds_most, size_t fixed)
    : seconds_most_(seconds_most), rows_(fixed == 0 ? kLeast : fixed), fixed_(fixed != 0) {}

// A pass with few rows takes longer for each, because the weights are read for all of them once: so
// the number approaches the one that fits from below, and at most doubles.
void SliceSize::note(size_t rows, double seconds) {
    if (fixed_ || rows == 0) {
        return;
    }
    const double each = seconds / static_cast<double>(rows);
    seconds_each_ = seconds_each_ == 0 ? each : (seconds_each_ + each) / 2;
    const double fit = std::min(seconds_most_ / std::max(seconds_each_, 1e-9), double{kMost});
    rows_ = std::clamp(static_cast<size_t>(fit), kLeast, std::min(2 * rows_, kMost));
}

namespace {

// Reports whether another prompt computes pages that this one begins with, and has not had yet.
bool waits_for(const Seat &seat, const Seat &other) {
    const Timeline &own = seat.session->timeline(), &theirs = other.session->timeline();
    const size_t done = other.prompt.entries.size() - other.prompt_left();
    if (!own.shares || own.domain == TimelineOptions::kPrivate || own.domain != theirs.domain ||
        own.long_rope != theirs.long_rope || own.position() != 0 || theirs.position() != 0) {
        return false;
    }
    const std::vector<TokenEntry> &a = seat.prompt.entries, &b = other.prompt.entries;
    const auto same = [](const TokenEntry &x, const TokenEntry &y) { return x.token == y.token; };
    const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end(), same).first;
    return static_cast<size_t>(end - a.begin()) / kPage * kPage > done;
}

} // namespace

void choose_seats(std::span<Seat *const> turns, size_t most, size_t rows,
                  std::vector<Seat *> &chosen) {
    chosen.clear();
    size_t open = 0;
    for (Seat *seat : turns) {
        open += seat->growing ? 1 : 0;
    }
    std::vector<Seat *> prompts;
    size_t draws = 0;
    for (Seat *seat : turns) {
        if (seat->leaves) {
            chosen.push_back(seat);
        } else if (seat->ready && !seat->prompts() && draws < most) {
            chosen.push_back(seat);
            ++draws;
        } else if (seat->ready && seat->prompts()) {
            seat->slice = 0;
            prompts.push_back(seat);
        }
    }

    // Those that have begun, and others up to `most`.
    const auto waits = [&](const Seat *seat) {
        return std::any_of(prompts.begin(), prompts.end(), [&](const Seat *other) {
            return other != seat && (other->growing || other->slice != 0) &&
                   waits_for(*seat, *other);
        });
    };
    std::vector<Seat *> sharing;
    for (Seat *seat : prompts) {
        if (!seat->growing && (open >= most || waits(seat))) {
            continue;
        }
        open += seat->growing ? 0 : 1;
        seat->slice = 1; // until the shares are known: others may wait for it
        sharing.push_back(seat);
    }

    // Equal shares, and what short prompts leave to the first of the others.
    const size_t share = std::max(SliceSize::kLeast, rows / std::max<size_t>(1, sharing.size()));
    size_t left = rows;
    for (Seat *seat : sharing) {
        seat->slice = std::min({seat->prompt_left(), share, left});
        left -= seat->slice;
    }
    for (Seat *seat : sharing) {
        const size_t more = std::min(left, seat->prompt_left() - seat->slice);
        if (seat->slice != 0) {
            seat->slice += more;
            left -= more;
            chosen.push_back(seat);
        }
    }
}

} // namespace stasis
