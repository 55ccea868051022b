// Files that a save may replace or must refuse, saves at the same time, and how a save is watched
// and cancelled.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "format/reader.h"
#include "format/writer.h"
#include "sample.h"

using namespace stasis;
using namespace stasis::format;

namespace {

// The refusal of a save of `state`, with its status before it; "" where it succeeds. Whatever it
// refuses must leave no temporary file.
std::string refused(const State &state, const std::string &path, const SaveOptions &options = {}) {
    try {
        save(state, path, options);
    } catch (const Error &error) {
        CHECK(!std::filesystem::exists(path + ".saving"));
        return std::to_string(static_cast<int>(error.status())) + ": " + error.what();
    }
    return "";
}

bool contains(const std::string &text, const char *part) {
    CAPTURE(text);
    CAPTURE(part);
    const bool found = text.find(part) != std::string::npos;
    CHECK(found);
    return found;
}

State with_first_token(uint32_t token) {
    State state = sample_state({.position = 40});
    state.log[0].token = token;
    state.token_texts.clear();
    seal(state);
    return state;
}

} // namespace

TEST_CASE(
    "save: an existing file is replaced if it is an earlier or other course of the same session") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State empty = sample_state({.position = 0});
    for (const State &state :
         {sample_state({.position = 40}), sample_state({.position = 90}),
          sample_state({.position = 33, .seed = 9}), empty, with_first_token(7)}) {
        CHECK(refused(state, path) == "");
        check_same(state, load(path, {}));
    }
}

TEST_CASE("save: another file is replaced only on request") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = sample_state({.position = 40});
    State other_model = sample_state({.position = 40});
    other_model.model.model.bytes[0] ^= 1;
    seal(other_model);
    Bytes damaged = saved(state);
    damaged[5000] ^= 1;
    const Bytes future = forged(saved(state), [](State &, Layout &) {});

    const auto keeps = [&](const Bytes &old, const char *reason) {
        write_bytes(path, old);
        const std::string message = refused(state, path);
        contains(message, "1: ");
        contains(message, "not written to unless it may be replaced");
        contains(message, reason);
        CHECK(read_bytes(path) == old);
        CHECK(refused(state, path, {.replace = true}) == "");
        check_same(state, load(path, {}));
    };
    keeps(saved(other_model), "it belongs to another model");
    keeps(saved(with_first_token(7)), "its log begins with token 7, this session's with 2");
    keeps(damaged, "a root slot is damaged");
    keeps({}, "not a snapshot: 0 bytes");
    keeps({'m', 'y', ' ', 't', 'e', 'x', 't'}, "not a snapshot: 7 bytes");
}

TEST_CASE(
    "save: a file with features that may be read but not written is replaced only on request") {
    const ScratchFolder folder;
    const State state = sample_state({.position = 40});
    Bytes bytes = saved(state);
    Root root = read_root(bytes);
    root.features_ignore = 8;
    root.features_read = 8;
    write_root(bytes, root);
    write_bytes(folder.path("s"), bytes);
    check_same(state, load(folder.path("s"), {}));
    contains(refused(state, folder.path("s")), "it uses features 0000000000000008");
    CHECK_THROWS_AS(compact(folder.path("s"), {}), Error);
    CHECK(read_bytes(folder.path("s")) == bytes);
}

TEST_CASE("save: a save never writes through a link or onto anything but a regular file") {
    const ScratchFolder folder;
    const State state = sample_state({.position = 40});
    const SaveOptions replace{.replace = true};
    save(state, folder.path("target"), {});
    const Bytes before = read_bytes(folder.path("target"));
    std::filesystem::create_symlink(folder.path("target"), folder.path("link"));
    std::filesystem::create_symlink(folder.path("nowhere"), folder.path("dangling"));
    std::filesystem::create_directory(folder.path("directory"));
    REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
    for (const SaveOptions &options : {SaveOptions{}, replace}) {
        contains(refused(state, folder.path("link"), options), "link: is a symbolic link");
        contains(refused(state, folder.path("dangling"), options), "is a symbolic link");
        contains(refused(state, folder.path("directory"), options), "is a directory");
        contains(refused(state, folder.path("pipe"), options), "is a device, pipe or socket");
    }
    CHECK(read_bytes(folder.path("target")) == before);
    CHECK(!std::filesystem::exists(folder.path("nowhere")));
    contains(refused(state, folder.path("no/such/folder")), "3: ");
    CHECK_THROWS_AS(load(folder.path("pipe"), {}), Error); // and does not wait for a writer
    CHECK_THROWS_AS(load(folder.path("directory"), {}), Error);
}

