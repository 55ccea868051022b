// Where a store keeps its objects: a directory, a database, a service. A table of keys and bytes;
// must not know what the bytes mean. Functions may be called from many threads, and by many
// processes at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stasis::format {

using Bytes = std::vector<uint8_t>;

// An object that can be replaced, and the mark of these bytes: what `swap` compares.
struct Marked {
    Bytes bytes;
    std::string mark; // never empty; made of the bytes, or by the service
};

struct ListedObject {
    std::string key;
    uint64_t bytes = 0;
    // Since it was put, or put again; by the clock of the backend. Nothing: the backend's lock
    // keeps writers and collectors apart, so that no age matters.
    std::optional<uint64_t> age_seconds;
};

// Held as long as it lives.
struct BackendLock {
    virtual ~BackendLock() = default;
};

// Keys have 1 to 512 characters of a-z, A-Z, 0-9, '.', '-', '_' and '/', no empty part between two
// '/', none that begins with '.'. All functions throw Error(io) if the backend fails, and
// Error(cancelled) or Error(timeout) if they wait and the store's watch says so. What a function
// has written when it returns survives a power loss.
class Backend {
  public:
    virtual ~Backend() = default;

    // Returns all bytes of an object, or nothing if there is none.
    virtual std::optional<Bytes> get(const std::string &key) = 0;
    // Reads bytes of an object. False: there is none, or it ends before.
    virtual bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into) = 0;
    // Writes an object if there is none of this key. If there is one, its age begins anew. Nobody
    // ever sees a part of it.
    virtual void put(const std::string &key, std::span<const uint8_t> bytes) = 0;

    // The same for objects that can be replaced: as get, with the mark of what was read.
    virtual std::optional<Marked> get_marked(const std::string &key) = 0;
    // Puts `bytes` in place of those that have the mark; without a mark: of none. Returns the new
    // mark, or nothing if other bytes are there, or none. Atomic.
    virtual std::optional<std::string> swap(const std::string &key,
                                            const std::optional<std::string> &mark,
                                            std::span<const uint8_t> bytes) = 0;

    // Visits all objects whose key begins with the prefix, in the order of keys, while `visit`
    // returns true. Objects that come and go meanwhile may be missed.
    virtual void list(const std::string &prefix,
                      const std::function<bool(const ListedObject &)> &visit) = 0;
    // Removes an object; it may be gone already.
    virtual void remove(const std::string &key) = 0;
    // Removes one that has the mark. False: other bytes are there, or none.
    virtual bool remove_marked(const std::string &key, const std::string &mark) = 0;

    // A writer holds this from its first put to its swap, many at once; a collector alone holds the
    // other one while it removes. Nothing: the backend has no locks, and ages must do.
    virtual std::unique_ptr<BackendLock> lock_to_write() = 0;
    virtual std::unique_ptr<BackendLock> lock_to_collect() = 0;
};

// A directory, made if it is not there. Error(io), Error(invalid_argument).
std::unique_ptr<Backend> open_directory_backend(const std::string &path);
// One SQLite file, made if it is not there. Error(io), Error(invalid_argument).
std::unique_ptr<Backend> open_sqlite_backend(const std::string &path);

} // namespace stasis::format
