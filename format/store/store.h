// A store of sessions over a backend: each is a root that names immutable objects, which sessions
// share (STORE.md). Paired with backend.h. Knows neither models nor sessions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "format/reader.h"
#include "format/store/backend.h"
#include "format/store/ranges.h"
#include "format/store/records.h"
#include "format/store/segment_sink.h"
#include "format/writer.h"

namespace stasis::format {

// The stored root is not the one that was expected.
struct Conflict : Error {
    Conflict(const std::string &message, const Digest &newer, const Digest &newer_state)
        : Error(Status::conflict, message), root(newer), state(newer_state) {}
    Digest root;  // that is stored; zero: there is none
    Digest state; // of the session that is stored
};

struct StorePutOptions {
    // Codec, keep, logits_row, watch, parallel, and `known`: contents that the caller's last put
    // or open of this name returned. The others have no meaning.
    SaveOptions save = {};
    // The mark that the caller's last put or open returned; nothing: it knows of none.
    std::optional<Digest> expected = {};
    // Where the last put put the mark of what it was about to swap in, if it ended in an error: the
    // answer may have been lost. Null: nowhere. A root of this mark is expected as well.
    std::optional<Digest> *attempted = nullptr;
    // The name of a stored session that may begin with the same tokens, and what its put or open
    // returned; "": none. What a new virtual file has in common with it, is not written again.
    std::string lender = {};
    std::shared_ptr<const Contents> lender_known = {};
    bool overwrite = false; // whatever is expected
    bool repair = false;    // write all of the session, and payloads that are lost again
};

struct StorePut {
    Digest mark; // of the root: what `expected` compares with
    PutCounts counts;
    std::shared_ptr<const Contents> contents;
};

struct StoredSession {
    std::shared_ptr<const Snapshot> snapshot;
    std::shared_ptr<const StoredRanges> ranges; // of the snapshot
    Digest mark;
};

// A session of a list. `damage` not empty: the root is damaged, and nothing else is known.
struct ListedSession {
    std::string name; // of a damaged root: its key
    Digest root, state, model;
    uint64_t position = 0;
    uint64_t bytes = 0; // of the virtual file: what an export writes
    std::string damage;
};

// Thread-safe, as the backend is. Names have 1 to 255 bytes of UTF-8. All functions throw the
// errors of the backend; Error(invalid_argument) for names; Error(corrupt), which names the object,
// where one that they read is damaged or missing.
class Store {
  public:
    explicit Store(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

    // Stores the state under the name: what the store lacks of it, then the root, which makes it
    // count. Throws Conflict unless the stored root has the expected mark; errors of
    // write_sections. After any error the store is as it was, but for objects that a collection
    // removes.
    StorePut put(const State &state, const std::string &name, const StorePutOptions &options) const;

    // Opens a session. Objects that it still reads may be removed if the name gets another root and
    // a collection follows; whoever needs all of it holds lock_to_read. Error(not_found).
    StoredSession open(const std::string &name,
                       const std::shared_ptr<const Contents> &known = nullptr,
                       const Watch &watch = {}, const Parallel &parallel = {}) const;
    std::unique_ptr<BackendLock> lock_to_read(const Watch &watch = {}) const {
        return backend_->lock_to_write(watch);
    }

    // Visits all sessions, in the order of keys, while `visit` returns true.
    void list(const std::function<bool(const ListedSession &)> &visit,
              const Watch &watch = {}) const;
    // Removes a name, even one whose root is damaged. Error(not_found), Error(conflict): it was
    // replaced meanwhile.
    void remove(const std::string &name, const Watch &watch = {}) const;
    // Gives the session a second name, under which it goes on by itself. Writes a root and nothing
    // else. Error(not_found); Conflict if `to` is there, unless it may be overwritten.
    void fork(const std::string &from, const std::string &to, bool overwrite,
              const Watch &watch = {}) const;

    // Copies the state of a snapshot, as it is, into the store. Error(corrupt) also if it is an
    // older one or has damaged bytes that it does not refer to.
    StorePut import(const Snapshot &snapshot, const std::string &name,
                    const StorePutOptions &options) const;

    Backend &backend() const { return *backend_; }

  private:
    struct Current;
    Current current(const std::string &name, const Watch &watch) const;
    std::optional<StoredSession> lender(const State &state, const StorePutOptions &options) const;
    void check_expected(const Current &current, const StorePutOptions &options) const;
    StorePut write(const State &state, const Current &current, const StorePutOptions &options,
                   bool whole, StoredRoot &root) const;
    Digest swap(const StoredRoot &root, Current current, const StorePutOptions &options) const;

    const std::shared_ptr<Backend> backend_;
};

// Writes the state of a snapshot, as it lies in its file or store, into a new file at `path`.
// Throws Error(invalid_argument) if something is there, unless it is a regular file and may be
// replaced; Error(busy), Error(io), errors of reading.
void export_snapshot(const Snapshot &snapshot, const std::string &path, bool replace,
                     const Watch &watch, const FileOperations &files = system_files());

} // namespace stasis::format
