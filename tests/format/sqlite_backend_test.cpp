// The SQLite file as a store: what it is, what it refuses, and SQLite's calls of the system failing
// in turn.
#include <sqlite3.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "backends.h"
#include "failing_vfs.h"

using namespace stasis;
using namespace stasis::format;
namespace fs = std::filesystem;

namespace {

// Another program's connection to the file.
class Program {
  public:
    explicit Program(const std::string &path) { REQUIRE(sqlite3_open(path.c_str(), &db_) == 0); }
    ~Program() { sqlite3_close(db_); }
    void run(const std::string &sql) const {
        REQUIRE(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    }
    std::string ask(const std::string &sql) const {
        std::string answer;
        REQUIRE(sqlite3_exec(
                    db_, sql.c_str(),
                    [](void *to, int, char **values, char **) {
                        *static_cast<std::string *>(to) = values[0] != nullptr ? values[0] : "";
                        return 0;
                    },
                    &answer, nullptr) == SQLITE_OK);
        return answer;
    }

  private:
    sqlite3 *db_ = nullptr;
};

uint64_t size_on_disk(const std::string &path) {
    uint64_t size = 0;
    for (const char *suffix : {"", "-wal"}) {
        size += fs::exists(path + suffix) ? fs::file_size(path + suffix) : 0;
    }
    return size;
}

Status opened_sqlite(const std::string &path, std::string *text = nullptr) {
    return thrown_by([&] { open_sqlite_backend(path); }, text);
}

const Bytes kSqliteObject = whole_bytes(1, 90'000), kSqliteRoot = whole_bytes(2, 3000),
            kSqliteNew = whole_bytes(3, 120'000);

struct SqliteCall {
    const char *name;
    std::function<bool(Backend &)> call; // false: it returned something wrong
    bool writes;
};

std::vector<SqliteCall> sqlite_calls() {
    const std::string mark = mark_of(kSqliteRoot);
    return {
        {"put", [](Backend &b) { return b.put("objects/new", kSqliteNew), true; }, true},
        {"swap", [mark](Backend &b) { return !!b.swap("roots/r", mark, kSqliteNew); }, true},
        {"swap, of none", [](Backend &b) { return !!b.swap("roots/s", {}, kSqliteNew); }, true},
        {"get", [](Backend &b) { return b.get("objects/x") == kSqliteObject; }, false},
        {"read",
         [](Backend &b) {
             Bytes into(1000);
             return b.read("objects/x", 80'000, into) &&
                    std::equal(into.begin(), into.end(), kSqliteObject.begin() + 80'000);
         },
         false},
        {"list", [](Backend &b) { return listed_keys(b).size() == 2; }, false},
        {"remove", [](Backend &b) { return b.remove("objects/x"), true; }, true},
        {"remove_marked", [mark](Backend &b) { return b.remove_marked("roots/r", mark); }, true},
    };
}

std::vector<std::pair<std::string, Bytes>> rows_of(Backend &backend) {
    std::vector<std::pair<std::string, Bytes>> rows;
    backend.list("", [&](const ListedObject &each) {
        rows.emplace_back(each.key, backend.get(each.key).value());
        return true;
    });
    return rows;
}

// Runs a call of which `how` fails; false: it has no such call of the system. Before it another
// backend has written all; with `fresh` the call is its backend's first one.
bool fail_sqlite(const SqliteCall &each, const FailingVfs &how, bool fresh) {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    const VfsInPlace in_place;
    const auto watching = open_sqlite_backend(path);
    watching->put("objects/x", kSqliteObject);
    watching->swap("roots/r", {}, kSqliteRoot);
    const auto before = rows_of(*watching);
    auto backend = open_sqlite_backend(path);
    if (!fresh) {
        backend->get("roots/r");
    }
    failing_vfs() = how;
    bool right = false;
    std::string text;
    const Status status = thrown_by([&] { right = each.call(*backend); }, &text);
    const std::string failed = failing_vfs().failed;
    failing_vfs() = {};
    CAPTURE(failed);
    CAPTURE(text);
    CHECK((status == Status::ok ? right : status == Status::io && !failed.empty()));
    CHECK((status == Status::ok || text.find(path) != text.npos));
    CHECK((status == Status::ok || !how.full || text.find("full") != text.npos));
    const auto now = rows_of(*backend);
    const bool done = each.writes && now != before;
    CHECK((!each.writes || status != Status::ok || done)); // what was reported done
    if (each.writes && !done) {
        CHECK((thrown_by([&] { right = each.call(*backend); }) == Status::ok && right));
    }
    // Another process would see the same, and the file is whole.
    CHECK((rows_of(*watching) == rows_of(*backend)));
    backend.reset();
    const Program program(path);
    CHECK(program.ask("PRAGMA integrity_check") == "ok");
    return !failed.empty();
}

} // namespace

TEST_CASE("open_sqlite_backend: what a store is made of") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    {
        const auto backend = open_sqlite_backend(path);
        backend->put("a/b", text_bytes("bytes"));
        struct stat status {};
        for (const char *suffix : {"", "-wal", "-shm"}) {
            REQUIRE(lstat((path + suffix).c_str(), &status) == 0);
            CHECK((status.st_mode & 07777) == 0600);
        }
        CHECK(backend->lock_to_write());
        CHECK((folder.names() == std::vector<std::string>{"store", "store-held", "store-shm",
                                                          "store-turn", "store-wal"}));
    }
    CHECK((folder.names() == std::vector<std::string>{"store", "store-held", "store-turn"}));
    const Program program(path);
    CHECK(program.ask("PRAGMA journal_mode") == "wal");
    CHECK(program.ask("PRAGMA application_id") == std::to_string(0x53744153));
    CHECK(program.ask("PRAGMA user_version") == "1");
    CHECK(program.ask("PRAGMA page_size") == "16384");
    CHECK(program.ask("PRAGMA auto_vacuum") == "2");
    CHECK(program.ask("SELECT bytes FROM objects WHERE key = 'a/b'") == "bytes");
    CHECK(program.ask("PRAGMA integrity_check") == "ok");
}

TEST_CASE("open_sqlite_backend: anything else is refused, and stays as it is") {
    const ScratchFolder folder;
    std::string text;
    CHECK(opened_sqlite("") == Status::invalid_argument);
    fs::create_directory(folder.path("directory"));
    CHECK(opened_sqlite(folder.path("directory"), &text) == Status::invalid_argument);
    CHECK(text.find("not a regular file") != text.npos);
    CHECK(opened_sqlite(folder.path("none/below"), &text) == Status::io);
    CHECK(text.find("No such file") != text.npos);
    for (const size_t size : {1, 99, 100, 511, 512, 4096, 70'000}) {
        CAPTURE(size);
        const Bytes other = whole_bytes(1, size);
        write_bytes(folder.path("other"), other);
        CHECK(opened_sqlite(folder.path("other"), &text) == Status::invalid_argument);
        CHECK(text.find(size == 1 ? "not of a store" : "not a database") != text.npos);
        CHECK((read_bytes(folder.path("other")) == other));
    }
    {
        const Program program(folder.path("program"));
        program.run("CREATE TABLE objects(key TEXT, bytes BLOB)");
    }
    const Bytes of_program = read_bytes(folder.path("program"));
    CHECK(opened_sqlite(folder.path("program"), &text) == Status::invalid_argument);
    CHECK(text.find("not of a store") != text.npos);
    CHECK((read_bytes(folder.path("program")) == of_program));
    CHECK((folder.names() == std::vector<std::string>{"directory", "other", "program"}));
    // Made by another version, or changed by another program.
    CHECK(opened_sqlite(folder.path("store")) == Status::ok);
    Program(folder.path("store")).run("PRAGMA user_version=2");
    CHECK(opened_sqlite(folder.path("store"), &text) == Status::version);
    CHECK(text.find("version 2") != text.npos);
    Program(folder.path("store")).run("PRAGMA user_version=1");
    CHECK(opened_sqlite(folder.path("store")) == Status::ok);
    Program(folder.path("store"))
        .run("CREATE TRIGGER t AFTER INSERT ON objects BEGIN DELETE FROM objects; END");
    CHECK(opened_sqlite(folder.path("store")) == Status::invalid_argument);
    // As a kill leaves it: no tables yet.
    write_bytes(folder.path("begun"), {});
    CHECK(opened_sqlite(folder.path("begun")) == Status::ok);
    {
        const Program program(folder.path("begun2"));
        program.run("PRAGMA journal_mode=WAL");
    }
    CHECK(opened_sqlite(folder.path("begun2")) == Status::ok);
}

TEST_CASE("Sqlite: threads that open one new store at the same time") {
    const ScratchFolder folder;
    for (int round = 0; round < 5; ++round) {
        const std::string path = folder.path("store" + std::to_string(round));
        std::vector<std::string> errors(8);
        std::vector<std::thread> threads;
        for (size_t i = 0; i < errors.size(); ++i) {
            threads.emplace_back([&, i] {
                try {
                    open_sqlite_backend(path)->put("k/" + std::to_string(i), {});
                } catch (const Error &error) {
                    errors[i] = error.what();
                }
            });
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        for (const std::string &error : errors) {
            CHECK(error == "");
        }
        CHECK(listed_keys(*open_sqlite_backend(path)).size() == errors.size());
    }
}

TEST_CASE("Sqlite: a wait for another program ends when the watch says so, and reads do not wait") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    const auto backend = open_sqlite_backend(path);
    backend->put("a", text_bytes("a"));
    const Program program(path);
    program.run("BEGIN IMMEDIATE");
    std::string text;
    Watch watch;
    watch.deadline = Deadline::in_ms(100);
    CHECK(thrown_by([&] { backend->put("b", text_bytes("b"), watch); }) == Status::timeout);
    CHECK((backend->get("a") == text_bytes("a")));
    backend->put("a", text_bytes("other"), watch); // it is there: nothing to write
    std::atomic<bool> cancel{false};
    Watch cancelled;
    cancelled.cancel = &cancel;
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        cancel = true;
    });
    CHECK(thrown_by([&] { backend->remove("a", cancelled); }) == Status::cancelled);
    other.join();
    // Threads of this process wait for each other in another way, which ends too.
    cancel = false;
    std::thread first([&] { thrown_by([&] { backend->put("c", {}, cancelled); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    watch.deadline = Deadline::in_ms(50);
    CHECK(thrown_by([&] { backend->put("d", {}, watch); }) == Status::timeout);
    program.run("COMMIT");
    first.join();
    CHECK((listed_keys(*backend) == std::vector<std::string>{"a", "c"}));
}

TEST_CASE("Sqlite: a child of fork() does not use its parent's connections") {
    const ScratchFolder folder;
    const auto backend = open_sqlite_backend(folder.path("store"));
    backend->put("a", text_bytes("a"));
    const pid_t child =
        begin_process([&] { return static_cast<int>(thrown_by([&] { backend->get("a"); })); });
    CHECK(end_of_process(child) == static_cast<int>(Status::unsupported));
    CHECK((backend->get("a") == text_bytes("a")));
}

TEST_CASE("Sqlite: space of what was removed is used again, and given back by a collector") {
    const ScratchFolder folder;
    const std::string path = folder.path("store");
    {
        const auto backend = open_sqlite_backend(path);
        for (int i = 0; i < 40; ++i) {
            backend->put("objects/" + std::to_string(i), whole_bytes(1, 1'000'000));
        }
        const auto held = backend->lock_to_collect();
        for (int i = 0; i < 39; ++i) {
            backend->remove("objects/" + std::to_string(i));
        }
    }
    CHECK(size_on_disk(path) < 3'000'000);
    const auto backend = open_sqlite_backend(path);
    CHECK((backend->get("objects/39") == whole_bytes(1, 1'000'000)));
}

TEST_CASE("Sqlite: a range of a large object is read without the rest of it") {
    const ScratchFolder folder;
    const VfsInPlace in_place;
    const auto backend = open_sqlite_backend(folder.path("store"));
    Bytes bytes = whole_bytes(5, 40'000'000);
    backend->put("large", bytes);
    failing_vfs() = {};
    Bytes into(1000);
    largest_allocation();
    CHECK(backend->read("large", 39'000'000, into));
    CHECK(std::equal(into.begin(), into.end(), bytes.begin() + 39'000'000));
#ifndef STASIS_THREAD_SANITIZER
    CHECK(largest_allocation() < 100'000);
#endif
    CHECK(failing_vfs().done < 400); // calls of the system; the object has 2,500 pages
}

TEST_CASE("Sqlite: more than a row holds is refused with a clear text") {
    const ScratchFolder folder;
    const auto backend = open_sqlite_backend(folder.path("store"));
    const uint8_t byte = 0;
    const std::span<const uint8_t> huge(&byte, 1'000'000'000); // which is not looked at
    std::string text;
    CHECK(thrown_by([&] { backend->put("huge", huge); }, &text) == Status::io);
    CHECK(text.find("999998976") != text.npos);
    CHECK(thrown_by([&] { backend->swap("huge", {}, huge); }) == Status::io);
    CHECK(listed_keys(*backend).empty());
}

TEST_CASE("Sqlite: each of its calls of the system fails in turn, and nothing is lost") {
    for (const SqliteCall &each : sqlite_calls()) {
        const std::string name = each.name;
        CAPTURE(name);
        for (const bool fresh : {true, false}) {
            int64_t at = 0;
            for (; fail_sqlite(each, {.at = at}, fresh); ++at) {
                CAPTURE(at);
            }
            CHECK(at >= (fresh ? 3 : 1));
        }
    }
}

TEST_CASE("Sqlite: on a full disk a call fails with a clear text, and nothing is lost") {
    for (const SqliteCall &each : sqlite_calls()) {
        const std::string name = each.name;
        CAPTURE(name);
        int64_t at = 0;
        while (fail_sqlite(each, {.at = at, .full = true}, false)) {
            ++at;
        }
        CHECK((at > 0) == each.writes);
    }
}
