// Stasis for C++20: where a store keeps its bytes, where that is the host's. Included by
// stasis.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "stasis/error.hpp"

namespace stasis {

// A root as a backend holds it, and the mark that no other bytes under its key ever have: a text of
// 1 to 127 bytes.
struct MarkedRoot {
    std::vector<std::byte> bytes;
    std::string mark;
};

// A table of keys and bytes that a host brings, for Store. Objects ("objects/...") are put once and
// never changed; roots ("roots/...") are replaced. What a function has written when it returns must
// survive. Functions run on any thread, several at once, until the store, its snapshots and its
// sessions are gone; they must not use the store. What one throws ends the store's call, which
// throws it again; Error(Cancelled) and Error(Timeout) end it as themselves.
class Backend {
  public:
    virtual ~Backend() = default;

    // Returns the bytes of an object; nothing: there is none.
    virtual std::optional<std::uint64_t> size(const std::string &key) = 0;
    // Fills the space with bytes of an object; without space it asks whether the object is there.
    // Returns false if there is none, or it ends before them.
    virtual bool read(const std::string &key, std::uint64_t offset, std::span<std::byte> space) = 0;
    // Puts an object if there is none of this key; if there is, its age begins anew. Nobody ever
    // sees a part of it.
    virtual void put(const std::string &key, std::span<const std::byte> bytes) = 0;
    // Returns a root; nothing: there is none.
    virtual std::optional<MarkedRoot> get_root(const std::string &key) = 0;
    // Puts a root in place of the one that has the mark, or without a mark of none, at once or not
    // at all, and returns the new mark; nothing: another is there, or none.
    virtual std::optional<std::string> swap(const std::string &key,
                                            const std::optional<std::string> &mark,
                                            std::span<const std::byte> bytes) = 0;
    // Removes the root that has the mark. Returns false if another is there, or none.
    virtual bool remove_root(const std::string &key, const std::string &mark) = 0;
    // Told of a key, its object's bytes, and the time since it was put; false: no more.
    using Visit =
        std::function<bool(const std::string &key, std::uint64_t bytes, std::chrono::seconds age)>;
    // Calls `visit` for each key that begins with the prefix, ascending, until it returns false, on
    // this thread. `visit` may call the other functions, and throws nothing.
    virtual void list(const std::string &prefix, const Visit &visit) = 0;
    // Removes an object; it may be gone already.
    virtual void remove(const std::string &key) = 0;
    // Puts an object in place of the damaged one under its key. A backend that can do so at once
    // should: between the two steps nobody has it.
    virtual void replace(const std::string &key, std::span<const std::byte> bytes) {
        remove(key);
        put(key, bytes);
    }

    // Whether there are locks. Without them, ages decide what a collection may remove.
    virtual bool locks() const { return false; }
    // Takes a lock, shared by all writers, or with `collect` a collector's alone, which is held as
    // long as what is returned lives.
    virtual std::shared_ptr<void> lock(bool /*collect*/) { return nullptr; }
};

namespace detail {

// What functions of a backend have thrown, until the calls that they ended find it: these run on
// other threads, too, and the library's message is all that they have in common.
class Failures {
  public:
    // Keeps the exception that is being handled.
    void keep(const char *function, const char *key) noexcept {
        try {
            const std::lock_guard lock(mutex_);
            if (kept_.size() == kMost) { // of calls that ended otherwise
                kept_.pop_front();
            }
            kept_.push_back({std::string("the backend's ") + function + " of " + key + " ",
                             std::current_exception()});
        } catch (...) { // no memory: the call ends with the library's message
        }
    }
    // Throws what ended a call that has failed with this.
    void rethrow(stasis_status status, const char *message) {
        if (status != STASIS_IO) {
            return;
        }
        std::exception_ptr thrown;
        {
            const std::lock_guard lock(mutex_);
            for (auto each = kept_.begin(); each != kept_.end(); ++each) {
                if (std::string_view(message).find(each->what) != std::string_view::npos) {
                    thrown = each->thrown;
                    kept_.erase(each);
                    break;
                }
            }
        }
        if (thrown) {
            std::rethrow_exception(thrown);
        }
    }

  private:
    static constexpr std::size_t kMost = 64;
    struct Kept {
        std::string what;
        std::exception_ptr thrown;
    };
    std::mutex mutex_;
    std::deque<Kept> kept_;
};

// Makes a call that may call a backend (null: none does) and checks it.
template <typename Function>
void call(const std::shared_ptr<Failures> &failures, const Function &function) {
    Call made;
    const stasis_status status = function(made.error());
    if (failures) {
        failures->rethrow(status, made.error()->message);
    }
    made.check(status);
}

template <typename Buffer, typename Function>
Buffer filled(const std::shared_ptr<Failures> &failures, std::size_t guess,
              const Function &function) {
    try {
        return filled<Buffer>(guess, function);
    } catch (const Error &error) {
        if (failures) {
            failures->rethrow(static_cast<stasis_status>(error.status()), error.what());
        }
        throw;
    }
}

// A backend as C calls it; the library owns it, by `release`.
struct HeldBackend {
    std::shared_ptr<Backend> backend;
    std::shared_ptr<Failures> failures = std::make_shared<Failures>();

    stasis_store_backend table();

