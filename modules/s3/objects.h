// A store's objects and roots as objects of S3: what each function of stasis_store_backend does.
// format/STORE.md describes it. Functions may be called from many threads.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "modules/s3/cache.h"
#include "modules/s3/service.h"

namespace stasis_s3 {

using Bytes = std::vector<uint8_t>;

struct Root {
    std::string bytes, mark;
};

class Objects {
  public:
    Objects(const Settings &settings, const Host &host)
        : service_(settings, host), cache_(settings.cache, settings.cache_bytes) {}

    // Finds the store, or makes one unless it has to be there. Throws Failure: NOT_FOUND;
    // INVALID_ARGUMENT if something else is there; VERSION; UNSUPPORTED if the service does not
    // keep the conditions that a store needs.
    void open(bool existing);

    // The functions of the table. Nothing, and false: there is none, or it ends before; another
    // root is there.
    std::optional<uint64_t> size(const std::string &key);
    bool read(const std::string &key, uint64_t offset, std::span<uint8_t> into);
    void put(const std::string &key, std::span<const uint8_t> bytes);
    void replace(const std::string &key, std::span<const uint8_t> bytes);
    std::optional<Root> get_root(const std::string &key);
    std::optional<std::string> swap(const std::string &key, const std::optional<std::string> &mark,
                                    std::span<const uint8_t> bytes);
    bool remove_root(const std::string &key, const std::string &mark);
    void
    list(const std::string &prefix,
         const std::function<bool(const std::string &key, uint64_t bytes, uint64_t age)> &visit);
    void remove(const std::string &key);

  private:
    struct Fetched {
        std::string key;
        Bytes bytes;
    };

    std::string full(const std::string &key) const { return service_.settings().prefix + key; }
    void make();
    bool is_empty();
    bool touch(const std::string &key);
    bool read_parts(const std::string &key, uint64_t offset, std::span<uint8_t> into);
    void keep(Fetched fetched);
    std::optional<Bytes> take(const std::string &key, size_t bytes);

    Service service_;
    Cache cache_;
    std::mutex mutex_;
    std::deque<Fetched> fetched_;    // objects that came with their size
    std::set<std::string> seen_;     // objects that were there when they were last looked for
    std::deque<std::string> unseen_; // whose bytes came from the cache alone, the last of them
};

} // namespace stasis_s3
