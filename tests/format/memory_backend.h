// A backend in memory for tests of what is built on one: slow, full, failing, damaging or losing
// the connection on demand; with locks, or with ages by a clock that the test sets. Counts calls.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "format/store/backend.h"

namespace stasis::format {

// What goes wrong. Numbers of calls begin with 1 at `trouble`; 0: never.
struct Trouble {
    uint64_t fail_every = 0;     // Error(io), and nothing is done
    uint64_t fail_at = 0;        // the same, once
    uint64_t fail_from = 0;      // the same from this call on
    uint64_t lose_answer_at = 0; // it is done, but Error(io) is thrown: the connection was lost
    uint64_t lose_half_at = 0;   // a read fills half of what was asked for, and throws Error(io)
    uint64_t damage_every = 0;   // what get, get_marked and read return has one bit changed
    uint64_t cut_every = 0;      // what get and get_marked return ends early
    uint64_t slow_ms = 0;        // each call takes so long, unless its watch ends it
    uint64_t bytes_max = UINT64_MAX; // of all objects together: Error(io) where they would exceed
};

class MemoryBackend : public Backend {
  public:
    // With locks, or with ages (`now_seconds`) in place of them.
    explicit MemoryBackend(bool locks = true) : locks_(locks) {}

    void trouble(const Trouble &trouble) {
        const std::lock_guard held(mutex_);
        trouble_ = trouble;
        calls_ = 0;
    }
    // Calls since then.
    uint64_t calls() const {
        const std::lock_guard held(mutex_);
        return calls_;
    }
    uint64_t bytes() const { // of all objects
        const std::lock_guard held(mutex_);
        return total();
    }
    uint64_t bytes_written() const { // by put and swap, since the beginning
        const std::lock_guard held(mutex_);
        return written_;
    }
    void set_now(uint64_t seconds) {
        const std::lock_guard held(mutex_);
        now_seconds_ = seconds;
    }
    // Called before each call, without a lock: what other processes do in between.
    void meanwhile(std::function<void(const char *call, const std::string &key)> act) {
        meanwhile_ = std::move(act);
    }
    // Changes stored bytes; false: there is no such object.
    bool damage(const std::string &key, size_t at) {
        const std::lock_guard held(mutex_);
        const auto found = objects_.find(key);
        if (found == objects_.end() || at >= found->second.bytes.size()) {
            return false;
        }
        found->second.bytes[at] ^= 1;
        return true;
    }

    std::optional<Bytes> get(const std::string &key, const Watch &watch) override {
        Call call(*this, "get", key, watch);
        const auto found = objects_.find(key);
        call.answer();
        return found == objects_.end() ? std::nullopt
                                       : std::optional(call.spoilt(found->second.bytes));
    }

    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into,
              const Watch &watch) override {
        Call call(*this, "read", key, watch);
        const auto found = objects_.find(key);
        const uint64_t size = found == objects_.end() ? 0 : found->second.bytes.size();
        if (found == objects_.end() || offset > size || into.size() > size - offset) {
            call.answer();
            return false;
        }
        const size_t count = call.is(trouble_.lose_half_at) ? into.size() / 2 : into.size();
        std::copy_n(found->second.bytes.begin() + static_cast<ptrdiff_t>(offset), count,
                    into.begin());
        if (call.is(trouble_.lose_half_at)) {
            fail(Status::io, "memory: read: %s: the connection was lost", key.c_str());
        }
        if (call.is_nth(trouble_.damage_every) && !into.empty()) {
            into[into.size() / 2] ^= 0x10;
        }
        call.answer();
        return true;
    }

    void put(const std::string &key, std::span<const uint8_t> bytes, const Watch &watch) override {
        Call call(*this, "put", key, watch);
        const auto found = objects_.find(key);
        if (found != objects_.end()) {
            found->second.since_seconds = now_seconds_;
        } else {
            store(key, bytes);
        }
        call.answer();
    }

    void replace(const std::string &key, std::span<const uint8_t> bytes,
                 const Watch &watch) override {
        Call call(*this, "replace", key, watch);
        store(key, bytes);
        call.answer();
    }

