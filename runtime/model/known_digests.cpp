// See known_digests.h. An entry is the magic, the digests in the plan's order, and the SHA-256 of
// its key and both.
#include "runtime/model/known_digests.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "format/state/atomic_file.h"
#include "format/state/file.h"
#include "runtime/model/model_file.h"

namespace stasis {

namespace {

constexpr std::array<uint8_t, 8> kMagic{'S', 'T', 'S', 'D', 'I', 'G', '0', '1'};
// More than a step of any file system's time (FAT: two seconds) and of the system's coarse clock.
constexpr time_t kTickSeconds = 3;

// Returns the user's cache directory; empty: there is none. A program with privileges that its user
// lacks reads no environment.
std::string cache_directory() {
    const char *cache = secure_getenv("XDG_CACHE_HOME");
    if (cache != nullptr && cache[0] == '/') { // others are invalid (XDG Base Directory, 0.8)
        return cache;
    }
    const char *home = secure_getenv("HOME");
    return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache" : "";
}

void hash_tensor(Sha256 &hash, const Checkpoint &checkpoint, const PlannedTensor &planned) {
    const Tensor &tensor = *planned.tensor;
    const auto file_of = [&](const ModelFile *file) {
        uint64_t index = 0;
        while (index < checkpoint.files.size() && checkpoint.files[index].get() != file) {
            ++index;
        }
        return index;
    };
    hash.text(planned.name).text(name_of(tensor.type)).u64(planned.shape.size());
    for (const uint64_t dimension : planned.shape) {
        hash.u64(dimension);
    }
    hash.u64(file_of(tensor.source)).u64(tensor.offset_bytes).u64(tensor.size_bytes);
    hash.u64(tensor.row_step).u64(tensor.column_step);
    hash.u64(file_of(tensor.scales)).u64(tensor.scales_bytes);
}

Digest sum_of(const Digest &key, std::span<const uint8_t> bytes) {
    return Sha256().digest(key).bytes(bytes.data(), bytes.size()).finish();
}

// Reports whether no other user can have written the file.
bool is_own(const struct stat &status) {
    return status.st_uid == geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Makes the directory and the two above it, where they are missing.
void make_directories(const std::string &directory) {
    const size_t parent = directory.rfind('/'), grandparent = directory.rfind('/', parent - 1);
    for (const size_t end : {grandparent, parent, directory.size()}) {
        mkdir(directory.substr(0, end).c_str(), S_IRWXU); // what fails, fails at the file
    }
}

} // namespace

KnownDigests::KnownDigests(const Checkpoint &checkpoint, std::span<const PlannedTensor> plan)
    : count_(plan.size()) {
    const std::string cache = cache_directory();
    if (cache.empty()) {
        return;
    }
    directory_ = cache + "/stasis/weights";

    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    Sha256 hash;
    hash.text("stasis known digests").u64(checkpoint.files.size());
    for (const std::shared_ptr<ModelFile> &file : checkpoint.files) {
        const FileStamp stamp = stamp_of(file->status());
        hash.u64(stamp.device).u64(stamp.inode).u64(stamp.size_bytes);
        hash.u64(static_cast<uint64_t>(stamp.modified_ns));
        hash.u64(static_cast<uint64_t>(stamp.changed_ns));
        const int64_t newest = std::max(stamp.modified_ns, stamp.changed_ns) / 1'000'000'000;
        young_ = young_ || newest + kTickSeconds > now.tv_sec;
    }
    hash.u64(plan.size());
    for (const PlannedTensor &planned : plan) {
        hash_tensor(hash, checkpoint, planned);
    }
    key_ = hash.finish();
    path_ = directory_ + "/" + to_hex(key_);
}

std::optional<std::vector<Digest>> KnownDigests::find() const {
    if (directory_.empty()) {
        return std::nullopt;
    }
    try {
        const File file = open_file(system_files(), path_);
        const size_t covered = kMagic.size() + count_ * sizeof(Digest);
        std::vector<uint8_t> bytes(covered + sizeof(Digest));
        const struct stat status = file.status();
        if (!is_own(status) || static_cast<uint64_t>(status.st_size) != bytes.size()) {
            return std::nullopt;
        }
        file.read(bytes.data(), bytes.size(), 0);
        Digest sum;
        std::memcpy(sum.bytes.data(), bytes.data() + covered, sizeof sum);
        if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin()) ||
            sum_of(key_, {bytes.data(), covered}) != sum) {
            return std::nullopt;
        }
        std::vector<Digest> digests(count_);
        std::memcpy(digests.data(), bytes.data() + kMagic.size(), count_ * sizeof(Digest));
        return digests;
    } catch (const Error &) { // the weights are read instead
        return std::nullopt;
    }
}

void KnownDigests::keep(std::span<const Digest> digests) const {
    assert(digests.size() == count_);
    if (directory_.empty() || young_) {
        return;
    }
    std::vector<uint8_t> bytes(kMagic.begin(), kMagic.end());
    const auto *first = reinterpret_cast<const uint8_t *>(digests.data());
    bytes.insert(bytes.end(), first, first + digests.size_bytes());
    const Digest sum = sum_of(key_, bytes);
    bytes.insert(bytes.end(), sum.bytes.begin(), sum.bytes.end());
    try {
        make_directories(directory_);
        AtomicFile file(system_files(), path_, {".new", kMagic, S_IRUSR | S_IWUSR}, true);
        file.file().write(bytes.data(), bytes.size(), 0);
        file.commit();
    } catch (const Error &) { // the next process computes them again
    }
}

} // namespace stasis
