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
#include <string_view>
#include <vector>

#include "format/state/file.h"
#include "format/state/watch.h"

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

// Keys have 1 to 512 characters of a-z, A-Z, 0-9, '.', '-', '_' and '/'. Their parts between '/'
// have 1 to 200 characters and do not begin with '.'. Where there is an object 'a/b', 'a' is the
// key of none, and the other way round (a directory has one name for one thing).
//
// All functions throw Error(invalid_argument) if the key is not one, Error(io) if the backend
// fails, and Error(cancelled) or Error(timeout) if they wait and the watch says so. What a function
// has written when it returns survives a power loss. After an error what was to be written is there
// whole, or not at all.
class Backend {
  public:
    virtual ~Backend() = default;

    // Returns all bytes of an object, or nothing if there is none.
    virtual std::optional<Bytes> get(const std::string &key, const Watch &watch = {}) = 0;
    // Reads bytes of an object. False: there is none, or it ends before.
    virtual bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
                      const Watch &watch = {}) = 0;
    // Writes an object if there is none of this key. If there is one, its age begins anew. Nobody
    // ever sees a part of it.
    virtual void put(const std::string &key, std::span<const uint8_t> bytes,
                     const Watch &watch = {}) = 0;
    // Writes an object in place of what is there, if anything: bytes that do not give its name. In
    // one step, but for a host's backend that has none (stasis_store_backend): there the object is
    // removed before it is put.
    virtual void replace(const std::string &key, std::span<const uint8_t> bytes,
                         const Watch &watch = {}) = 0;

    // The same for objects that can be replaced: as get, with the mark of what was read.
    virtual std::optional<Marked> get_marked(const std::string &key, const Watch &watch = {}) = 0;
    // Puts `bytes` in place of those that have the mark; without a mark: of none. Returns the new
    // mark, or nothing if other bytes are there, or none. Atomic.
    virtual std::optional<std::string> swap(const std::string &key,
                                            const std::optional<std::string> &mark,
                                            std::span<const uint8_t> bytes,
                                            const Watch &watch = {}) = 0;

    // Visits all objects whose key begins with the prefix (empty: all), in the order of keys as
    // bytes, while `visit` returns true; it may call all functions. Objects that come, go
    // or are replaced meanwhile may be missed.
    virtual void list(const std::string &prefix,
                      const std::function<bool(const ListedObject &)> &visit,
                      const Watch &watch = {}) = 0;
    // Removes an object; it may be gone already. A power loss may bring it back.
    virtual void remove(const std::string &key, const Watch &watch = {}) = 0;
    // Removes one that has the mark, for good. False: other bytes are there, or none.
    virtual bool remove_marked(const std::string &key, const std::string &mark,
                               const Watch &watch = {}) = 0;

    // A writer holds this from its first put to its swap, many at once; a collector alone holds the
    // other one while it marks and removes. Nothing: the backend has no locks, and ages must do.
    // Both wait, until the watch ends it; while a collector waits, no new writer begins. Locks of
    // one process exclude each other as those of several do: who holds one and waits for another
    // waits for itself.
    virtual std::unique_ptr<BackendLock> lock_to_write(const Watch &watch = {}) = 0;
    virtual std::unique_ptr<BackendLock> lock_to_collect(const Watch &watch = {}) = 0;
};

// A directory, made if it is not there. Throws Error(invalid_argument) if there is something else,
// Error(version) if another version of Stasis made it, Error(io).
std::unique_ptr<Backend> open_directory_backend(const std::string &path,
                                                const FileOperations &files = system_files());
// One SQLite file, made if it is not there. Throws the same.
std::unique_ptr<Backend> open_sqlite_backend(const std::string &path);

// What backends share. `check_key` throws Error(invalid_argument) if it is no key, `check_prefix`
// if no key begins so.
bool is_key(std::string_view key);
void check_key(std::string_view key);
void check_prefix(std::string_view prefix);
// Returns the mark of a backend that makes marks of the bytes.
std::string mark_of(std::span<const uint8_t> bytes);

} // namespace stasis::format
