// Sessions that are computed together over many passes: each first appends its prompt, slice by
// slice in one transaction, and then draws a token in each pass that it takes part in. The parts of
// a step make the passes, so each session gets the bits that it gets alone. Between two passes a
// session has its whole prompt or nothing of it. Knows neither text nor who may use the sessions
// meanwhile.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/session/session.h"
#include "runtime/timeline/append.h"

namespace stasis {

// The place of one session in a batch.
struct Seat {
    Session *session;
    Prompt prompt; // its entries: empty once they are in the log
    // Takes a token that was drawn, before it is appended: what may fail must fail here.
    void (*drawn)(void *user, uint32_t token, std::span<const float> row);
    void *user;

    // A prompt of several slices grows in a copy of the timeline, which becomes the session's with
    // the last of them: until then the session is as it was, and can be read.
    std::unique_ptr<Timeline> grown = {};
    std::optional<Append> growing = {}; // of the copy, from its first slice to its last
    bool ready = false;                 // may take part in the next pass
    // In the next pass: rows of the prompt, and whether the prompt is undone.
    size_t slice = 0;
    bool leaves = false;
    // Of the last pass: whether a token was drawn and appended, which, and why not.
    bool drew = false;
    uint32_t token = 0;
    // Entries of the prompt that the last pass added, and how many of them it computed itself.
    size_t added = 0, computed = 0;
    std::exception_ptr error = nullptr; // the session is as it was before the prompt or the token

    bool prompts() const { return !prompt.entries.empty(); }
    // Returns the entries of the prompt that are not in the log.
    size_t prompt_left() const {
        return prompt.entries.size() - (growing ? growing->done : size_t{0});
    }
};

// Runs a pass for the seats. A session's own error is its seat's. Returns the error of the whole
// pass, null if there is none: then seats that neither drew nor have an error are as before the
// pass, or as before their prompt, and a later pass goes on.
std::exception_ptr run_pass(Model &model, std::span<Seat *const> seats) noexcept;

// Forgets that a prompt has begun, and tells the session's trace.
void undo_prompt(Seat &seat) noexcept;
// The same without a word to the trace, which learns of the pages with the session's next change:
// for those who do not hold the session.
void drop_prompt(Seat &seat) noexcept;

// How many rows of prompts a pass computes: as many as fit in a time at the speed of the last
// passes that had some.
class SliceSize {
  public:
    static constexpr size_t kLeast = 16, kMost = 1024;

    // `fixed` 0: by the speed.
    SliceSize(double seconds_most, size_t fixed);
    size_t rows() const { return rows_; }
    // Takes the time of a pass with prompts, and all its rows.
    void note(size_t rows, double seconds);

  private:
    double seconds_most_, seconds_each_ = 0;
    size_t rows_;
    bool fixed_;
};

// Chooses those who take part in the next pass, of seats in the order of their turns: up to `most`
// that draw, and up to `most` prompts, which share `rows` and have their slices set. A prompt waits
// while another computes pages that it can take from the prefix cache afterwards. Seats that leave
// take part in any case. Throws std::bad_alloc.
void choose_seats(std::span<Seat *const> turns, size_t most, size_t rows,
                  std::vector<Seat *> &chosen);

} // namespace stasis