    std::optional<Marked> get_marked(const std::string &key, const Watch &watch) override {
        Call call(*this, "get_marked", key, watch);
        const auto found = objects_.find(key);
        call.answer();
        if (found == objects_.end()) {
            return std::nullopt;
        }
        return Marked{call.spoilt(found->second.bytes), mark_of(found->second.bytes)};
    }

    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes, const Watch &watch) override {
        Call call(*this, "swap", key, watch);
        if (mark_at(key) != mark) {
            call.answer();
            return std::nullopt;
        }
        store(key, bytes);
        call.answer();
        return mark_of(bytes);
    }

    void list(const std::string &prefix, const std::function<bool(const ListedObject &)> &visit,
              const Watch &watch) override {
        std::vector<ListedObject> listed;
        {
            check_prefix(prefix);
            Call call(*this, "list", "", watch);
            for (auto at = objects_.lower_bound(prefix);
                 at != objects_.end() && at->first.compare(0, prefix.size(), prefix) == 0; ++at) {
                const uint64_t since = at->second.since_seconds;
                listed.push_back({at->first, at->second.bytes.size(), {}});
                if (!locks_) { // a clock that jumped back: 0
                    listed.back().age_seconds = now_seconds_ - std::min(now_seconds_, since);
                }
            }
            call.answer();
        }
        for (const ListedObject &each : listed) {
            if (!visit(each)) {
                return;
            }
        }
    }

    void remove(const std::string &key, const Watch &watch) override {
        Call call(*this, "remove", key, watch);
        objects_.erase(key);
        call.answer();
    }

    bool remove_marked(const std::string &key, const std::string &mark,
                       const Watch &watch) override {
        Call call(*this, "remove_marked", key, watch);
        const bool same = mark_at(key) == mark;
        if (same) {
            objects_.erase(key);
        }
        call.answer();
        return same;
    }

    std::unique_ptr<BackendLock> lock_to_write(const Watch &watch) override {
        return lock("lock_to_write", watch, false);
    }
    std::unique_ptr<BackendLock> lock_to_collect(const Watch &watch) override {
        return lock("lock_to_collect", watch, true);
    }

  private:
    struct Object {
        Bytes bytes;
        uint64_t since_seconds = 0;
    };

    // One call: it holds the lock, and goes wrong as `trouble_` says.
    class Call {
      public:
        Call(MemoryBackend &of, const char *name, const std::string &key, const Watch &watch)
            : of_(of), name_(name), key_(key) {
            if (name[0] != 'l') { // all but list and the locks have one
                check_key(key);
            }
            if (of.meanwhile_) {
                of.meanwhile_(name, key);
            }
            of.wait_slowly(watch);
            held_ = std::unique_lock(of.mutex_);
            number_ = ++of.calls_;
            const Trouble &trouble = of.trouble_;
            if (is_nth(trouble.fail_every) || is(trouble.fail_at) ||
                (trouble.fail_from != 0 && number_ >= trouble.fail_from)) {
                fail_call("it was to fail");
            }
        }
        // What was to be done is done.
        void answer() const {
            if (is(of_.trouble_.lose_answer_at)) {
                fail_call("the connection was lost");
            }
        }
        bool is(uint64_t number) const { return number != 0 && number_ == number; }
        bool is_nth(uint64_t every) const { return every != 0 && number_ % every == 0; }
        Bytes spoilt(Bytes bytes) const {
            if (is_nth(of_.trouble_.damage_every) && !bytes.empty()) {
                bytes[bytes.size() / 2] ^= 0x10;
            }
            if (is_nth(of_.trouble_.cut_every)) {
                bytes.resize(bytes.size() / 2);
            }
            return bytes;
        }

      private:
        [[noreturn]] void fail_call(const char *why) const {
            fail(Status::io, "memory: %s: %s: %s", name_, key_.c_str(), why);
        }

        MemoryBackend &of_;
        const char *name_;
        const std::string &key_;
        std::unique_lock<std::mutex> held_;
        uint64_t number_ = 0;
    };

    struct Lock : BackendLock {
        Lock(MemoryBackend &backend, bool collects) : of(backend), alone(collects) {}
        ~Lock() override {
            const std::lock_guard held(of.mutex_);
            (alone ? of.collectors_ : of.writers_) -= 1;
            of.let_go_.notify_all();
        }
        MemoryBackend &of;
        bool alone;
    };

    std::unique_ptr<BackendLock> lock(const char *name, const Watch &watch, bool alone) {
        if (!locks_) {
            return nullptr;
        }
        const std::string none;
        { const Call call(*this, name, none, watch); }
        std::unique_lock held(mutex_);
        waiting_ += alone ? 1 : 0;
        while (collectors_ != 0 || (alone ? writers_ : waiting_) != 0) {
            let_go_.wait_for(held, std::chrono::milliseconds(5));
            if (watch.ends()) {
                waiting_ -= alone ? 1 : 0;
                watch.look(0, 1);
            }
        }
        waiting_ -= alone ? 1 : 0;
        (alone ? collectors_ : writers_) += 1;
        return std::make_unique<Lock>(*this, alone);
    }

    void wait_slowly(const Watch &watch) {
        uint64_t slow_ms = 0;
        {
            const std::lock_guard held(mutex_);
            slow_ms = trouble_.slow_ms;
        }
        for (uint64_t ms = 0; ms < slow_ms; ++ms) {
            watch.look(ms, slow_ms);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    uint64_t total() const {
        uint64_t sum = 0;
        for (const auto &[key, object] : objects_) {
            sum += object.bytes.size();
        }
        return sum;
    }

    std::optional<std::string> mark_at(const std::string &key) const {
        const auto found = objects_.find(key);
        return found == objects_.end() ? std::nullopt : std::optional(mark_of(found->second.bytes));
    }

    void store(const std::string &key, std::span<const uint8_t> bytes) {
        const auto found = objects_.find(key);
        const uint64_t before = found == objects_.end() ? 0 : found->second.bytes.size();
        const uint64_t others = total() - before;
        if (others > trouble_.bytes_max || bytes.size() > trouble_.bytes_max - others) {
            fail(Status::io, "memory: %s: no space left", key.c_str());
        }
        written_ += bytes.size();
        objects_[key] = {Bytes(bytes.begin(), bytes.end()), now_seconds_};
    }

    const bool locks_;
    mutable std::mutex mutex_;
    std::condition_variable let_go_;
    std::map<std::string, Object> objects_;
    Trouble trouble_;
    uint64_t calls_ = 0, written_ = 0, now_seconds_ = 0;
    uint64_t writers_ = 0, collectors_ = 0, waiting_ = 0;
    std::function<void(const char *call, const std::string &key)> meanwhile_;
};

} // namespace stasis::format
