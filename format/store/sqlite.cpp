// A store in one SQLite file: a table of keys and bytes (STORE.md). SQLite keeps its promises: what
// is committed survives a power loss, and readers see whole commits while others write.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <utility>

#include "format/store/backend.h"
#include "format/store/locks.h"
#include "format/store/sqlite_connection.h"

namespace stasis::format {

namespace {

constexpr size_t kIdleMax = 8;                          // connections kept for the next calls
constexpr int kListedAtOnce = 256;                      // by one look into the table
constexpr int kVacuumBatches = 16, kVacuumPages = 1024; // 256 MB at most, 16 MB in a transaction

using Kind = SqliteTransaction::Kind;

// A connection for each call that runs, so that reads go on side by side; of those that write one
// at a time has its turn, for SQLite has one writer, whom others would ask for again and again.
class Sqlite : public Backend {
  public:
    explicit Sqlite(const std::string &path);

    std::optional<Bytes> get(const std::string &key, const Watch &watch) override;
    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
              const Watch &watch) override;
    void put(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) override;
    void replace(const std::string &key, std::span<const uint8_t> bytes,
                 const Watch &watch) override;
    std::optional<Marked> get_marked(const std::string &key, const Watch &watch) override;
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes, const Watch &watch) override;
    void list(const std::string &prefix, const std::function<bool(const ListedObject &)> &visit,
              const Watch &watch) override;
    void remove(const std::string &key, const Watch &watch) override;
    bool remove_marked(const std::string &key, const std::string &mark,
                       const Watch &watch) override;
    std::unique_ptr<BackendLock> lock_to_write(const Watch &watch) override {
        return wait_for_store(system_files(), locks(), LockKind::shared, watch);
    }
    std::unique_ptr<BackendLock> lock_to_collect(const Watch &watch) override;

  private:
    friend class Lease;
    struct Collecting;

    StoreLocks locks() const { return {path_ + "-turn", path_ + "-held"}; }
    void make_file() const;
    void create() const;
    std::unique_ptr<SqliteConnection> connect() const;
    void give_back_space();

    std::string path_; // absolute: the process may change its directory
    const pid_t process_ = ::getpid();
    std::mutex mutex_;
    std::condition_variable let_go_;
    bool writing_ = false;
    std::vector<std::unique_ptr<SqliteConnection>> idle_;
};

// A connection in a transaction, for one call.
class Lease {
  public:
    Lease(Sqlite &of, Kind kind, const Watch &watch) : of_(of), writes_(kind == Kind::writes) {
        if (::getpid() != of.process_) { // whose locks SQLite would take for its own
            fail(Status::unsupported, "%s: a child of fork() must open the store itself",
                 of.path_.c_str());
        }
        {
            std::unique_lock held(of_.mutex_);
            while (writes_ && of_.writing_) {
                of_.let_go_.wait_for(held, std::chrono::milliseconds(10));
                watch.look(0, 1);
            }
            if (!of_.idle_.empty()) {
                connection_ = std::move(of_.idle_.back());
                of_.idle_.pop_back();
            }
            of_.writing_ = of_.writing_ || writes_;
        }
        try {
            if (connection_ == nullptr) {
                connection_ = of_.connect();
            }
            connection_->watch(&watch);
            transaction_.emplace(*connection_, kind);
        } catch (...) {
            give_back();
            throw;
        }
    }
    ~Lease() { give_back(); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

    SqliteConnection *operator->() const { return connection_.get(); }
    SqliteConnection &connection() const { return *connection_; }
    void commit() { transaction_->commit(); }

  private:
    void give_back() {
        transaction_.reset();
        std::unique_ptr<SqliteConnection> closed; // without the lock: it may take time
        const std::lock_guard held(of_.mutex_);
        if (connection_ != nullptr) {
            connection_->watch(nullptr);
            if (connection_->is_sound() && of_.idle_.size() < kIdleMax) {
                of_.idle_.push_back(std::move(connection_)); // its memory was reserved
            }
            closed = std::move(connection_);
        }
        if (writes_) {
            of_.writing_ = false;
            of_.let_go_.notify_one();
        }
    }

    Sqlite &of_;
    const bool writes_;
    std::unique_ptr<SqliteConnection> connection_;
    std::optional<SqliteTransaction> transaction_;
};

[[noreturn]] void fail_foreign(const std::string &path) {
    fail(Status::invalid_argument, "%s: a file, but not of a store", path.c_str());
}

// Refuses what is foreign or of another version; returns whether it is a store already.
bool check_contents(SqliteConnection &connection, const std::string &path) {
    switch (connection.contents()) {
    case SqliteContents::empty:
        return false;
    case SqliteContents::store:
        return true;
    case SqliteContents::other_version:
        fail(Status::version, "%s: a store of version %lld; this build knows 1", path.c_str(),
             static_cast<long long>(connection.ask("PRAGMA user_version")));
    case SqliteContents::foreign:
        break;
    }
    fail_foreign(path);
}

Sqlite::Sqlite(const std::string &path) {
    std::error_code failure;
    path_ = std::filesystem::absolute(path, failure).string();
    if (path.empty() || failure) {
        fail(Status::invalid_argument, "'%s' is no path of a store's file", path.c_str());
    }
    idle_.reserve(kIdleMax);
    make_file();
    if (!check_contents(*connect(), path_)) {
        create();
    }
    idle_.push_back(connect());
}

// Makes an empty file if there is none: SQLite's own would be readable for all. A file that is
// there is only looked at, for to close it would end the locks that SQLite has on it in this
// process.
void Sqlite::make_file() const {
    std::error_code failure;
    const std::filesystem::file_status status = std::filesystem::status(path_, failure);
    if (std::filesystem::exists(status)) {
        if (!std::filesystem::is_regular_file(status)) {
            fail(Status::invalid_argument, "%s: not a regular file", path_.c_str());
        }
        if (std::filesystem::file_size(path_, failure) == 1) { // SQLite would take it for empty
            fail_foreign(path_);
        }
        return;
    }
    const FileOperations &files = system_files();
    const int descriptor =
        files.open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) {
        if (errno == EEXIST) {
            return; // another process was faster
        }
        fail_file(Status::io, FileFailure::create, path_, errno);
    }
    const File file(files, descriptor, path_);
    open_directory(files, path_).sync();
}