    // Runs a function of the backend. Returns its status, or that of what it throws.
    template <typename Body>
    static stasis_status run(void *user, const char *function, const char *key,
                             const Body &body) noexcept {
        auto &held = *static_cast<HeldBackend *>(user);
        try {
            return body(*held.backend);
        } catch (const Error &error) {
            if (error.status() == Status::Cancelled || error.status() == Status::Timeout) {
                return static_cast<stasis_status>(error.status());
            }
            held.failures->keep(function, key);
        } catch (...) {
            held.failures->keep(function, key);
        }
        return STASIS_IO;
    }

    static void write_mark(const std::string &mark, char *to) {
        constexpr std::size_t kMarkBytes = 128;
        if (mark.empty() || mark.size() >= kMarkBytes || mark.find('\0') != std::string::npos) {
            throw Error(Status::InvalidArgument, "a backend's mark is '" + mark.substr(0, 60) +
                                                     "': expected 1 to 127 bytes");
        }
        std::memcpy(to, mark.c_str(), mark.size() + 1);
    }
    static std::span<const std::byte> bytes_of(const void *data, std::size_t length) noexcept {
        return {static_cast<const std::byte *>(data), length};
    }
    static stasis_status swap(void *user, const char *key, const char *mark, const void *data,
                              std::size_t length, char *new_mark) noexcept;
    static stasis_status get_root(void *user, const char *key, void *data, std::size_t capacity,
                                  std::size_t *length, char *mark) noexcept;
    static stasis_status list(void *user, const char *prefix, stasis_store_key_fn visit,
                              void *visit_user) noexcept;
    static stasis_status lock(void *user, std::int32_t collect, void **lock) noexcept;
};

inline stasis_status HeldBackend::swap(void *user, const char *key, const char *mark,
                                       const void *data, std::size_t length,
                                       char *new_mark) noexcept {
    return run(user, "swap", key, [&](Backend &of) {
        if (data == nullptr) {
            return of.remove_root(key, mark) ? STASIS_OK : STASIS_CONFLICT;
        }
        const auto expected = mark == nullptr ? std::nullopt : std::optional<std::string>(mark);
        const std::optional<std::string> made = of.swap(key, expected, bytes_of(data, length));
        if (made) {
            write_mark(*made, new_mark);
        }
        return made ? STASIS_OK : STASIS_CONFLICT;
    });
}

inline stasis_status HeldBackend::get_root(void *user, const char *key, void *data,
                                           std::size_t capacity, std::size_t *length,
                                           char *mark) noexcept {
    return run(user, "get_root", key, [&](Backend &of) {
        const std::optional<MarkedRoot> root = of.get_root(key);
        if (!root) {
            return STASIS_NOT_FOUND;
        }
        *length = root->bytes.size();
        if (*length <= capacity) {
            std::copy(root->bytes.begin(), root->bytes.end(), static_cast<std::byte *>(data));
            write_mark(root->mark, mark);
        }
        return STASIS_OK;
    });
}

inline stasis_status HeldBackend::list(void *user, const char *prefix, stasis_store_key_fn visit,
                                       void *visit_user) noexcept {
    return run(user, "list", prefix, [&](Backend &of) {
        of.list(prefix, [&](const std::string &key, std::uint64_t bytes, std::chrono::seconds age) {
            const std::int64_t seconds = std::max<std::int64_t>(0, age.count());
            return visit(visit_user, key.c_str(), bytes, static_cast<std::uint64_t>(seconds)) == 0;
        });
        return STASIS_OK;
    });
}

inline stasis_status HeldBackend::lock(void *user, std::int32_t collect, void **lock) noexcept {
    return run(user, "lock", collect != 0 ? "collect" : "write", [&](Backend &of) {
        *lock = new std::shared_ptr<void>(of.lock(collect != 0));
        return STASIS_OK;
    });
}

inline stasis_store_backend HeldBackend::table() {
    auto raw = sized<stasis_store_backend>();
    raw.user = this;
    raw.size = [](void *user, const char *key, std::uint64_t *size) {
        return run(user, "size", key, [&](Backend &of) {
            const std::optional<std::uint64_t> found = of.size(key);
            *size = found.value_or(0);
            return found ? STASIS_OK : STASIS_NOT_FOUND;
        });
    };
    raw.read = [](void *user, const char *key, std::uint64_t offset, void *data,
                  std::size_t length) {
        return run(user, "read", key, [&](Backend &of) {
            return of.read(key, offset, {static_cast<std::byte *>(data), length})
                       ? STASIS_OK
                       : STASIS_NOT_FOUND;
        });
    };
    raw.put = [](void *user, const char *key, const void *data, std::size_t length) {
        return run(user, "put", key, [&](Backend &of) {
            of.put(key, bytes_of(data, length));
            return STASIS_OK;
        });
    };
    raw.get_root = get_root;
    raw.swap = swap;
    raw.list = list;
    raw.remove = [](void *user, const char *key) {
        return run(user, "remove", key, [&](Backend &of) {
            of.remove(key);
            return STASIS_OK;
        });
    };
    raw.replace = [](void *user, const char *key, const void *data, std::size_t length) {
        return run(user, "replace", key, [&](Backend &of) {
            of.replace(key, bytes_of(data, length));
            return STASIS_OK;
        });
    };
    if (backend->locks()) {
        raw.lock = lock;
        raw.unlock = [](void *, void *held) { delete static_cast<std::shared_ptr<void> *>(held); };
    }
    raw.release = [](void *user) { delete static_cast<HeldBackend *>(user); };
    return raw;
}

} // namespace detail
} // namespace stasis
