// The directory as a store: what it is made of, what it refuses, what a killed writer leaves, and
// every operation on files failing in turn.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backends.h"

using namespace stasis;
using namespace stasis::format;
namespace fs = std::filesystem;

namespace {

mode_t mode_at(const std::string &path) {
    struct stat status {};
    REQUIRE(lstat(path.c_str(), &status) == 0);
    return status.st_mode & 07777;
}

// The system's operations, of which some fail.
struct Failing {
    int64_t at = -1;   // this one, from 0
    bool full = false; // and all later ones that take space
    int number = EIO;
    bool no_rename_new = false; // as on a file system without renameat2
    int64_t done = 0;
    std::string failed = {}; // the name of the last one that failed
};
Failing failing;

bool fails_now(const char *name, bool takes_space) {
    const int64_t number = failing.done++;
    const bool later = failing.full && takes_space && failing.at >= 0 && number >= failing.at;
    if (later || (number == failing.at && !failing.full)) {
        failing.failed = name;
        errno = failing.number;
        return true;
    }
    return false;
}

const FileOperations &failing_files() {
    static const FileOperations operations = [] {
        FileOperations files = system_files();
        files.open = [](const char *path, int flags, mode_t mode) {
            return fails_now("open", (flags & O_EXCL) != 0)
                       ? -1
                       : system_files().open(path, flags, mode);
        };
        files.status = [](int file, struct stat *status) {
            return fails_now("status", false) ? -1 : system_files().status(file, status);
        };
        files.path_status = [](const char *path, struct stat *status) {
            return fails_now("path_status", false) ? -1 : system_files().path_status(path, status);
        };
        files.read_at = [](int file, void *data, size_t size, off_t offset) {
            return fails_now("read_at", false)
                       ? -1
                       : system_files().read_at(file, data, std::min<size_t>(size, 1000), offset);
        };
        files.write_at = [](int file, const void *data, size_t size, off_t offset) {
            return fails_now("write_at", true)
                       ? -1
                       : system_files().write_at(file, data, std::min<size_t>(size, 1000), offset);
        };
        files.sync = [](int file) {
            static_cast<void>(file); // no test waits for the disk: no power is lost
            return fails_now("sync", false) ? -1 : 0;
        };
        files.lock = [](int file) {
            return fails_now("lock", false) ? -1 : system_files().lock(file);
        };
        files.lock_shared = [](int file) {
            return fails_now("lock_shared", false) ? -1 : system_files().lock_shared(file);
        };
        files.rename = [](const char *from, const char *to) {
            return fails_now("rename", true) ? -1 : system_files().rename(from, to);
        };
        files.rename_new = [](const char *from, const char *to) {
            if (failing.no_rename_new) {
                errno = EINVAL;
                return -1;
            }
            return fails_now("rename_new", true) ? -1 : system_files().rename_new(from, to);
        };
        files.link = [](const char *from, const char *to) {
            return fails_now("link", true) ? -1 : system_files().link(from, to);
        };
        files.remove = [](const char *path) {
            return fails_now("remove", false) ? -1 : system_files().remove(path);
        };
        files.make_directory = [](const char *path, mode_t mode) {
            return fails_now("make_directory", true) ? -1
                                                     : system_files().make_directory(path, mode);
        };
        files.list = [](const char *path, std::vector<std::string> *names) {
            return fails_now("list", false) ? -1 : system_files().list(path, names);
        };
        return files;
    }();
    return operations;
}

// What a store holds at one moment, by key.
std::vector<std::pair<std::string, Bytes>> objects_in(const std::string &path) {
    std::vector<std::pair<std::string, Bytes>> objects;
    const auto backend = open_directory_backend(path);
    backend->list("", [&](const ListedObject &each) {
        objects.emplace_back(each.key, backend->get(each.key).value());
        return true;
    });
    return objects;
}

struct StoreCall {
    const char *name;
    std::function<void(Backend &)> call;
    // Whether the objects are what they were ("") or what the call makes of them; after it
    // returned, only the latter.
    std::vector<std::pair<std::string, Bytes>> before, after;
};

const Bytes kRoot1 = whole_bytes(1, 3000), kRoot2 = whole_bytes(2, 3500),
            kObject = whole_bytes(3, 5000), kPut = whole_bytes(4, 4500);

// doctest's own checks would catch what a call throws.
template <class Held> void demand(const Held &held) {
    if (!held) {
        throw Error(Status::internal, "a call returned something else");
    }
}

std::vector<StoreCall> store_calls() {
    using Objects = std::vector<std::pair<std::string, Bytes>>;
    const Objects before = {{"objects/ab/x", kObject}, {"roots/r", kRoot1}};
    const Objects put = {{"objects/ab/x", kObject}, {"objects/cd/y", kPut}, {"roots/r", kRoot1}};
    const Objects replaced = {{"objects/ab/x", kPut}, {"roots/r", kRoot1}};
    const Objects swapped = {{"objects/ab/x", kObject}, {"roots/r", kRoot2}};
    const Objects begun = {{"objects/ab/x", kObject}, {"roots/r", kRoot1}, {"roots/s", kRoot2}};
    const std::string mark = mark_of(kRoot1);
    return {
        {"put", [](Backend &b) { b.put("objects/cd/y", kPut); }, before, put},
        {"put again", [](Backend &b) { b.put("objects/ab/x", kPut); }, before, before},
        {"replace", [](Backend &b) { b.replace("objects/ab/x", kPut); }, before, replaced},
        {"replace, of none", [](Backend &b) { b.replace("objects/cd/y", kPut); }, before, put},
        {"swap", [mark](Backend &b) { demand(b.swap("roots/r", mark, kRoot2)); }, before, swapped},
        {"swap, of none", [](Backend &b) { demand(b.swap("roots/s", {}, kRoot2)); }, before, begun},
        {"swap, too late", [](Backend &b) { demand(!b.swap("roots/r", "m", kRoot2)); }, before,
         before},
        {"get", [](Backend &b) { demand((b.get("objects/ab/x") == kObject)); }, before, before},
        {"get_marked", [](Backend &b) { demand(b.get_marked("roots/r")->bytes == kRoot1); }, before,
         before},
        {"read",
         [](Backend &b) {
             Bytes into(2000);
             demand(b.read("objects/ab/x", 1000, into));
             demand(std::equal(into.begin(), into.end(), kObject.begin() + 1000));
         },
         before, before},
        {"list",
         [](Backend &b) {
             demand((listed_keys(b) == std::vector<std::string>{"objects/ab/x", "roots/r"}));
         },
         before, before},
        {"remove", [](Backend &b) { b.remove("objects/ab/x"); }, before, {{"roots/r", kRoot1}}},
        {"remove_marked",
         [mark](Backend &b) { demand(b.remove_marked("roots/r", mark)); },
         before,
         {{"objects/ab/x", kObject}}},
        {"lock_to_write", [](Backend &b) { demand(b.lock_to_write()); }, before, before},
        {"lock_to_collect", [](Backend &b) { demand(b.lock_to_collect()); }, before, before},
    };
}

void make_before(const std::string &path) {
    fs::remove_all(path);
    failing = {};
    const auto backend = open_directory_backend(path, failing_files());
    backend->put("objects/ab/x", kObject);
    REQUIRE(backend->swap("roots/r", {}, kRoot1));
}

size_t leftovers(const std::string &path) {
    size_t count = 0;
    for ([[maybe_unused]] const auto &each : fs::directory_iterator(path + "/.new")) {
        ++count;
    }
    return count;
}

size_t open_files() {
    size_t count = 0;
    for ([[maybe_unused]] const auto &each : fs::directory_iterator("/proc/self/fd")) {
        ++count;
    }
    return count;
}

// Runs a call whose operation `failing.at` fails; false: it has none of this number.
bool fail_one(const StoreCall &each, const std::string &path, const Failing &how) {
    make_before(path);
    const size_t open_before = open_files();
    Status status = Status::ok;
    std::string text;
    {
        failing = {.number = how.number, .no_rename_new = how.no_rename_new};
        const auto backend = open_directory_backend(path, failing_files());
        failing = how;
        status = thrown_by([&] { each.call(*backend); }, &text);
        const std::string failed = failing.failed;
        CAPTURE(failed);
        CAPTURE(text);
        failing = {.no_rename_new = how.no_rename_new};
        if (failed.empty()) {
            CHECK(status == Status::ok);
            CHECK((objects_in(path) == each.after));
            CHECK(leftovers(path) == 0);
            return false;
        }
        const auto now = objects_in(path);
        // Of what is best effort: removing one's own new file, and files of killed writers.
        const bool may_pass = failed == "remove" || each.name == std::string("lock_to_collect");
        CHECK((status == Status::io || (status == Status::ok && may_pass)));
        CHECK((status != Status::io || text.find(path) != text.npos));
        CHECK((status != Status::io || text.find(std::strerror(how.number)) != text.npos));
        CHECK((now == each.after || (status == Status::io && now == each.before)));
        // The same call works now, whatever was left, unless it was done.
        if (now == each.before) {
            CHECK(thrown_by([&] { each.call(*backend); }) == Status::ok);
            CHECK((objects_in(path) == each.after));
        }
        CHECK(backend->lock_to_collect());
        CHECK(leftovers(path) == 0);
    }
    CHECK(open_files() == open_before);
    return true;
}

} // namespace