TEST_CASE("save: files are private, whatever stood there before") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = sample_state({.position = 40});
    const mode_t mask = umask(0);
    save(state, path, {});
    umask(mask);
    struct stat status {};
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
    REQUIRE(chmod(path.c_str(), 0640) == 0);
    save(state, path, {});
    CHECK(Snapshot::open(path)->root().sequence == 1); // a new file, not a commit
    REQUIRE(stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
}

TEST_CASE("save: a second save of the same path is refused while one is running") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = sample_state({.position = 40});
    const int held = open((path + ".saving").c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(held >= 0);
    REQUIRE(flock(held, LOCK_EX) == 0);
    try {
        save(state, path, {});
        FAIL("saved beside a running save");
    } catch (const Error &error) {
        CHECK(error.status() == Status::busy);
    }
    CHECK(std::filesystem::exists(path + ".saving")); // the other save's
    close(held);
    save(state, path, {}); // a leftover by now
    CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("save: the lock ends with the save, whoever has inherited the descriptor") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    static std::vector<int> inherited; // as between fork and exec of a process of another thread
    FileOperations files = system_files();
    files.lock = [](int descriptor) {
        inherited.push_back(dup(descriptor));
        return system_files().lock(descriptor);
    };
    for (const uint64_t position : {40, 41, 90}) { // a new file, a commit, a commit
        const State state = sample_state({.position = position});
        save(state, path, {}, files);
        CHECK(load(path, {}).digest == state.digest);
    }
    CHECK(inherited.size() >= 3);
    for (const int descriptor : inherited) {
        close(descriptor);
    }
    inherited.clear();
}

TEST_CASE("save: saves that race leave one of their files, whole") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State states[2] = {sample_state({.position = 40}), sample_state({.position = 90})};
    std::atomic<int> done{0};
    std::atomic<int> other{0};
    const auto saver = [&](const State &state) {
        for (int i = 0; i < 50; ++i) {
            try {
                save(state, path, {});
                ++done;
            } catch (const Error &error) {
                other += error.status() == Status::busy ? 0 : 1;
            }
        }
    };
    std::thread first(saver, std::cref(states[0]));
    std::thread second(saver, std::cref(states[1]));
    first.join();
    second.join();
    CHECK(done > 0);
    CHECK(other == 0);
    const Digest digest = load(path, {}).digest;
    CHECK((digest == states[0].digest || digest == states[1].digest));
    CHECK(folder.names() == std::vector<std::string>{"s"});
}

TEST_CASE("save: a file in the way that no save has left is not removed") {
    const ScratchFolder folder;
    const Bytes mine = {'m', 'i', 'n', 'e', ' ', 'a', 'l', 'o', 'n', 'e'};
    write_bytes(folder.path("s.saving"), mine);
    const State state = sample_state({.position = 40});
    CHECK_THROWS_AS(save(state, folder.path("s"), {}), Error);
    CHECK(read_bytes(folder.path("s.saving")) == mine);
    std::filesystem::remove(folder.path("s.saving"));
    std::filesystem::create_symlink(folder.path("elsewhere"), folder.path("s.saving"));
    CHECK_THROWS_AS(save(state, folder.path("s"), {}), Error);
    CHECK(!std::filesystem::exists(folder.path("elsewhere")));
}

