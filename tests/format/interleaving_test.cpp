// A reader among commits, at every interleaving of its calls with theirs: it gets a state that was
// in force while it read, whole, and never an error. Which moment of the commits a call of the
// reader meets only matters by what the call returns, so all different answers are tried, each at
// the earliest moment that gives it: from there every later moment can still follow.
#include <doctest/doctest.h>

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "crash_scenarios.h"
#include "format/reader.h"
#include "format/writer.h"

using namespace stasis;
using namespace stasis::format;

namespace {

const char *const kName = "s.stasis";

void save_states(const FileOperations &files, const std::vector<State> &states) {
    for (const State &state : states) {
        save(state, kPath, {}, files);
    }
}

// The contents of the disk after each operation of a process, and in the midst of writing a slot.
std::vector<Disk> moments_of(const Disk &base, const std::vector<State> &saved) {
    const auto saving = [&](const FileOperations &files) { save_states(files, saved); };
    Disk whole = base;
    REQUIRE(attempt(whole, saving, {}) == Status::ok);
    std::vector<Disk> moments = {base};
    const auto add = [&](int at, size_t bytes) {
        Disk disk = base;
        attempt(disk, saving, {at, Blow::kill, EIO, bytes});
        disk.restart();
        if (disk.image() != moments.back().image()) {
            moments.push_back(disk);
        }
    };
    for (size_t i = 0; i < whole.seen().size(); ++i) {
        const Operation &operation = whole.seen()[i];
        add(static_cast<int>(i), 0);
        if (std::strcmp(operation.name, "write_at") == 0 && operation.offset < kSectionsBegin) {
            add(static_cast<int>(i),
                i % 2 == 0 ? 50 : 2048); // in the midst of the root, or after it
        } else if (std::strcmp(operation.name, "write_at") == 0) {
            add(static_cast<int>(i), operation.bytes / 2);
        }
    }
    whole.restart();
    moments.push_back(whole);
    return moments;
}

std::string answer(const Disk &disk, const Operation &operation) {
    const Bytes &bytes = disk.contents(kName);
    if (std::strcmp(operation.name, "read_at") != 0) {
        return std::to_string(bytes.size());
    }
    const size_t begin = std::min<size_t>(operation.offset, bytes.size());
    const size_t count = std::min<size_t>(operation.bytes, bytes.size() - begin);
    return {reinterpret_cast<const char *>(bytes.data()) + begin, count};
}

// A walk through all answers that a reader may get, one path after the other.
class Paths {
  public:
    explicit Paths(const std::vector<Disk> &moments) : moments_(moments) {}

    // Runs the reader on another path; false: there are no more.
    bool next(const std::function<void(const FileOperations &)> &reader) {
        if (!first_) {
            while (!taken_.empty() && taken_.back() + 1 == options_.back()) {
                taken_.pop_back();
                options_.pop_back();
            }
            if (taken_.empty()) {
                return false;
            }
            ++taken_.back();
        }
        first_ = false;
        call_ = moment_ = 0;
        Disk disk = moments_[0];
        disk.meanwhile([&](const Operation &operation) { step(disk, operation); });
        reader(disk.files());
        return true;
    }
    size_t moment() const { return moment_; } // at which the reader ended

  private:
    void step(Disk &disk, const Operation &operation) {
        std::vector<size_t> choices;
        std::vector<std::string> answers;
        for (size_t i = moment_; i < moments_.size(); ++i) {
            std::string given = answer(moments_[i], operation);
            if (std::find(answers.begin(), answers.end(), given) == answers.end()) {
                answers.push_back(std::move(given));
                choices.push_back(i);
            }
        }
        if (call_ == taken_.size()) {
            taken_.push_back(0);
            options_.push_back(choices.size());
        }
        REQUIRE(options_[call_] == choices.size());
        moment_ = choices[taken_[call_++]];
        disk.become(moments_[moment_]);
    }

    const std::vector<Disk> &moments_;
    std::vector<size_t> taken_, options_; // [call of the reader]
    size_t call_ = 0, moment_ = 0;
    bool first_ = true;
};

struct Case {
    const char *name;
    Disk base;
    std::vector<State> saved; // while the reader reads
};

std::vector<Case> cases() {
    std::vector<Case> all;
    const auto begun = [](const std::vector<State> &states) {
        Disk disk;
        save_states(disk.files(), states);
        disk.restart();
        return disk;
    };
    all.push_back({"behind a first save",
                   begun({small_state(33)}),
                   {small_state(34), small_state(35), small_state(36)}});
    all.push_back({"behind others",
                   begun({small_state(33), small_state(34), small_state(35)}),
                   {small_state(36), small_state(20), small_state(40)}});
    Disk interrupted = begun({small_state(33), small_state(34)});
    const auto longer = [](const FileOperations &files) {
        save(small_state(90), kPath, {}, files);
    };
    attempt(interrupted, longer, {8, Blow::kill});
    interrupted.restart();
    all.push_back(
        {"behind what an interrupted one left", interrupted, {small_state(35), small_state(36)}});
    Scenario streamed{"", {small_state(33)}, {}, {}};
    streamed.streamed = true;
    all.push_back({"behind a stream form", before(streamed), {small_state(34), small_state(35)}});
    return all;
}

// Runs `read` on every path; what it returns is a state that was in force.
void check_all_paths(const Case &each, State (*read)(const FileOperations &)) {
    CAPTURE(each.name);
    const std::vector<Disk> moments = moments_of(each.base, each.saved);
    Disk first = each.base;
    std::vector<State> states = {load(kPath, {}, first.files())};
    states.insert(states.end(), each.saved.begin(), each.saved.end());
    Paths paths(moments);
    std::vector<size_t> found(states.size());
    State state;
    const auto reader = [&](const FileOperations &files) { state = read(files); };
    while (paths.next(reader)) {
        const auto at = std::find_if(states.begin(), states.end(), [&](const State &candidate) {
            return candidate.digest == state.digest;
        });
        REQUIRE(at != states.end());
        const auto index = static_cast<size_t>(at - states.begin());
        if (found[index]++ == 0) {
            check_same(*at, state);
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < states.size(); ++i) {
        CHECK(found[i] > 0); // the reader was early and late
        count += found[i];
    }
    std::printf("a reader among commits %s: %zu moments, %zu paths\n", each.name, moments.size(),
                count);
}

State load_file(const FileOperations &files) {
    return load(kPath, {}, files);
}

// The file as a stream, as another process would send it while it reads it.
State read_sent(const FileOperations &files) {
    struct Sent {
        const FileOperations &files;
        int descriptor;
        off_t at;
    } sent{files, files.open(kPath, O_RDONLY, 0), 0};
    const auto read = [](void *user, void *data, size_t size_bytes) {
        auto *from = static_cast<Sent *>(user);
        const ssize_t count = from->files.read_at(from->descriptor, data, size_bytes, from->at);
        from->at += count;
        return static_cast<size_t>(count);
    };
    const auto snapshot = Snapshot::open_source({&sent, read});
    snapshot->require_newest();
    State state = snapshot->state();
    snapshot->read_pages(state, {});
    return state;
}

} // namespace

TEST_CASE("Snapshot::open: a reader gets a whole state at every interleaving of its calls with "
          "those of commits") {
    for (const Case &each : cases()) {
        check_all_paths(each, load_file);
    }
}

TEST_CASE("Snapshot::open: a file that is sent as a stream is a whole state at every interleaving "
          "with commits") {
    for (const Case &each : cases()) {
        check_all_paths(each, read_sent);
    }
}
