// Stores with stasis.hpp, and backends that are classes of the host's.
#include <atomic>
#include <map>
#include <thread>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

namespace {

// A backend in memory, one of whose functions may be told to throw.
class Memory : public stasis::Backend {
  public:
    std::string throwing; // a function
    std::optional<Status> as_error;
    std::atomic<int> held{0}, taken{0}, collectors{0};
    bool locking = true, wrong_mark = false;

    std::optional<std::uint64_t> size(const std::string &key) override {
        const std::unique_lock lock = begin("size");
        const auto found = objects_.find(key);
        return found == objects_.end() ? std::nullopt : std::optional(found->second.bytes.size());
    }
    bool read(const std::string &key, std::uint64_t offset, std::span<std::byte> space) override {
        const std::unique_lock lock = begin("read");
        const auto found = objects_.find(key);
        if (found == objects_.end() || offset + space.size() > found->second.bytes.size()) {
            return false;
        }
        std::copy_n(found->second.bytes.begin() + static_cast<std::ptrdiff_t>(offset), space.size(),
                    space.begin());
        return true;
    }
    void put(const std::string &key, std::span<const std::byte> bytes) override {
        const std::unique_lock lock = begin("put");
        objects_.try_emplace(key, stasis::MarkedRoot{{bytes.begin(), bytes.end()}, ""});
    }
    std::optional<stasis::MarkedRoot> get_root(const std::string &key) override {
        const std::unique_lock lock = begin("get_root");
        const auto found = objects_.find(key);
        return found == objects_.end() ? std::nullopt : std::optional(found->second);
    }
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const std::byte> bytes) override {
        const std::unique_lock lock = begin("swap");
        if (!expects(key, mark)) {
            return std::nullopt;
        }
        stasis::MarkedRoot &root = objects_[key];
        root = {{bytes.begin(), bytes.end()}, wrong_mark ? "" : std::to_string(++marks_)};
        return root.mark;
    }
    bool remove_root(const std::string &key, const std::string &mark) override {
        const std::unique_lock lock = begin("swap");
        return expects(key, mark) && objects_.erase(key) == 1;
    }
    void list(const std::string &prefix, const Visit &visit) override {
        std::map<std::string, std::uint64_t> listed;
        {
            const std::unique_lock lock = begin("list");
            for (const auto &[key, object] : objects_) {
                if (key.starts_with(prefix)) {
                    listed[key] = object.bytes.size();
                }
            }
        }
        for (const auto &[key, bytes] : listed) {
            if (!visit(key, bytes, std::chrono::seconds(60))) {
                break;
            }
        }
    }
    void remove(const std::string &key) override {
        const std::unique_lock lock = begin("remove");
        objects_.erase(key);
    }
    // Changes a byte of every object.
    void damage() {
        const std::unique_lock lock(mutex_);
        for (auto &[key, object] : objects_) {
            if (key.starts_with("objects/") && !object.bytes.empty()) {
                object.bytes.back() ^= std::byte{1};
            }
        }
    }
    bool locks() const override { return locking; }
    std::shared_ptr<void> lock(bool collect) override {
        const std::unique_lock lock = begin("lock");
        ++held;
        ++(collect ? collectors : taken);
        return {this, [](void *self) { --static_cast<Memory *>(self)->held; }};
    }

  private:
    std::unique_lock<std::mutex> begin(const char *function) {
        if (throwing == function) {
            if (as_error) {
                throw stasis::Error(*as_error, "of the memory");
            }
            throw Thrown{7};
        }
        return std::unique_lock(mutex_);
    }
    bool expects(const std::string &key, const std::optional<std::string> &mark) {
        const auto found = objects_.find(key);
        return mark ? found != objects_.end() && found->second.mark == *mark
                    : found == objects_.end();
    }

    std::mutex mutex_;
    std::map<std::string, stasis::MarkedRoot> objects_;
    int marks_ = 0;
};

