// The files of the cache; see cache.h. An object is FOLDER/ab/cdef..., as after objects/ in its
// key; FOLDER/.new has those that are being written.
#include "modules/s3/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "modules/s3/failure.h"
#include "modules/s3/sign.h"

namespace stasis_s3 {

namespace {

constexpr uint64_t kShare = 16;       // of the budget, after which it is looked at again
constexpr time_t kLeftSeconds = 3600; // after which nobody is writing a file of .new any more
constexpr std::string_view kPrefix = "objects/";

namespace fs = std::filesystem;

// A descriptor that closes itself.
struct Descriptor {
    explicit Descriptor(int given) : number(given) {}
    ~Descriptor() {
        if (number >= 0) {
            ::close(number);
        }
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    const int number;
};

bool read_all(int descriptor, std::span<uint8_t> into) {
    while (!into.empty()) {
        const ssize_t count = ::read(descriptor, into.data(), into.size());
        if (count <= 0) {
            if (count < 0 && errno == EINTR) {
                continue;
            }
            return false;
        }
        into = into.subspan(static_cast<size_t>(count));
    }
    return true;
}

bool write_all(int descriptor, std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
        if (count <= 0) {
            if (count < 0 && errno == EINTR) {
                continue;
            }
            return false;
        }
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return true;
}

// The 64 digits of a key objects/ab/cdef..., or nothing.
std::string digits_of(std::string_view key) {
    if (!key.starts_with(kPrefix) || key.size() != kPrefix.size() + 65 ||
        key[kPrefix.size() + 2] != '/') {
        return "";
    }
    std::string digits(key.substr(kPrefix.size(), 2));
    digits += key.substr(kPrefix.size() + 3);
    const bool good = std::all_of(digits.begin(), digits.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    return good ? digits : "";
}

} // namespace

Cache::Cache(const std::string &path, uint64_t bytes_max)
    : bytes_max_(bytes_max), written_(bytes_max) { // so that the first put looks
    if (path.empty()) {
        return;
    }
    std::error_code failure;
    folder_ = fs::absolute(path, failure).string();
    for (const std::string &each : {folder_, folder_ + "/.new"}) {
        if (failure || (::mkdir(each.c_str(), 0700) != 0 && errno != EEXIST)) {
            fail(STASIS_IO, "%s: cannot make the cache's folder: %s", each.c_str(),
                 std::strerror(errno));
        }
    }
}

// Where the object is kept; empty: nowhere.
std::string Cache::path_of(std::string_view key) const {
    const std::string digits = folder_.empty() ? "" : digits_of(key);
    return digits.empty() ? "" : folder_ + "/" + digits.substr(0, 2) + "/" + digits.substr(2);
}

std::optional<std::vector<uint8_t>> Cache::get(std::string_view key) {
    const std::string path = path_of(key);
    if (path.empty()) {
        return std::nullopt;
    }
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status {};
    if (file.number < 0 || ::fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode) ||
        static_cast<uint64_t>(status.st_size) > bytes_max_) {
        return std::nullopt;
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(status.st_size));
    if (!read_all(file.number, bytes) || sha256_hex(bytes) != digits_of(key)) {
        ::unlink(path.c_str());
        return std::nullopt;
    }
    ::futimens(file.number, nullptr); // used now
    return bytes;
}

void Cache::put(std::string_view key, std::span<const uint8_t> bytes) noexcept {
    try {
        const std::string path = path_of(key);
        if (path.empty() || bytes.size() > bytes_max_ / kShare ||
            sha256_hex(bytes) != digits_of(key)) {
            return;
        }
        write(path, bytes);
        if (written_.fetch_add(bytes.size()) + bytes.size() > bytes_max_ / kShare) {
            sweep();
        }
    } catch (const std::exception &) {
        // It is fetched again.
    }
}

// Whoever reads it sees all of it, or nothing. It is not synced: a torn one is found out.
void Cache::write(const std::string &path, std::span<const uint8_t> bytes) {
    ::mkdir(path.substr(0, path.rfind('/')).c_str(), 0700);
    const std::string fresh = folder_ + "/.new/" + std::to_string(::getpid()) + "-" +
                              std::to_string(number_.fetch_add(1));
    bool whole = false;
    {
        const Descriptor file(
            ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
        whole = file.number >= 0 && write_all(file.number, bytes);
    }
    if (!whole || ::rename(fresh.c_str(), path.c_str()) != 0) {
        ::unlink(fresh.c_str());
    }
}

// Looks what there is, and removes what was not used for longest until it is within the budget.
void Cache::sweep() {
    const std::unique_lock held(sweeping_, std::try_to_lock);
    if (!held) {
        return; // another thread is at it
    }
    written_ = 0;
    struct Kept {
        timespec used;
        uint64_t bytes;
        std::string path;
    };
    std::vector<Kept> kept;
    uint64_t total = 0;
    std::error_code failure;
    fs::recursive_directory_iterator each(folder_, failure);
    for (; !failure && each != fs::recursive_directory_iterator(); each.increment(failure)) {
        const std::string path = each->path().string();
        struct stat status {};
        if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
            continue;
        }
        if (path.starts_with(folder_ + "/.new/")) {
            if (::time(nullptr) - status.st_mtime > kLeftSeconds) { // its writer was killed
                ::unlink(path.c_str());
            }
            continue;
        }
        total += static_cast<uint64_t>(status.st_size);
        kept.push_back({status.st_mtim, static_cast<uint64_t>(status.st_size), path});
    }
    std::sort(kept.begin(), kept.end(), [](const Kept &a, const Kept &b) {
        return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec
                                              : a.used.tv_nsec < b.used.tv_nsec;
    });
    for (const Kept &oldest : kept) {
        if (total <= bytes_max_ - bytes_max_ / kShare) {
            break;
        }
        ::unlink(oldest.path.c_str());
        total -= oldest.bytes;
    }
}

} // namespace stasis_s3
