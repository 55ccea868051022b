// Who takes part in a pass of a batch, and how much of the prompts, with a clock that the test
// counts.
#include "runtime/session/batch.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

TEST_CASE("SliceSize: a pass takes no longer for prompts than it may, at any speed") {
    // Reading the weights takes a time of its own, each row another.
    for (const double each : {1e-5, 1e-3, 4e-3, 0.1}) {
        for (const double weights : {0.0, 0.001, 0.02}) {
            for (const size_t draws : {0U, 1U, 64U}) {
                CAPTURE(each);
                CAPTURE(weights);
                CAPTURE(draws);
                SliceSize size(0.1, 0);
                CHECK(size.rows() == 16);
                for (int pass = 0; pass < 40; ++pass) {
                    const size_t rows = size.rows();
                    const double alone = weights + each * static_cast<double>(draws);
                    const double with = alone + each * static_cast<double>(rows);
                    CHECK((with - alone <= 0.1 + 1e-9 || rows == SliceSize::kLeast));
                    size.note(rows + draws, with);
                }
                const double fits = std::min(0.1 / each, double{SliceSize::kMost});
                CHECK(static_cast<double>(size.rows()) <= std::max(fits + 1, 16.0));
                if (weights == 0) { // and no less than it may
                    CHECK(static_cast<double>(size.rows()) >= std::max(fits - 1, 16.0));
                }
            }
        }
    }
}

TEST_CASE("SliceSize: follows a speed that changes, and stays where it is fixed") {
    SliceSize size(0.1, 0);
    for (int pass = 0; pass < 20; ++pass) {
        size.note(size.rows(), static_cast<double>(size.rows()) * 1e-3);
    }
    CHECK(size.rows() == 100);
    for (int pass = 0; pass < 12; ++pass) { // attention over a longer log
        size.note(size.rows(), static_cast<double>(size.rows()) * 4e-3);
    }
    CHECK(size.rows() == 25);
    SliceSize fixed(0.1, 7);
    fixed.note(7, 100);
    CHECK(fixed.rows() == 7);
}

namespace {

struct Crowd {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Seat> seats;
    std::vector<Seat *> turns, chosen;

    // A prompt of 0 draws.
    Crowd(const std::shared_ptr<Model> &model, std::span<const size_t> prompts,
          uint64_t domain = TimelineOptions::kPrivate) {
        for (const size_t length : prompts) {
            TimelineOptions options;
            options.domain = domain;
            sessions.push_back(std::make_unique<Session>(model, options));
            seats.push_back({sessions.back().get(),
                             sessions.back()->token_prompt(std::vector<uint32_t>(length, 5)),
                             nullptr, nullptr});
            seats.back().ready = true;
        }
        for (Seat &seat : seats) {
            turns.push_back(&seat);
        }
    }
    std::vector<size_t> slices() const {
        std::vector<size_t> all;
        for (const Seat *seat : chosen) {
            all.push_back(seat->slice);
        }
        return all;
    }
};

} // namespace

TEST_CASE("choose_seats: prompts share the rows, and short ones leave theirs to the first") {
    const auto model = open("zoo/gemma3-text");
    const size_t prompts[] = {500, 0, 10, 500, 0, 500};
    Crowd crowd(model, prompts);
    choose_seats(crowd.turns, 10, 100, crowd.chosen);
    CHECK(crowd.slices() == std::vector<size_t>{0, 0, 40, 10, 25, 25});
    choose_seats(crowd.turns, 1, 100, crowd.chosen); // one that draws, one prompt
    CHECK(crowd.slices() == std::vector<size_t>{0, 100});
    choose_seats(crowd.turns, 10, 20, crowd.chosen); // at least 16 each, while there are some
    CHECK(crowd.slices() == std::vector<size_t>{0, 0, 16, 4});
    crowd.seats[0].ready = crowd.seats[1].ready = false;
    choose_seats(crowd.turns, 10, 20, crowd.chosen);
    CHECK(crowd.slices() == std::vector<size_t>{0, 10, 10});
}

TEST_CASE("choose_seats: a prompt waits for pages that another of its domain computes") {
    const auto model = open("zoo/gemma3-text");
    const size_t prompts[] = {130, 200, 63};
    Crowd common(model, prompts, 77);
    choose_seats(common.turns, 10, 100, common.chosen);
    CHECK(common.slices() == std::vector<size_t>{50, 50}); // too short for a page: it waits not
    CHECK(common.chosen[1] == &common.seats[2]);
    Crowd alone(model, prompts);
    choose_seats(alone.turns, 10, 99, alone.chosen);
    CHECK(alone.slices() == std::vector<size_t>{33, 33, 33});
}
