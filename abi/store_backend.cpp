// Calls of a host's backend and what they answer; see store_backend.h.
#include "abi/store_backend.h"

#include <cstring>
#include <exception>

namespace stasis::abi {

namespace {

using format::Bytes;

constexpr size_t kMarkBytes = 128;

class Calls : public HostBackend {
  public:
    explicit Calls(const stasis_store_backend &given) : given_(given) {}
    ~Calls() override {
        if (opened && given_.release != nullptr) {
            given_.release(given_.user);
        }
    }

    std::optional<Bytes> get(const std::string &key, const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        uint64_t size = 0;
        if (!found(call, "size", key, given_.size(given_.user, key.c_str(), &size))) {
            return std::nullopt;
        }
        Bytes bytes(size);
        return read(key, 0, bytes, watch) ? std::optional(std::move(bytes)) : std::nullopt;
    }
    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
              const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        return found(call, "read", key,
                     given_.read(given_.user, key.c_str(), offset, into.data(), into.size()));
    }
    void put(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        check(call, "put", key, given_.put(given_.user, key.c_str(), bytes.data(), bytes.size()));
    }

    void replace(const std::string &key, std::span<const uint8_t> bytes,
                 const Watch &watch) override {
        if (given_.replace == nullptr) {
            remove(key, watch);
            put(key, bytes, watch);
            return;
        }
        watch.look(0, 0);
        const ModuleCall call(watch);
        check(call, "replace", key,
              given_.replace(given_.user, key.c_str(), bytes.data(), bytes.size()));
    }

    std::optional<format::Marked> get_marked(const std::string &key, const Watch &watch) override {
        format::Marked marked;
        marked.bytes.resize(4096); // nearly always more than enough
        for (;;) {                 // it may be replaced by a larger one meanwhile
            watch.look(0, 0);
            const ModuleCall call(watch);
            char mark[kMarkBytes] = {};
            size_t length = 0;
            if (!found(call, "get_root", key,
                       given_.get_root(given_.user, key.c_str(), marked.bytes.data(),
                                       marked.bytes.size(), &length, mark))) {
                return std::nullopt;
            }
            const bool enough = length <= marked.bytes.size();
            marked.bytes.resize(length);
            if (enough) {
                marked.mark = read_mark(mark, key);
                return marked;
            }
        }
    }
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes, const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        char made[kMarkBytes] = {};
        const stasis_status status =
            given_.swap(given_.user, key.c_str(), mark ? mark->c_str() : nullptr,
                        bytes.empty() ? &made : static_cast<const void *>(bytes.data()),
                        bytes.size(), made); // NULL would remove it
        if (status == STASIS_CONFLICT) {
            return std::nullopt;
        }
        check(call, "swap", key, status);
        return read_mark(made, key);
    }
    bool remove_marked(const std::string &key, const std::string &mark,
                       const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        char none[kMarkBytes] = {};
        const stasis_status status =
            given_.swap(given_.user, key.c_str(), mark.c_str(), nullptr, 0, none);
        if (status == STASIS_CONFLICT) {
            return false;
        }
        check(call, "swap", key, status);
        return true;
    }

    void list(const std::string &prefix,
              const std::function<bool(const format::ListedObject &)> &visit,
              const Watch &watch) override {
        struct Visit {
            const std::function<bool(const format::ListedObject &)> &visit;
            const Watch &watch;
            const bool ages;
            std::exception_ptr error = {};
        } state{visit, watch, given_.lock == nullptr};
        const ModuleCall call(watch);
        const stasis_status status = given_.list(
            given_.user, prefix.c_str(),
            [](void *user, const char *key, uint64_t bytes, uint64_t age_seconds) -> int32_t {
                auto &own = *static_cast<Visit *>(user);
                try { // no exception crosses the host's function
                    own.watch.look(0, 0);
                    return own.visit(
                               {key, bytes, own.ages ? std::optional(age_seconds) : std::nullopt})
                               ? 0
                               : 1;
                } catch (...) {
                    own.error = std::current_exception();
                    return 1;
                }
            },
            &state);
        if (state.error) {
            std::rethrow_exception(state.error);
        }
        check(call, "list", prefix, status);
    }
    void remove(const std::string &key, const Watch &watch) override {
        watch.look(0, 0);
        const ModuleCall call(watch);
        check(call, "remove", key, given_.remove(given_.user, key.c_str()));
    }

    std::unique_ptr<format::BackendLock> lock_to_write(const Watch &watch) override {
        return lock(0, watch);
    }
    std::unique_ptr<format::BackendLock> lock_to_collect(const Watch &watch) override {
        return lock(1, watch);
    }

  private:
    struct Lock : format::BackendLock {
        explicit Lock(const stasis_store_backend &of) : given(of) {}
        ~Lock() override {
            if (taken) {
                given.unlock(given.user, lock);
            }
        }
        const stasis_store_backend &given;
        void *lock = nullptr;
        bool taken = false;
    };

    std::unique_ptr<format::BackendLock> lock(int32_t collect, const Watch &watch) {
        watch.look(0, 0);
        if (given_.lock == nullptr) {
            return nullptr;
        }
        auto held = std::make_unique<Lock>(given_);
        const ModuleCall call(watch);
        check(call, "lock", collect != 0 ? "collect" : "write",
              given_.lock(given_.user, collect, &held->lock));
        held->taken = true;
        return held;
    }

    // Throws unless the host's function succeeded.
    static void check(const ModuleCall &call, const char *function, const std::string &key,
                      stasis_status status) {
        if (status == STASIS_OK) {
            return;
        }
        if (status == STASIS_CANCELLED || status == STASIS_TIMEOUT) {
            fail(static_cast<Status>(status), "the backend's %s of %s ended early", function,
                 key.c_str());
        }
        if (call.explained()[0] != '\0') {
            fail(Status::io, "%s", call.explained());
        }
        fail(Status::io, "the backend's %s of %s failed: it returned %d (%s)", function,
             key.c_str(), status, stasis_status_name(status));
    }
    static bool found(const ModuleCall &call, const char *function, const std::string &key,
                      stasis_status status) {
        if (status != STASIS_NOT_FOUND) {
            check(call, function, key, status);
        }
        return status == STASIS_OK;
    }
    static std::string read_mark(const char (&mark)[kMarkBytes], const std::string &key) {
        const size_t length = strnlen(mark, sizeof mark);
        if (length == 0 || length == sizeof mark) {
            fail(Status::io, "the backend's mark of %s has %s", key.c_str(),
                 length == 0 ? "no bytes" : "no end");
        }
        return {mark, length};
    }

    const stasis_store_backend given_;
};

} // namespace

std::shared_ptr<HostBackend> host_backend(const stasis_store_backend *backend) {
    require(backend, "backend");
    const stasis_store_backend given = read_struct(backend, "backend");
    require_zero(given.reserved, "backend");
    const auto needs = [](auto *function, const char *name) {
        require(reinterpret_cast<const void *>(function), name);
    };
    needs(given.size, "backend.size");
    needs(given.read, "backend.read");
    needs(given.put, "backend.put");
    needs(given.get_root, "backend.get_root");
    needs(given.swap, "backend.swap");
    needs(given.list, "backend.list");
    needs(given.remove, "backend.remove");
    if ((given.lock == nullptr) != (given.unlock == nullptr)) {
        fail(Status::invalid_argument, "backend.lock and backend.unlock: one without the other");
    }
    return std::make_shared<Calls>(given);
}

} // namespace stasis::abi
