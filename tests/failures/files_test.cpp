// Every file operation of every call of the library goes wrong, one at a time: an error, a full
// disk, an interruption, a part of what was asked for, the end of a file. The call ends with IO and
// a message that names the file, or with OK and the right outcome; files are as before or whole,
// sessions as before, no descriptor is lost, and the same call then succeeds.
#include "tests/failures/files.h"

#include <cstdio>
#include <map>

#include "tests/failures/trial.h"
#include "tests/share.h"

using namespace abi_test;
using namespace failures;

namespace {

// A share of the operations after this one fails, mostly reads of one tensor after another.
const int64_t kEvery = stasis::test::kSanitized && !stasis::test::whole_sweeps() ? 4 : 12;

int64_t after(int64_t n) {
    do {
        ++n;
    } while (n > kEvery && !stasis::test::taken(static_cast<size_t>(n)));
    return n;
}

size_t descriptors() {
    size_t count = 0;
    for ([[maybe_unused]] const auto &each : std::filesystem::directory_iterator("/proc/self/fd")) {
        ++count;
    }
    return count;
}

struct FaultCounts {
    int64_t faults = 0, ended = 0; // operations, and those that ended the call
    std::map<std::string, int64_t> calls;
};

// Whether there was an n-th operation that can have the fault.
bool fault_one(const Row &row, stasis_model *model, Fault fault, int64_t n, FaultCounts &counts,
               std::string &expected) {
    const std::string name = std::string(row.function) + ", " + row.detail;
    CAPTURE(name);
    CAPTURE(static_cast<int>(fault));
    CAPTURE(n);
    const size_t open_before = descriptors();
    const char *faulty = nullptr;
    {
        const Trial trial = row.make(model);
        const size_t open_by_trial = descriptors();
        stasis_error error{};
        fail_operation(fault, n);
        const stasis_status status = trial.call(&error);
        faulty = end_of_faults();
        const std::string call = faulty != nullptr ? faulty : "none";
        CAPTURE(call);
        if (status != STASIS_OK) {
            CHECK(faulty != nullptr);
            // A file that is cut short is damaged, and neither saved to nor replaced.
            const bool damaged =
                status == STASIS_CORRUPT ||
                (status == STASIS_INVALID_ARGUMENT &&
                 (contains(error, "the file ends") || contains(error, "no GGUF file") ||
                  contains(error, "not the marker of a store")));
            CHECK_MESSAGE((status == STASIS_IO || (fault == Fault::ended && damaged)), status, ": ",
                          error.message);
            // It names a path, or a file without a name.
            CHECK_MESSAGE((contains(error, "/") || contains(error, "descriptor ")), error.message);
            // After either result of read and write, an interruption or a short count, the caller
            // repeats the call.
            const bool goes_on = fault == Fault::partial || fault == Fault::interrupted;
            CHECK((!goes_on || call.find("read") == call.npos));
            CHECK((!goes_on || call.find("write") == call.npos));
            CHECK(descriptors() == open_by_trial);
            trial.unharmed();
            const stasis_status again = trial.call(&error);
            CHECK_MESSAGE(again == STASIS_OK, "again: ", error.message);
            ++counts.ended;
        }
        const std::string outcome = trial.outcome();
        expected = expected.empty() ? outcome : expected;
        CHECK((outcome == expected));
        counts.faults += faulty != nullptr ? 1 : 0;
        counts.calls[call] += faulty != nullptr ? 1 : 0;
    }
    CHECK(descriptors() == open_before);
    return faulty != nullptr;
}

void fault_each(const Row &row) {
    const Model kept = row.needs == Needs::nothing ? nullptr : [&] {
        stasis_model *model = nullptr;
        REQUIRE(open_hosted(path_of(row.model), &model, nullptr) == STASIS_OK);
        return Model(model);
    }();
    std::string expected;
    FaultCounts counts;
    fault_one(row, kept.get(), Fault::error, INT64_MAX / 4, counts, expected);
    for (const Fault fault :
         {Fault::error, Fault::full, Fault::interrupted, Fault::partial, Fault::ended}) {
        for (int64_t n = 0; fault_one(row, kept.get(), fault, n, counts, expected);) {
            n = after(n);
        }
    }
    if (counts.faults != 0) {
        std::string calls;
        for (const auto &[call, count] : counts.calls) {
            calls += count != 0 ? " " + call + " " + std::to_string(count) : "";
        }
        std::printf("failures: %-28s %-30s %4lld faults, %4lld of them ended the call:%s\n",
                    row.function, row.detail, static_cast<long long>(counts.faults),
                    static_cast<long long>(counts.ended), calls.c_str());
    }
}

} // namespace

TEST_CASE("failures: files, models") {
    for (const Row &row : taken_rows(model_rows())) {
        fault_each(row);
    }
}

TEST_CASE("failures: files, sessions and drawing") {
    for (const auto &rows : {taken_rows(session_rows()), taken_rows(generate_rows())}) {
        for (const Row &row : rows) {
            fault_each(row);
        }
    }
}

TEST_CASE("failures: files, stores") {
    for (const Row &row : taken_rows(store_rows())) {
        fault_each(row);
    }
}

TEST_CASE("failures: files, snapshots") {
    for (const auto &rows :
         {taken_rows(snapshot_rows()), taken_rows(constraint_rows()), taken_rows(data_rows())}) {
        for (const Row &row : rows) {
            fault_each(row);
        }
    }
}
