// Every allocation of every call of the library fails, one at a time: NO_MEMORY (or OK, if it
// affected speed only), nothing changed, nothing lost, and the same call then succeeds with the
// same outcome. The allocations are those of all threads, of the C heap, the C++ heap and the
// host's allocator, and of the libraries that the library uses.
#include "tests/failures/memory.h"

#include <cstdio>
#include <regex>
#include <set>

#include "tests/failures/trial.h"
#include "tests/places.h"
#include "tests/share.h"

#ifdef STASIS_ADDRESS_SANITIZER
#include <execinfo.h>
#include <sanitizer/lsan_interface.h>
#endif

using namespace abi_test;
using namespace failures;

namespace {

#ifdef STASIS_ADDRESS_SANITIZER
// glibc opens its unwinder once, when it first needs it. What the linker then takes from the malloc
// of this program is a leak to LeakSanitizer, unless something that looks like a pointer hides it.
[[maybe_unused]] const bool unwinder_open = [] {
    const __lsan::ScopedDisabler ignored;
    void *frame = nullptr;
    return backtrace(&frame, 1) >= 0;
}();
#endif

// Calls that cannot fail or cannot report it: tables, and releases.
const std::set<std::string> kCannotFail = {
    "stasis_version",
    "stasis_build",
    "stasis_status_name",
    "stasis_cancel_request",
    "stasis_cancel_reset",
    "stasis_cancel_progress",
    "stasis_cancel_release",
    "stasis_model_close",
    "stasis_session_free",
    "stasis_snapshot_close",
    "stasis_generation_end",
    "stasis_text_stream_free",
    "stasis_scheduler_event_free",
    "stasis_scheduler_stop",
    "stasis_scheduler_close",
    "stasis_threads_free",
    "stasis_store_close",
    "stasis_store_options_init",
    "stasis_store_call_options_init",
    "stasis_model_options_init",
    "stasis_session_options_init",
    "stasis_run_options_init",
    "stasis_sampling_init",
    "stasis_generate_options_init",
    "stasis_draft_options_init",
    "stasis_quantize_options_init",
    "stasis_scheduler_options_init",
    "stasis_prompt_init",
    "stasis_threads_options_init",
    "stasis_embed_options_init",
    "stasis_save_options_init",
    "stasis_load_options_init",
    "stasis_trace_options_init",
    "stasis_verify_options_init",
};

Model fresh_model(const std::string &name) {
    stasis_model *model = nullptr;
    REQUIRE(open_hosted(path_of(name), &model, nullptr) == STASIS_OK);
    return Model(model);
}

// Every allocation up to the first number fails, and after it one of so many, which the run's seed
// selects: the trial of a chat template alone makes 20,000.
const int64_t kEveryUpTo = stasis::test::kSanitized ? (stasis::test::whole_sweeps() ? 20 : 6)
                                                    : (stasis::test::whole_sweeps() ? 600 : 60);
const auto kStep = static_cast<int64_t>((stasis::test::whole_sweeps() ? 29 : 97) *
                                            (stasis::test::kSanitized ? 4 : 1) +
                                        stasis::test::test_seed() % 29);

// How the calls of a row went.
struct AllocationCounts {
    int64_t failed = 0, went_on = 0, spared = 0; // allocations; the second are of the first
    int64_t all = 0;                             // that the call makes, about
};

// Fails the n-th allocation of a row's call. Whether there was one.
bool fail_one(const Row &row, stasis_model *model, int64_t n, AllocationCounts &counts,
              std::string &expected) {
    const std::string name = std::string(row.function) + ", " + row.detail;
    CAPTURE(name);
    CAPTURE(n);
    const Trial trial = row.make(model);
    stasis_error error{};
    fail_allocation(n);
    const stasis_status status = trial.call(&error);
    const Allocation became = end_of_failing();
    CHECK(error.status == status);
    if (status != STASIS_OK) {
        CHECK_MESSAGE(became == Allocation::failed, error.message);
        CHECK_MESSAGE(status == STASIS_NO_MEMORY, error.status, ": ", error.message);
        trial.unharmed();
        const stasis_status again = trial.call(&error);
        CHECK_MESSAGE(again == STASIS_OK, "again: ", error.message);
    }
    const std::string outcome = trial.outcome();
    expected = expected.empty() ? outcome : expected;
    CHECK((outcome == expected)); // too long to be shown
    counts.all = became != Allocation::none ? std::max(counts.all, n + 1) : counts.all;
    counts.failed += became == Allocation::failed ? 1 : 0;
    counts.went_on += became == Allocation::failed && status == STASIS_OK ? 1 : 0;
    counts.spared += became == Allocation::spared ? 1 : 0;
    return became != Allocation::none;
}

// Returns the allocations that were spared. Without failures first: what the call gives, and what
// the process makes once, such as the tables of libcrypto.
int64_t fail_each(const Row &row) {
    const Model kept = row.needs == Needs::warm_model ? fresh_model(row.model) : nullptr;
    std::string expected;
    AllocationCounts counts;
    bool more = true;
    for (int64_t n = -1; more; n += n < kEveryUpTo ? 1 : kStep) {
        const Model own = row.needs == Needs::fresh_model ? fresh_model(row.model) : nullptr;
        more = fail_one(row, kept ? kept.get() : own.get(), n < 0 ? INT64_MAX / 4 : n, counts,
                        expected) ||
               n < 0;
    }
    std::printf("failures: %-28s %-30s %5lld of about %lld allocations failed, "
                "%4lld of them without a loss, %lld spared\n",
                row.function, row.detail, static_cast<long long>(counts.failed),
                static_cast<long long>(counts.all), static_cast<long long>(counts.went_on),
                static_cast<long long>(counts.spared));
    std::fflush(stdout);
#ifdef STASIS_ADDRESS_SANITIZER
    CHECK_MESSAGE(__lsan_do_recoverable_leak_check() == 0, row.function, ", ", row.detail);
#endif
    return counts.spared;
}

// A case of which a part is skipped says so once.
void fail_all(const char *what, const std::vector<Row> &rows) {
    int64_t spared = 0;
    for (const Row &row : rows) {
        spared += fail_each(row);
    }
    if (spared != 0) {
        std::printf("SKIPPED: failures: memory, %s: %lld allocations inside libsentencepiece, "
                    "whose protobuf ends the process when one fails\n",
                    what, static_cast<long long>(spared));
    }
}

std::vector<Row> all_rows() {
    std::vector<Row> rows;
    for (const auto &some : {model_rows(), session_rows(), generate_rows(), constraint_rows(),
                             scheduler_rows(), snapshot_rows(), data_rows(), store_rows()}) {
        rows.insert(rows.end(), some.begin(), some.end());
    }
    return rows;
}

} // namespace