TEST_CASE("open_directory_backend: what a store is made of") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    const auto backend = open_directory_backend(path + "//");
    backend->put("objects/ab/cd", text_bytes("bytes"));
    backend->swap("roots/r", {}, text_bytes("root"));
    CHECK((read_bytes(path + "/objects/ab/cd") == text_bytes("bytes")));
    CHECK((read_bytes(path + "/.stasis-store") == text_bytes("stasis-store 1\n")));
    for (const char *name : {"", "/objects", "/objects/ab", "/roots", "/.new", "/.locks"}) {
        CHECK(mode_at(path + name) == 0700);
    }
    for (const char *name : {"/objects/ab/cd", "/roots/r", "/.stasis-store"}) {
        CHECK(mode_at(path + name) == 0600);
    }
    CHECK(leftovers(path) == 0);
    // The process's directory may change later.
    const fs::path here = fs::current_path();
    fs::current_path(folder.path("."));
    const auto relative = open_directory_backend("store");
    fs::current_path(here);
    CHECK((relative->get("roots/r") == text_bytes("root")));
    // A copy may lack folders that are empty.
    fs::remove_all(path + "/.new");
    fs::remove_all(path + "/.locks");
    CHECK(open_directory_backend(path)->swap("roots/s", {}, {}));
}

