// See crash_scenarios.h.
#include "crash_scenarios.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"

namespace stasis::format {

namespace {

constexpr uint64_t kPositionsMax = 140;

Shape shape(uint64_t seed) {
    return {.position = kPositionsMax, .window_retain = 1000, .seed = seed};
}

// The slots of a page of `state` as `base` has them, from `parting` on as `other` has them.
Page cut(State &state, size_t group, uint64_t index, const State &base, const State &other,
         uint64_t parting) {
    const size_t elements = page_elements(state, group);
    const std::shared_ptr<uint16_t> data = allocate_page(elements);
    Page page;
    page.valid = page_valid(state.log.size(), state.page_positions, index);
    for (size_t i = 0; i < elements; ++i) {
        const size_t slot = i / state.head_dim % state.page_positions;
        const bool parted = index * state.page_positions + slot >= parting;
        const State &from = parted ? other : base;
        data.get()[i] = slot < page.valid ? from.pages[group][index].data[i] : uint16_t{0};
    }
    page.data = data.get();
    state.storage.push_back(data);
    return page;
}

void release_pages(State &state) {
    for (size_t group = 0; group < state.groups.size(); ++group) {
        const uint32_t window = state.groups[group].window;
        for (uint64_t index = 0; window != 0 && index < state.pages[group].size(); ++index) {
            if ((index + 1) * state.page_positions + window <= state.log.size()) {
                state.pages[group][index].data = nullptr;
            }
        }
    }
}

} // namespace

State at(uint64_t position, uint64_t parting) {
    static const State base = sample_state(shape(1));
    static const State other = sample_state(shape(2));
    State state = parting < position ? other : base; // hidden state and logits, too
    state.storage.clear();
    state.window_retain = 0;
    state.log.resize(position);
    std::copy_n(base.log.begin(), std::min(position, parting), state.log.begin());
    for (size_t group = 0; group < state.groups.size(); ++group) {
        state.pages[group].clear();
        for (uint64_t i = 0; i < page_count(position, state.page_positions); ++i) {
            state.pages[group].push_back(cut(state, group, i, base, other, parting));
        }
    }
    for (uint16_t &number : state.hidden) {
        number = static_cast<uint16_t>((number + position) & 0x3FFF); // finite
    }
    if (position == 0) {
        state.hidden.clear();
        state.top.clear();
        state.logits = {};
    }
    seal(state);
    release_pages(state);
    return state;
}

std::vector<Scenario> scenarios() {
    const auto scenario = [](const char *name, std::vector<State> earlier, State next,
                             SaveOptions options = {}) {
        const auto save = [next, options](const FileOperations &files) {
            format::save(next, kPath, options, files);
        };
        return Scenario{name, std::move(earlier), next, save};
    };
    std::vector<Scenario> result = {
        scenario("first save", {}, at(40)),
        scenario("append", {at(40)}, at(70)),
        scenario("append one token", {at(40), at(70)}, at(71)),
        scenario("append after two commits", {at(40), at(70), at(71)}, at(130)),
        scenario("rewind", {at(40), at(100)}, at(50)),
        scenario("fork", {at(40), at(100)}, at(90, 60)),
        scenario("nothing new", {at(40), at(70)}, at(70)),
        scenario("replace", {at(40), at(100)}, at(80, 1), {.replace = true}),
    };
    const auto compacting = [](const FileOperations &files) { compact(kPath, {}, files); };
    result.push_back({"compact", {at(40), at(100), at(60)}, at(60), compacting});
    for (const size_t like : {size_t{0}, result.size() - 2, result.size() - 1}) {
        result.push_back(result[like]);
        result.back().leftover = true;
    }
    return result;
}

Disk before(const Scenario &scenario) {
    Disk disk;
    for (const State &state : scenario.earlier) {
        save(state, kPath, {}, disk.files());
    }
    disk.restart();
    if (scenario.leftover) {
        attempt(disk, scenario.save, {8, Blow::kill});
        disk.restart();
        CHECK(disk.exists("s.stasis.saving"));
    }
    return disk;
}

Status attempt(Disk &disk, const std::function<void(const FileOperations &files)> &save,
               const Fault &fault, std::string *message) {
    Status status = Status::ok;
    disk.strike(fault);
    try {
        save(disk.files());
    } catch (const Error &error) {
        refuse_memory(false);
        status = error.status();
        if (message != nullptr) {
            *message = error.what();
        }
    } catch (const std::bad_alloc &) {
        status = Status::no_memory;
    }
    refuse_memory(false);
    return status;
}

int found(Disk &disk, const std::vector<const State *> &states) {
    if (!disk.exists("s.stasis")) {
        return -1;
    }
    try {
        const State there = load(kPath, {}, disk.files());
        for (size_t i = 0; i < states.size(); ++i) {
            if (there.digest == states[i]->digest) {
                check_same(*states[i], there);
                return static_cast<int>(i);
            }
        }
        FAIL_CHECK("another state, at position " << there.log.size());
    } catch (const Error &error) {
        FAIL_CHECK("no state: " << error.what());
    }
    return -2;
}

void check_next_save(Disk &disk, const State &state) {
    std::string message;
    const auto next = [&](const FileOperations &files) { save(state, kPath, {}, files); };
    const Status status = attempt(disk, next, {}, &message);
    CAPTURE(message);
    REQUIRE(status == Status::ok);
    CHECK(found(disk, {&state}) == 0);
    CHECK(disk.names() == std::vector<std::string>{"s.stasis"});
    CHECK(disk.mode("s.stasis") == 0600);
    Disk rebooted = disk.after({Loss::none});
    CHECK(found(rebooted, {&state}) == 0);
    CHECK(rebooted.names() == std::vector<std::string>{"s.stasis"});
}

} // namespace stasis::format
