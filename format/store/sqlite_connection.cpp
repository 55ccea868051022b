// Calls of SQLite; see sqlite_connection.h.
#include "format/store/sqlite_connection.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <system_error>
#include <thread>

namespace stasis::format {

namespace {

constexpr int64_t kApplication = 0x53744153; // "StAS", at byte 68 of the file
constexpr int64_t kVersion = 1;
constexpr std::chrono::seconds kBusyMax(60);
constexpr const char *kTable =
    "CREATE TABLE objects(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, bytes BLOB NOT NULL)";

[[noreturn]] void fail_code(sqlite3 *db, int code, const std::string &path) {
    const int kind = code & 0xff;
    if (kind == SQLITE_NOMEM) {
        throw std::bad_alloc();
    }
    std::string text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code);
    const int number = db != nullptr ? sqlite3_system_errno(db) : 0;
    if ((kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN) && number != 0) {
        text += ": " + std::generic_category().message(number);
    }
    fail(kind == SQLITE_NOTADB ? Status::invalid_argument : Status::io, "%s: SQLite: %s (%d)",
         path.c_str(), text.c_str(), code);
}

} // namespace

SqliteConnection::SqliteConnection(const std::string &path) : path_(path) {
    // No mutex of SQLite's own: each connection has one thread at a time.
    const int code = sqlite3_open_v2(
        path.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
        nullptr);
    try {
        check(code);
        check(sqlite3_busy_handler(db_, wait_busy, this));
        // What a foreign file's schema says is not run.
        check(sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr));
        check(sqlite3_db_config(db_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr));
    } catch (...) {
        close();
        throw;
    }
}

SqliteConnection::~SqliteConnection() {
    close();
}

void SqliteConnection::close() {
    for (const Prepared &each : prepared_) {
        sqlite3_finalize(each.statement);
    }
    prepared_.clear();
    sqlite3_close(db_);
    db_ = nullptr;
}

// SQLite asks whether to try again for a lock that another connection has.
int SqliteConnection::wait_busy(void *self, int count) {
    auto &connection = *static_cast<SqliteConnection *>(self);
    const auto now = std::chrono::steady_clock::now();
    if (count == 0) {
        connection.waits_since_ = now;
    }
    if (now - connection.waits_since_ > kBusyMax ||
        (connection.watch_ != nullptr && connection.watch_->ends())) {
        return 0;
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::min(5000, 100 << std::min(count, 6))));
    return 1;
}

int SqliteConnection::check(int code) {
    if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) {
        return code;
    }
    sound_ = false;
    if ((code & 0xff) == SQLITE_BUSY) {
        if (watch_ != nullptr) {
            watch_->look(0, 1);
        }
        fail(Status::io, "%s: another process has held the database for too long (%lld s)",
             path_.c_str(), static_cast<long long>(kBusyMax.count()));
    }
    fail_code(db_, code, path_);
}

sqlite3_stmt *SqliteConnection::statement(const char *sql) {
    for (const Prepared &each : prepared_) {
        if (each.sql == sql) { // all are constants
            return each.statement;
        }
    }
    prepared_.reserve(prepared_.size() + 1);
    sqlite3_stmt *made = nullptr;
    check(sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr));
    prepared_.push_back({sql, made});
    return made;
}

void SqliteConnection::run(const char *sql) {
    check(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr));
}

int64_t SqliteConnection::ask(const char *sql) {
    sqlite3_stmt *made = nullptr;
    check(sqlite3_prepare_v2(db_, sql, -1, &made, nullptr));
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt *)> owner(made, sqlite3_finalize);
    return check(sqlite3_step(made)) == SQLITE_ROW ? sqlite3_column_int64(made, 0) : 0;
}

SqliteContents SqliteConnection::contents() {
    // All of one moment: another connection may be making the store.
    const SqliteTransaction transaction(*this, SqliteTransaction::Kind::reads);
    const int64_t application = ask("PRAGMA application_id"), version = ask("PRAGMA user_version");
    if (application != kApplication) {
        return application == 0 && version == 0 && ask("SELECT count(*) FROM sqlite_schema") == 0
                   ? SqliteContents::empty
                   : SqliteContents::foreign;
    }
    if (version != kVersion) {
        return SqliteContents::other_version;
    }
    // The table and its index, and nothing that another program has added, such as a trigger.
    const std::string sql =
        std::string("SELECT count(*) = 2 AND sum(sql = '") + kTable + "') = 1 FROM sqlite_schema";
    return ask(sql.c_str()) != 0 ? SqliteContents::store : SqliteContents::foreign;
}