// Calls `function` with a store of each kind.
template <typename Function> void with_each(const Function &function) {
    const Folder folder;
    stasis::Store directory("dir:" + folder.file("d").string());
    function(directory);
    stasis::Store database("sqlite:" + folder.file("s").string());
    function(database);
    stasis::Store host(std::make_shared<Memory>(), "memory " + folder.file("m").string());
    function(host);
}

std::optional<stasis::Digest> conflicting(const std::function<void()> &function) {
    try {
        function();
    } catch (const stasis::Conflict &conflict) {
        CHECK(conflict.status() == Status::Conflict);
        return conflict.root();
    }
    FAIL("no conflict");
    return std::nullopt;
}

} // namespace

TEST_CASE("Store: what is got goes on with the same bits, and two that continue it conflict") {
    with_each([](stasis::Store &store) {
        stasis::Session session = talk();
        const stasis::StoreResult put = store.put(session, "talk");
        CHECK(stasis::Digest(put.state) == session.digest());
        CHECK(put.sequence == 1);
        stasis::Session got = store.get(recall(), "talk");
        stasis::Session late = store.get(recall(), "talk", {.trusted = true});
        CHECK(got.digest() == session.digest());
        CHECK(got.say(kSecond).text() == "m is 55.");
        CHECK(session.say(kSecond).text() == "m is 55.");
        CHECK(got.digest() == session.digest());
        std::uint64_t bytes = 0;
        const stasis::StoreResult newer = store.put(
            got, "talk",
            {.full_logits = true, .codec = stasis::Codec::Zstd, .progress = [&](auto done, auto) {
                 bytes = done;
             }});
        CHECK(bytes > 0);
        CHECK(conflicting([&] { store.put(late, "talk"); }) == stasis::Digest(newer.root));
        try {
            store.put(late, "talk");
        } catch (const stasis::Conflict &conflict) {
            CHECK(conflict.state() == got.digest());
        }
        stasis::Session forked = late.fork();
        CHECK(conflicting([&] { store.put(forked, "talk"); }) == stasis::Digest(newer.root));
        CHECK(store.get(recall(), "talk").digest() == got.digest());
        store.put(late, "talk", {.overwrite = true, .keep = stasis::Keep::Nothing});
        CHECK(store.get(recall(), "talk").digest() == late.digest());
        CHECK(status_of([&] { store.get(recall(), "talk", {.no_recompute = true}); }) ==
              Status::Unsupported);
        store.remove("talk");
        CHECK(conflicting([&] { store.put(late, "talk"); }) == std::nullopt);
        CHECK(status_of([&] { store.remove("talk"); }) == Status::NotFound);
        CHECK(status_of([&] { store.get(recall(), "talk"); }, "'talk'") == Status::NotFound);
    });
}

TEST_CASE("Store: lists, forks, snapshots, files and collection") {
    with_each([](stasis::Store &store) {
        const Folder folder;
        stasis::Session session = talk();
        session.save(folder.file("a"));
        const stasis::StoreResult imported = store.import_file(folder.file("a"), "a");
        CHECK(stasis::Digest(imported.state) == session.digest());
        CHECK(conflicting([&] { store.import_file(folder.file("a"), "a"); }) ==
              stasis::Digest(imported.root));
        CHECK(status_of([&] { store.import_file(folder.file("none"), "b"); }) == Status::NotFound);
        store.fork("a", "b");
        CHECK(status_of([&] { store.fork("a", "b"); }) == Status::Conflict);
        store.fork("a", "b", {.overwrite = true});
        std::vector<stasis::StoredSession> listed = store.list();
        REQUIRE(listed.size() == 2);
        std::sort(listed.begin(), listed.end(),
                  [](const auto &a, const auto &b) { return a.name < b.name; });
        CHECK(listed[0].name == "a");
        CHECK(listed[1].name == "b");
        CHECK(listed[1].state == session.digest());
        CHECK(listed[1].model == stasis::Digest(recall().info().model));
        CHECK(listed[1].position == session.position());
        CHECK(listed[1].bytes > 0);
        CHECK_FALSE(listed[1].damage);

        store.export_file("b", folder.file("out"));
        CHECK(stasis::Session::load(recall(), folder.file("out")).digest() == session.digest());
        CHECK(status_of([&] { store.export_file("b", folder.file("out")); }) ==
              Status::InvalidArgument);
        const stasis::Snapshot snapshot = store.snapshot("b");
        CHECK(snapshot.digest() == session.digest());
        CHECK(snapshot.tokens() == session.tokens());
        CHECK_FALSE(snapshot.compare(session.snapshot()));
        CHECK(snapshot.verify(recall()).verified == 1);

        stasis::Cancel cancel;
        cancel.request();
        CHECK(status_of([&] { store.list({.cancel = &cancel}); }) == Status::Cancelled);
        CHECK(thrown_by([&] {
                  store.put(session, "c", {.progress = [](auto, auto) { throw Thrown{5}; }});
              }) == 5);
        store.remove("a");
        store.remove("b");
        const stasis::StoreCollected collected = store.collect();
        CHECK(collected.sessions == 0);
        CHECK(collected.removed_objects == collected.objects);
        CHECK(collected.removed_bytes == collected.bytes);
        CHECK(collected.bytes > 0);
    });
}