TEST_CASE("open_directory_backend: anything else is refused, and stays as it is") {
    const ScratchFolder folder;
    std::string text;
    const auto opened = [&](const std::string &path) {
        return thrown_by([&] { open_directory_backend(path); }, &text);
    };
    CHECK(opened("") == Status::invalid_argument);
    write_bytes(folder.path("file"), text_bytes("x"));
    CHECK(opened(folder.path("file")) == Status::invalid_argument);
    CHECK(text.find("file") != text.npos);
    CHECK(opened(folder.path("none/below")) == Status::io);
    CHECK(text.find("No such file") != text.npos);
    fs::create_directory(folder.path("photos"));
    write_bytes(folder.path("photos/cat.jpg"), text_bytes("x"));
    CHECK(opened(folder.path("photos")) == Status::invalid_argument);
    CHECK(text.find("cat.jpg") != text.npos);
    CHECK(std::distance(fs::directory_iterator(folder.path("photos")), {}) == 1);
    fs::create_directory(folder.path("empty"));
    CHECK(opened(folder.path("empty")) == Status::ok);
    fs::create_directory(folder.path("begun")); // as a kill leaves it
    fs::create_directory(folder.path("begun/.new"));
    CHECK(opened(folder.path("begun")) == Status::ok);
    const std::string marker = folder.path("empty/.stasis-store");
    for (const char *version : {"stasis-store 2\n", "stasis-store 10\n", "stasis-store 1.1\n"}) {
        write_bytes(marker, text_bytes(version));
        CHECK(opened(folder.path("empty")) == Status::version);
        CHECK(text.find("another version") != text.npos);
    }
    for (const char *other : {"", "stasis", "something else\n"}) {
        write_bytes(marker, text_bytes(other));
        CHECK(opened(folder.path("empty")) == Status::invalid_argument);
    }
}

TEST_CASE("Directory: no symbolic link is followed out of the store") {
    const ScratchFolder folder;
    const std::string path = folder.path("store"), outside = folder.path("outside");
    const auto backend = open_directory_backend(path);
    fs::create_directory(outside);
    write_bytes(outside + "/secret", text_bytes("secret"));
    backend->put("objects/x", text_bytes("x"));
    fs::create_directory_symlink(outside, path + "/linked");
    fs::create_directory_symlink(outside, path + "/objects/linked");
    fs::create_symlink(outside + "/secret", path + "/objects/secret");
    fs::create_symlink(outside + "/new", path + "/objects/new");
    Bytes into(3);
    for (const char *key : {"linked/secret", "objects/linked/secret", "objects/secret"}) {
        CAPTURE(key);
        CHECK(thrown_by([&] { backend->get(key); }) == Status::io);
        CHECK(thrown_by([&] { backend->get_marked(key); }) == Status::io);
        CHECK(thrown_by([&] { backend->read(key, 0, into); }) == Status::io);
        CHECK(thrown_by([&] { backend->put(key, into); }) == Status::io);
        CHECK(thrown_by([&] { backend->swap(key, {}, into); }) == Status::io);
    }
    CHECK(thrown_by([&] { backend->put("linked/new", into); }) == Status::io);
    CHECK(thrown_by([&] { backend->put("objects/new", into); }) == Status::io);
    CHECK(thrown_by([&] { backend->remove("linked/secret"); }) == Status::io);
    CHECK(thrown_by([&] { listed_keys(*backend, "linked/"); }) == Status::io);
    CHECK((listed_keys(*backend) == std::vector<std::string>{"objects/x"}));
    backend->remove("objects/secret"); // the link
    CHECK((read_bytes(outside + "/secret") == text_bytes("secret")));
    CHECK(std::distance(fs::directory_iterator(outside), {}) == 1);
    for (const char *own : {"/.new", "/.locks"}) {
        fs::remove_all(path + own);
        fs::create_directory_symlink(outside, path + own);
        CHECK(thrown_by([&] { open_directory_backend(path); }) == Status::io);
        fs::remove(path + own);
    }
}

