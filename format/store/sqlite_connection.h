// A connection to the SQLite file of a store, with its statements and the errors of SQLite as those
// of this library. Must not know what a backend promises. For one thread at a time.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/watch.h"

namespace stasis::format {

// What a file is that was opened: no tables and no number of ours, a store, or anything else.
enum class SqliteContents { empty, store, other_version, foreign };

class SqliteConnection {
  public:
    // Opens a file that is there. Throws Error(io), as all functions; Error(invalid_argument) if
    // it is no file of SQLite.
    explicit SqliteConnection(const std::string &path);
    ~SqliteConnection();
    SqliteConnection(const SqliteConnection &) = delete;
    SqliteConnection &operator=(const SqliteConnection &) = delete;

    // Waits for other processes end as this watch says; it outlives the calls.
    void watch(const Watch *watch) { watch_ = watch; }
    // Whether no call has failed, and no transaction is open.
    bool is_sound() const { return sound_ && sqlite3_get_autocommit(db_) != 0; }

    SqliteContents contents();
    void create_tables();
    void set_up(); // after contents() has said that it is a store

    void run(const char *sql); // without parameters
    int64_t ask(const char *sql);

    // Throws if `code` is an error; returns it.
    int check(int code);
    sqlite3 *db() const { return db_; }
    // The statement of this text, prepared once.
    sqlite3_stmt *statement(const char *sql);

    // Objects, in the transaction that is open.
    struct Found {
        int64_t id = 0; // 0: there is none
        uint64_t bytes = 0;
    };
    Found find(std::string_view key);
    void read(const Found &object, uint64_t offset, std::span<uint8_t> into);
    void insert(std::string_view key, std::span<const uint8_t> bytes);
    void replace(const Found &object, std::span<const uint8_t> bytes);
    void remove(std::string_view key);

  private:
    static int wait_busy(void *self, int count);
    void close();

    const std::string path_;
    sqlite3 *db_ = nullptr;
    const Watch *watch_ = nullptr;
    std::chrono::steady_clock::time_point waits_since_;
    bool sound_ = true;
    struct Prepared {
        const char *sql;
        sqlite3_stmt *statement;
    };
    std::vector<Prepared> prepared_;
};

// A statement with its parameters, until the end of this object's life.
class SqliteQuery {
  public:
    SqliteQuery(SqliteConnection &connection, const char *sql);
    ~SqliteQuery();
    SqliteQuery(const SqliteQuery &) = delete;
    SqliteQuery &operator=(const SqliteQuery &) = delete;

    // The bytes outlive the object. Parameters have numbers from 1, columns from 0.
    SqliteQuery &text(int parameter, std::string_view text);
    SqliteQuery &bytes(int parameter, std::span<const uint8_t> bytes);
    SqliteQuery &number(int parameter, int64_t number);
    bool step(); // false: there is no row more
    int64_t number_at(int column) const { return sqlite3_column_int64(statement_, column); }
    std::string text_at(int column) const;

  private:
    SqliteConnection &connection_;
    sqlite3_stmt *statement_;
};

// A transaction, undone at the end of its life unless it was committed.
class SqliteTransaction {
  public:
    enum class Kind { reads, writes };
    SqliteTransaction(SqliteConnection &connection, Kind kind);
    ~SqliteTransaction();
    SqliteTransaction(const SqliteTransaction &) = delete;
    SqliteTransaction &operator=(const SqliteTransaction &) = delete;
    void commit();

  private:
    SqliteConnection &connection_;
};

} // namespace stasis::format