TEST_CASE("failures: every function of the library is in the table, or cannot fail") {
    std::set<std::string> known = kCannotFail;
    for (const Row &row : all_rows()) {
        known.insert(row.function);
    }
    const std::string map = read_file(std::string(places::source) + "/abi/exports.map");
    const std::regex name("(stasis_[a-z_]+);");
    std::set<std::string> exported;
    for (std::sregex_iterator at(map.begin(), map.end(), name), end; at != end; ++at) {
        exported.insert((*at)[1]);
    }
    CHECK(known == exported);
}

TEST_CASE("failures: memory, models") {
    fail_all("models", taken_rows(model_rows()));
}

TEST_CASE("failures: memory, sessions") {
    fail_all("sessions", taken_rows(session_rows()));
}

TEST_CASE("failures: memory, drawing tokens") {
    fail_all("drawing tokens", taken_rows(generate_rows()));
}

TEST_CASE("failures: memory, constraints") {
    fail_all("constraints", taken_rows(constraint_rows()));
}

TEST_CASE("failures: memory, data of hosts and turns") {
    fail_all("data of hosts and turns", taken_rows(data_rows()));
}

TEST_CASE("failures: memory, schedulers") {
    fail_all("schedulers", taken_rows(scheduler_rows()));
}

TEST_CASE("failures: memory, stores") {
    fail_all("stores", taken_rows(store_rows()));
}

TEST_CASE("failures: memory, snapshots") {
    fail_all("snapshots", taken_rows(snapshot_rows()));
}