TEST_CASE("Store: what a backend throws comes back, and locks are given back") {
    stasis::Session session = talk();
    const std::vector<std::pair<std::string, std::function<void(stasis::Store &)>>> calls{
        {"put", [&](stasis::Store &store) { store.put(session, "b"); }},
        {"swap", [&](stasis::Store &store) { store.put(session, "b"); }},
        {"swap", [&](stasis::Store &store) { store.remove("a"); }},
        {"get_root", [&](stasis::Store &store) { store.get(recall(), "a"); }},
        {"read", [&](stasis::Store &store) { store.get(recall(), "a"); }},
        {"list", [&](stasis::Store &store) { store.list(); }},
        {"remove", [&](stasis::Store &store) { store.collect(); }},
        {"lock", [&](stasis::Store &store) { store.fork("a", "c"); }}};
    int number = 0;
    for (const auto &each : calls) {
        const std::string &function = each.first;
        const auto &call = each.second;
        CAPTURE(function);
        const auto memory = std::make_shared<Memory>();
        stasis::Store store(memory, "memory " + std::to_string(++number));
        store.put(session, "a");
        stasis::Session other(recall());
        other.append(recall().tokenize("Something else, which goes."));
        store.put(other, "gone");
        store.remove("gone");
        memory->throwing = function;
        CHECK(thrown_by([&] { call(store); }) == 7);
        CHECK(thrown_by([&] { call(store); }) == 7);
        memory->as_error = Status::Timeout;
        CHECK(status_of([&] { call(store); }) == Status::Timeout);
        memory->as_error = Status::Full;
        CHECK(status_of([&] { call(store); }, "of the memory") == Status::Full);
        CHECK(memory->held == 0);
        memory->throwing.clear();
        CHECK(store.get(recall(), "a").digest() == session.digest());

        const stasis::Snapshot snapshot = store.snapshot("a");
        memory->as_error = std::nullopt;
        memory->throwing = "read";
        CHECK(thrown_by([&] { snapshot.verify(recall()); }) == 7);
        memory->throwing.clear();
        CHECK(snapshot.verify(recall()).verified == 1);
        CHECK(memory->taken > 0);
        CHECK(memory->held == 0);
    }
}

