// See crash_scenarios.h.
#include "crash_scenarios.h"

#include <doctest/doctest.h>

#include <fcntl.h>

#include <cstring>
#include <new>

#include "format/reader.h"
#include "format/writer.h"

namespace stasis::format {

namespace {

// As it is loaded from a file that keeps neither keys and values nor recurrent states.
State without_pages(State state) {
    for (std::vector<Page> &pages : state.pages) {
        for (Page &page : pages) {
            page.data = nullptr;
        }
    }
    for (RecurrentState &each : state.states) {
        each.data = nullptr;
    }
    return state;
}

// A session of a hybrid model.
State hybrid_at(uint64_t position) {
    return sample_state({.position = position, .layers = 2, .checkpoints = 30});
}

} // namespace

State at(uint64_t position, uint64_t parting) {
    const bool parted = parting < position;
    return sample_state(
        {.position = position, .seed = parted ? 2U : 1U, .common = parted ? parting : 0});
}

std::vector<Scenario> scenarios() {
    const auto scenario = [](const char *name, std::vector<State> earlier, State next,
                             SaveOptions options = {}) {
        const auto save = [next, options](const FileOperations &files) {
            format::save(next, kPath, options, files);
        };
        const State found = options.keep == Keep::none ? without_pages(next) : next;
        return Scenario{name, std::move(earlier), found, save};
    };
    std::vector<Scenario> result = {
        scenario("first save", {}, at(40)),
        scenario("append", {at(40)}, at(70)),
        scenario("append one token", {at(40), at(70)}, at(71)),
        scenario("append after two commits", {at(40), at(70), at(71)}, at(130)),
        scenario("rewind", {at(40), at(100)}, at(50)),
        scenario("fork", {at(40), at(100)}, at(90, 60)),
        scenario("nothing new", {at(40), at(70)}, at(70)),
        scenario("compressed", {at(40), at(70)}, at(100), {.codec = Codec::zstd}),
        scenario("keep nothing", {at(40), at(70)}, at(100), {.keep = Keep::none}),
        scenario("append, of a hybrid", {hybrid_at(40), hybrid_at(70)}, hybrid_at(100)),
        scenario("compressed, of a hybrid", {hybrid_at(40)}, hybrid_at(65), {.codec = Codec::zstd}),
        scenario("keep nothing of a hybrid", {hybrid_at(40)}, hybrid_at(65), {.keep = Keep::none}),
        scenario("data that stays and changes", {with_data(at(40), 3000), with_data(at(70), 3000)},
                 with_data(at(71), 2000, 2)),
        scenario("data that goes", {with_data(at(40), 3000)}, at(41)),
        scenario("append to a stream form", {at(40), at(70)}, at(100)),
    };
    const auto compacting = [](const FileOperations &files) { compact(kPath, {}, files); };
    result.back().streamed = true;
    result.push_back(scenario("replace", {at(40), at(100)}, at(80, 1), {.replace = true}));
    result.push_back({"compact", {at(40), at(100), at(60)}, at(60), compacting});
    result.push_back(
        {"compact a hybrid", {hybrid_at(70), hybrid_at(65)}, hybrid_at(65), compacting});
    for (const size_t like : {size_t{0}, result.size() - 3, result.size() - 2}) {
        result.push_back(result[like]);
        result.back().leftover = true;
    }
    return result;
}

namespace {

// The file gets the stream form of a state in place of what it holds.
void put_stream(const FileOperations &files, const State &state) {
    Bytes bytes;
    const auto take = [](void *user, const void *data, size_t size_bytes) {
        const auto *begin = static_cast<const uint8_t *>(data);
        auto *all = static_cast<Bytes *>(user);
        all->insert(all->end(), begin, begin + size_bytes);
    };
    write_stream(state, {&bytes, take}, {});
    const File file(files, files.open(kPath, O_RDWR, 0), kPath);
    file.set_size(0);
    file.write(bytes.data(), bytes.size(), 0);
    file.sync();
}

} // namespace

Disk before(const Scenario &scenario) {
    Disk disk;
    for (const State &state : scenario.earlier) {
        save(state, kPath, {}, disk.files());
    }
    if (scenario.streamed) {
        put_stream(disk.files(), scenario.earlier.back());
    }
    disk.restart();
    if (scenario.leftover) {
        Disk whole = disk;
        attempt(whole, scenario.save, {});
        int rename = 0;
        while (std::strcmp(whole.seen().at(static_cast<size_t>(rename)).name, "rename") != 0) {
            ++rename;
        }
        attempt(disk, scenario.save, {rename, Blow::kill});
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
        FAIL_CHECK("no state: " << std::string(error.what()));
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
