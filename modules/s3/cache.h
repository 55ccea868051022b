// A folder with objects that were read or put before, so that they need not be fetched again. Only
// objects whose names say what they must hold are in it: whatever happens to its files, no wrong
// byte is taken from it. Several processes may share it. Must not know requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stasis_s3 {

class Cache {
  public:
    // Makes the folder if it is not there. An empty path: there is no cache, and all calls find
    // nothing. Throws Failure(IO).
    Cache(const std::string &path, uint64_t bytes_max);

    // Returns an object whose bytes give its name; one that is damaged is removed.
    std::optional<std::vector<uint8_t>> get(std::string_view key);
    // Keeps an object if its bytes give its name. What fails is left out: it is a cache.
    void put(std::string_view key, std::span<const uint8_t> bytes) noexcept;

  private:
    std::string path_of(std::string_view key) const;
    void write(const std::string &path, std::span<const uint8_t> bytes);
    void sweep();

    std::string folder_;
    const uint64_t bytes_max_;
    std::atomic<uint64_t> written_; // since this process has looked what there is
    std::atomic<uint64_t> number_{0};
    std::mutex sweeping_;
};

} // namespace stasis_s3