TEST_CASE("save: saving and loading report rising bytes, and can be stopped and cancelled at each "
          "report") {
    const ScratchFolder folder;
    const std::string path = folder.path("s");
    const State state = sample_state({.position = 600, .head_dim = 256, .page_positions = 256});
    save(sample_state({.position = 40}), path, {});
    const Digest before = load(path, {}).digest;

    struct Progress {
        std::vector<uint64_t> done = {};
        uint64_t total = 0;
        size_t stop_at = SIZE_MAX;
    };
    const ProgressFunction note = [](void *user, uint64_t done, uint64_t total) {
        auto *progress = static_cast<Progress *>(user);
        progress->done.push_back(done);
        progress->total = total;
        return progress->done.size() <= progress->stop_at;
    };
    Progress whole;
    const std::string other = folder.path("other");
    save(state, other, {.watch = {nullptr, note, &whole}});
    CHECK(std::is_sorted(whole.done.begin(), whole.done.end()));
    CHECK(whole.done.front() == 0);
    CHECK(whole.done.back() == whole.total);
    for (size_t i = 1; i < whole.done.size(); ++i) {
        CHECK(whole.done[i] - whole.done[i - 1] <= kChunkBytes);
    }
    Progress committing;
    const std::string copy = folder.path("copy");
    write_bytes(copy, read_bytes(path));
    save(state, copy, {.watch = {nullptr, note, &committing}});
    CHECK(committing.total == whole.total); // nothing is shared: another head_dim
    for (size_t stop = 0; stop < committing.done.size(); ++stop) {
        Progress stopped{.stop_at = stop};
        CHECK(refused(state, path, {.watch = {nullptr, note, &stopped}}).starts_with("14: "));
        CHECK(load(path, {}).digest == before);
        CHECK(std::filesystem::file_size(path) == Snapshot::open(path)->file_bytes()); // cut
    }
    const std::atomic<bool> cancel{true};
    CHECK(refused(state, path, {.watch = {&cancel}}).starts_with("11: "));
    CHECK(load(path, {}).digest == before);

    Progress loading;
    load(other, {nullptr, note, &loading});
    CHECK(std::is_sorted(loading.done.begin(), loading.done.end()));
    CHECK(loading.done.back() == loading.total);
    CHECK_THROWS_AS(load(other, {.cancel = &cancel}), Error);
}

TEST_CASE("save: a state that contradicts itself is not saved") {
    const ScratchFolder folder;
    const auto refuses = [&](const char *why, const std::function<void(State &)> &change) {
        State state = sample_state({.position = 150});
        change(state);
        const std::string message = refused(state, folder.path("s"));
        contains(message, "1: ");
        contains(message, why);
        CHECK(folder.names().empty());
    };
    refuses("state digest", [](State &s) { s.digest.bytes[0] ^= 1; });
    refuses("page 0 of layer group 0 is not stored",
            [](State &s) { s.pages[0][0].data = nullptr; });
    refuses("page 4 of layer group 1 is not stored, but the page before it is",
            [](State &s) { s.pages[1].back().data = nullptr; });
    refuses("page 3 of layer group 1 is not stored, window 40 at position 150 needs it",
            [](State &s) { s.pages[1][3].data = nullptr; });
    refuses("valid slots", [](State &s) { s.pages[0].back().valid = 32; });
    refuses("pages, 150 positions", [](State &s) { s.pages[0].pop_back(); });
    refuses("hidden state", [](State &s) { s.hidden.pop_back(); });
    refuses("token texts", [](State &s) { std::swap(s.token_texts[0], s.token_texts[1]); });
    refuses("in force", [](State &s) { s.sampling = 2; });
    for (const BadSetting &bad : bad_settings()) {
        refuses(bad.message.c_str(), [&](State &s) { bad.change(s.samplings[1]); });
    }
    refuses("hidden state: the bf16 bits 7f80 at index 2", [](State &s) {
        s.hidden[2] = 0x7F80;
        seal(s);
    });
    refuses("page 4 of layer group 1: the bf16 bits ffc0 at position 128", [](State &s) {
        const_cast<uint16_t *>(s.pages[1][4].data)[0] = 0xFFC0;
        seal(s);
    });
}

TEST_CASE("save: a page behind the window is kept if the state still has it") {
    const State all = sample_state({.position = 150, .window_retain = 1000});
    const State few = sample_state({.position = 150});
    CHECK(all.digest == few.digest);
    check_same(all, [&] {
        const Bytes bytes = saved(all);
        const auto snapshot = Snapshot::open("memory", memory_files(bytes));
        State state = snapshot->state();
        snapshot->read_pages(state, {});
        return state;
    }());
    // Window 40 at position 150: position 110 is the first that the last token saw, in page 3.
    CHECK(few.pages[1][2].data == nullptr);
    CHECK(few.pages[1][3].data != nullptr);
}