// Makes the tables, one process at a time.
void Sqlite::create() const {
    const Watch minute{nullptr, nullptr, nullptr, Deadline::in_ms(60'000)};
    const File turn = wait_for_lock(system_files(), locks().turn, LockKind::alone, minute);
    SqliteConnection connection(path_);
    if (!check_contents(connection, path_)) {
        connection.create_tables();
    }
}

std::unique_ptr<SqliteConnection> Sqlite::connect() const {
    auto connection = std::make_unique<SqliteConnection>(path_);
    if (connection->contents() == SqliteContents::store) {
        connection->set_up();
    }
    return connection;
}

std::optional<Bytes> Sqlite::get(const std::string &key, const Watch &watch) {
    check_key(key);
    const Lease lease(*this, Kind::reads, watch);
    const SqliteConnection::Found found = lease->find(key);
    if (found.id == 0) {
        return std::nullopt;
    }
    Bytes bytes(found.bytes);
    lease->read(found, 0, bytes);
    return bytes;
}

bool Sqlite::read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
                  const Watch &watch) {
    check_key(key);
    const Lease lease(*this, Kind::reads, watch);
    const SqliteConnection::Found found = lease->find(key);
    if (found.id == 0 || offset > found.bytes || into.size() > found.bytes - offset) {
        return false;
    }
    lease->read(found, offset, into);
    return true;
}

// Bytes, key and a few more are a row, which has a largest size.
void check_size(Lease &lease, const std::string &key, uint64_t bytes) {
    const int row = sqlite3_limit(lease->db(), SQLITE_LIMIT_LENGTH, -1);
    const uint64_t most = static_cast<uint64_t>(row) - 1024;
    if (bytes > most) {
        fail(Status::io, "%s: an object of %llu bytes; SQLite holds at most %llu", key.c_str(),
             static_cast<Number>(bytes), static_cast<Number>(most));
    }
}

void Sqlite::put(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) {
    check_key(key);
    {
        const Lease lease(*this, Kind::reads, watch); // which waits for nobody
        if (lease->find(key).id != 0) {
            return; // a commit that is seen is synced
        }
    }
    Lease lease(*this, Kind::writes, watch);
    check_size(lease, key, bytes.size());
    if (lease->find(key).id == 0) {
        lease->insert(key, bytes);
        lease.commit();
    }
}

void Sqlite::replace(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) {
    check_key(key);
    Lease lease(*this, Kind::writes, watch);
    check_size(lease, key, bytes.size());
    if (const SqliteConnection::Found found = lease->find(key); found.id != 0) {
        lease->replace(found, bytes);
    } else {
        lease->insert(key, bytes);
    }
    lease.commit();
}

std::optional<Marked> Sqlite::get_marked(const std::string &key, const Watch &watch) {
    std::optional<Bytes> bytes = get(key, watch);
    if (!bytes) {
        return std::nullopt;
    }
    std::string mark = mark_of(*bytes);
    return Marked{std::move(*bytes), std::move(mark)};
}

// Whether the object has the mark; without a mark: whether there is none.
bool has_mark(Lease &lease, const SqliteConnection::Found &found,
              const std::optional<std::string> &mark) {
    if (found.id == 0 || !mark) {
        return found.id == 0 && !mark;
    }
    Bytes bytes(found.bytes);
    lease->read(found, 0, bytes);
    return mark_of(bytes) == *mark;
}

std::optional<std::string> Sqlite::swap(const std::string &key,
                                        const std::optional<std::string> &mark,
                                        std::span<const uint8_t> bytes, const Watch &watch) {
    check_key(key);
    Lease lease(*this, Kind::writes, watch);
    check_size(lease, key, bytes.size());
    const SqliteConnection::Found found = lease->find(key);
    if (!has_mark(lease, found, mark)) {
        return std::nullopt;
    }
    if (mark) {
        lease->replace(found, bytes);
    } else {
        lease->insert(key, bytes);
    }
    lease.commit();
    return mark_of(bytes);
}

void Sqlite::remove(const std::string &key, const Watch &watch) {
    check_key(key);
    Lease lease(*this, Kind::writes, watch);
    lease->remove(key);
    lease.commit();
}

bool Sqlite::remove_marked(const std::string &key, const std::string &mark, const Watch &watch) {
    check_key(key);
    Lease lease(*this, Kind::writes, watch);
    if (!has_mark(lease, lease->find(key), mark)) {
        return false;
    }
    lease->remove(key);
    lease.commit();
    return true;
}

void Sqlite::list(const std::string &prefix, const std::function<bool(const ListedObject &)> &visit,
                  const Watch &watch) {
    check_prefix(prefix);
    // Characters of keys are between '!' and '\x7f'.
    const std::string end = prefix + "\x7f";
    std::string from = prefix;
    std::vector<ListedObject> listed;
    do { // by parts, so that the visitor meets no open transaction
        listed.clear();
        {
            const Lease lease(*this, Kind::reads, watch);
            SqliteQuery query(lease.connection(),
                              "SELECT key, length(bytes) FROM objects WHERE key >= ?1 AND key < ?2 "
                              "ORDER BY key LIMIT ?3");
            query.text(1, from).text(2, end).number(3, kListedAtOnce);
            while (query.step()) {
                listed.push_back({query.text_at(0), static_cast<uint64_t>(query.number_at(1)), {}});
            }
        }
        for (const ListedObject &each : listed) {
            if (!visit(each)) {
                return;
            }
        }
        from = listed.empty() ? end : listed.back().key + "!";
    } while (listed.size() == kListedAtOnce);
}

// A collector's lock. At its end the file gives back space of what was removed, with no lock held:
// others write meanwhile.
struct Sqlite::Collecting : BackendLock {
    Collecting(Sqlite &backend, std::unique_ptr<BackendLock> lock)
        : of(backend), held(std::move(lock)) {}
    ~Collecting() override {
        held.reset();
        try {
            of.give_back_space();
        } catch (const std::exception &) {
            // It is free in the file, and used again by what is put.
        }
    }
    Sqlite &of;
    std::unique_ptr<BackendLock> held;
};

std::unique_ptr<BackendLock> Sqlite::lock_to_collect(const Watch &watch) {
    return std::make_unique<Collecting>(
        *this, wait_for_store(system_files(), locks(), LockKind::alone, watch));
}

void Sqlite::give_back_space() {
    const Watch second{nullptr, nullptr, nullptr, Deadline::in_ms(1000)};
    for (int batch = 0; batch < kVacuumBatches; ++batch) {
        Lease lease(*this, Kind::writes, second);
        if (lease->ask("PRAGMA freelist_count") == 0) {
            return;
        }
        lease->run(("PRAGMA incremental_vacuum(" + std::to_string(kVacuumPages) + ")").c_str());
        lease.commit();
    }
}

} // namespace

std::unique_ptr<Backend> open_sqlite_backend(const std::string &path) {
    return std::make_unique<Sqlite>(path);
}

} // namespace stasis::format