TEST_CASE("Directory: what is no object is not listed, and is in nobody's way") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    const auto backend = open_directory_backend(path);
    backend->put("a/b", text_bytes("b"));
    write_bytes(path + "/a/.hidden", text_bytes("x"));
    write_bytes(path + "/a/two words", text_bytes("x"));
    REQUIRE(mkfifo((path + "/a/pipe").c_str(), 0600) == 0);
    CHECK((listed_keys(*backend) == std::vector<std::string>{"a/b"}));
    CHECK(thrown_by([&] { backend->get("a/pipe"); }) == Status::io);
    std::string text;
    CHECK(thrown_by([&] { backend->put("a/b/c", {}); }, &text) == Status::io);
    CHECK(text.find("in the way") != text.npos);
    CHECK(thrown_by([&] { backend->put("a", {}); }, &text) == Status::io);
    CHECK(text.find("in the way") != text.npos);
}

TEST_CASE("Directory: a collector removes what killed writers left, and nothing that is written") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    const auto backend = open_directory_backend(path);
    write_bytes(path + "/.new/17-1", text_bytes("left"));
    write_bytes(path + "/.new/17-2", text_bytes("being written"));
    CHECK(listed_keys(*backend).empty());
    {
        const int descriptor = ::open((path + "/.new/17-2").c_str(), O_RDWR | O_CLOEXEC);
        REQUIRE(descriptor >= 0);
        File written(system_files(), descriptor, path + "/.new/17-2");
        written.lock();
        CHECK(backend->lock_to_write());
        CHECK(leftovers(path) == 2);
        CHECK(backend->lock_to_collect());
        CHECK(leftovers(path) == 1);
        CHECK(fs::exists(path + "/.new/17-2"));
    }
    CHECK(backend->lock_to_collect());
    CHECK(leftovers(path) == 0);
    // A name that is taken is in nobody's way.
    for (int i = 0; i < 300; ++i) {
        write_bytes(path + "/.new/" + std::to_string(getpid()) + "-" + std::to_string(i),
                    text_bytes("left"));
    }
    backend->put("a", text_bytes("a"));
    CHECK((backend->get("a") == text_bytes("a")));
}

TEST_CASE("Directory: each operation on files fails, one at a time, and nothing is lost") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    for (const StoreCall &each : store_calls()) {
        const std::string name = each.name;
        CAPTURE(name);
        int64_t operations = 0;
        for (const bool no_rename_new : {false, true}) {
            for (const int number : {EIO, EACCES}) {
                for (int64_t at = 0; fail_one(
                         each, path, {.at = at, .number = number, .no_rename_new = no_rename_new});
                     ++at) {
                    CAPTURE(at);
                    ++operations;
                }
            }
        }
        CHECK(operations >= 4 * 2);
    }
}

TEST_CASE("Directory: on a full disk a call fails with a clear text, and nothing is lost") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    for (const StoreCall &each : store_calls()) {
        const std::string name = each.name;
        CAPTURE(name);
        int64_t at = 0;
        while (fail_one(each, path, {.at = at, .full = true, .number = ENOSPC})) {
            ++at;
        }
        // Those that write find it full.
        CHECK((at > 0) == (each.before != each.after && name.rfind("remove", 0) != 0));
    }
}

TEST_CASE("open_directory_backend: each operation fails in turn, and the next one opens it") {
    const ScratchFolder folder;
    for (int64_t at = 0;; ++at) {
        CAPTURE(at);
        const std::string path = folder.path("store" + std::to_string(at));
        failing = {.at = at};
        const Status status = thrown_by([&] { open_directory_backend(path, failing_files()); });
        const std::string failed = failing.failed;
        CAPTURE(failed);
        failing = {};
        CHECK((failed.empty() ? status == Status::ok : status == Status::io || failed == "remove"));
        const auto backend = open_directory_backend(path, failing_files());
        backend->put("a", text_bytes("a"));
        CHECK((listed_keys(*open_directory_backend(path)) == std::vector<std::string>{"a"}));
        if (failed.empty()) {
            CHECK(at > 10);
            break;
        }
    }
}