void SqliteConnection::create_tables() {
    // Objects have kilobytes to megabytes: larger pages are fewer in a chain. The map that
    // auto_vacuum keeps finds a part in the middle of an object without reading what is before.
    run("PRAGMA page_size=16384");
    run("PRAGMA auto_vacuum=INCREMENTAL");
    run("PRAGMA journal_mode=WAL");
    SqliteTransaction transaction(*this, SqliteTransaction::Kind::writes);
    run(kTable);
    run(("PRAGMA application_id=" + std::to_string(kApplication)).c_str());
    run(("PRAGMA user_version=" + std::to_string(kVersion)).c_str());
    transaction.commit();
}

void SqliteConnection::set_up() {
    run("PRAGMA journal_mode=WAL"); // stays in the file; a copy by SQLite's own tools may lack it
    run("PRAGMA synchronous=FULL"); // each commit is synced
    run("PRAGMA secure_delete=FAST");
    run("PRAGMA cache_size=-1024"); // KiB; objects are read once
}

SqliteConnection::Found SqliteConnection::find(std::string_view key) {
    SqliteQuery query(*this, "SELECT id, length(bytes) FROM objects WHERE key = ?1");
    if (!query.text(1, key).step()) {
        return {};
    }
    return {query.number_at(0), static_cast<uint64_t>(query.number_at(1))};
}

void SqliteConnection::read(const Found &object, uint64_t offset, std::span<uint8_t> into) {
    assert(offset <= object.bytes && into.size() <= object.bytes - offset);
    if (into.empty()) {
        return;
    }
    sqlite3_blob *blob = nullptr;
    const int code = sqlite3_blob_open(db_, "main", "objects", "bytes", object.id, 0, &blob);
    const std::unique_ptr<sqlite3_blob, int (*)(sqlite3_blob *)> owner(blob, sqlite3_blob_close);
    check(code);
    check(sqlite3_blob_read(blob, into.data(), static_cast<int>(into.size()),
                            static_cast<int>(offset)));
}

void SqliteConnection::insert(std::string_view key, std::span<const uint8_t> bytes) {
    SqliteQuery query(*this, "INSERT INTO objects(key, bytes) VALUES(?1, ?2)");
    query.text(1, key).bytes(2, bytes).step();
}

void SqliteConnection::replace(const Found &object, std::span<const uint8_t> bytes) {
    SqliteQuery query(*this, "UPDATE objects SET bytes = ?2 WHERE id = ?1");
    query.number(1, object.id).bytes(2, bytes).step();
}

void SqliteConnection::remove(std::string_view key) {
    SqliteQuery query(*this, "DELETE FROM objects WHERE key = ?1");
    query.text(1, key).step();
}

SqliteQuery::SqliteQuery(SqliteConnection &connection, const char *sql)
    : connection_(connection), statement_(connection.statement(sql)) {}

SqliteQuery::~SqliteQuery() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
}

SqliteQuery &SqliteQuery::text(int parameter, std::string_view text) {
    connection_.check(sqlite3_bind_text(statement_, parameter, text.data(),
                                        static_cast<int>(text.size()), SQLITE_STATIC));
    return *this;
}

SqliteQuery &SqliteQuery::bytes(int parameter, std::span<const uint8_t> bytes) {
    // A null pointer would be NULL, not an empty object.
    const void *const data = bytes.empty() ? static_cast<const void *>("") : bytes.data();
    connection_.check(
        sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), SQLITE_STATIC));
    return *this;
}

SqliteQuery &SqliteQuery::number(int parameter, int64_t number) {
    connection_.check(sqlite3_bind_int64(statement_, parameter, number));
    return *this;
}

bool SqliteQuery::step() {
    return connection_.check(sqlite3_step(statement_)) == SQLITE_ROW;
}

std::string SqliteQuery::text_at(int column) const {
    const auto *const text =
        reinterpret_cast<const char *>(sqlite3_column_text(statement_, column));
    return {text != nullptr ? text : "",
            static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

SqliteTransaction::SqliteTransaction(SqliteConnection &connection, Kind kind)
    : connection_(connection) {
    // A transaction that only began to read may find, when it writes, that others have.
    SqliteQuery(connection, kind == Kind::writes ? "BEGIN IMMEDIATE" : "BEGIN").step();
}

SqliteTransaction::~SqliteTransaction() {
    if (sqlite3_get_autocommit(connection_.db()) == 0) { // SQLite itself undoes some
        sqlite3_exec(connection_.db(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
}

void SqliteTransaction::commit() {
    SqliteQuery(connection_, "COMMIT").step();
}

} // namespace stasis::format