TEST_CASE("Store: a backend is released after its last use, and its marks and ages are heeded") {
    stasis::Session session = talk();
    auto memory = std::make_shared<Memory>();
    const std::weak_ptr<Memory> seen = memory;
    std::optional<stasis::Store> store(std::in_place, memory, "of one test");
    store->put(session, "a");
    store->collect();
    CHECK(memory->collectors == 1);
    memory->wrong_mark = true;
    CHECK(status_of([&] { store->put(session, "b"); }, "mark is ''") == Status::InvalidArgument);
    memory.reset();
    std::optional<stasis::Snapshot> snapshot(store->snapshot("a"));
    store.reset();
    CHECK_FALSE(seen.expired());
    CHECK(snapshot->digest() == session.digest());
    snapshot.reset();
    CHECK(seen.expired());

    memory = std::make_shared<Memory>();
    memory->locking = false;
    stasis::Store aged(memory, "without locks");
    aged.put(session, "a");
    aged.remove("a");
    CHECK(aged.collect().removed_objects == 0);
    CHECK(aged.collect({.grace = std::chrono::seconds(61)}).removed_objects == 0);
    CHECK(aged.collect({.grace = std::chrono::seconds(59)}).removed_objects > 0);
    CHECK(status_of([&] { aged.collect({.grace = std::chrono::seconds(-1)}); }, "grace") ==
          Status::InvalidArgument);
}

TEST_CASE("Store: what a put finds damaged is replaced, in one step or in two") {
    class Replacing : public Memory {
      public:
        std::atomic<int> replaced{0};
        void replace(const std::string &key, std::span<const std::byte> bytes) override {
            ++replaced;
            Memory::replace(key, bytes);
        }
    };
    const auto one = std::make_shared<Replacing>();
    for (const std::shared_ptr<Memory> &memory :
         {std::make_shared<Memory>(), std::static_pointer_cast<Memory>(one)}) {
        const Folder folder;
        stasis::Store store(memory, "memory " + folder.file("m").string());
        stasis::Session session = talk(), same = talk();
        store.put(session, "a");
        memory->damage();
        store.put(same, "b");
        CHECK(store.get(recall(), "b").digest() == same.digest());
    }
    CHECK(one->replaced > 0);
}

TEST_CASE("Store: threads lose no turn") {
    with_each([](stasis::Store &store) {
        stasis::Session first(recall());
        first.append(std::vector<stasis::Token>(10, 20));
        store.put(first, "s");
        std::vector<std::thread> threads;
        for (stasis::Token own = 30; own < 33; ++own) {
            threads.emplace_back([&store, own] {
                for (int turns = 0; turns < 3;) {
                    stasis::Session session = store.get(recall(), "s");
                    session.append(std::vector<stasis::Token>{own});
                    try {
                        store.put(session, "s");
                        ++turns;
                    } catch (const stasis::Conflict &) { // the next round has the newer one
                    }
                }
            });
        }
        for (std::thread &each : threads) {
            each.join();
        }
        const std::vector<stasis::Token> log = store.get(recall(), "s").tokens(10);
        CHECK(log.size() == 9);
        for (stasis::Token own = 30; own < 33; ++own) {
            CHECK(std::count(log.begin(), log.end(), own) == 3);
        }
    });
}

TEST_CASE("Store: what is no store is refused, and what was moved from") {
    const Folder folder;
    CHECK(status_of([] { stasis::Store("ftp:x"); }, "'ftp'") == Status::Unsupported);
    CHECK(status_of([&] {
              stasis::Store("dir:" + folder.file("none").string(), {.existing = true});
          }) == Status::NotFound);
    CHECK(status_of([] { stasis::Store(std::string("dir:a\0b", 7)); }) == Status::InvalidArgument);
    CHECK(status_of([] { stasis::Store(nullptr, "a"); }) == Status::InvalidArgument);
    CHECK(status_of([] { stasis::Store(std::make_shared<Memory>(), ""); }) ==
          Status::InvalidArgument);
    stasis::Store store("dir:" + folder.file("a").string());
    stasis::Session session = talk();
    CHECK(status_of([&] { store.put(session, ""); }) == Status::InvalidArgument);
    stasis::Store moved = std::move(store);
    CHECK(status_of([&] { store.list(); }) == Status::InvalidArgument);
    CHECK(status_of([&] { store.put(session, "a"); }) == Status::InvalidArgument);
    moved.put(session, "a");
    store = std::move(moved);
    CHECK(store.list().size() == 1);
}
