// See files.h.
#include "tools/bench/ceilings/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/bench/ceilings/crew.h"
#include "tools/bench/ceilings/measure.h"
#include "tools/cli/handles.h"
#include "tools/cli/terminal.h"

namespace command::ceilings {

namespace {

constexpr size_t kCallBytes = 4 << 20;

// A file that has no name any more as soon as it is open.
struct TemporaryFile {
    int descriptor;
    std::string folder;

    explicit TemporaryFile(const std::string &place) : descriptor(-1), folder(place) {
        std::string name = place + "/stasis-bench-XXXXXX";
        descriptor = mkstemp(name.data());
        if (descriptor < 0) {
            fail();
        }
        unlink(name.c_str());
    }
    ~TemporaryFile() { close(descriptor); }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile &operator=(const TemporaryFile &) = delete;

    [[noreturn]] void fail() const {
        throw Failure(folder + ": a temporary file: " + std::strerror(errno));
    }
};

// `call(at, size)` writes or reads there and returns how much.
template <typename Call> void in_pieces(const TemporaryFile &file, Call call) {
    for (size_t at = 0; at < kFileBytes;) {
        const ssize_t count = call(at, std::min(kCallBytes, kFileBytes - at));
        if (count <= 0) {
            file.fail();
        }
        at += static_cast<size_t>(count);
    }
}

} // namespace

FileRates measure_files(const std::string &folder, char *data) {
    const TemporaryFile file(folder);
    const Stopwatch write_time;
    in_pieces(file, [&](size_t at, size_t size) {
        return pwrite(file.descriptor, data + at, size, static_cast<off_t>(at));
    });
    if (fsync(file.descriptor) != 0) {
        file.fail();
    }
    const double write = kFileBytes / write_time.seconds();
    const Stopwatch read_time;
    in_pieces(file, [&](size_t at, size_t size) {
        return pread(file.descriptor, data + at, size, static_cast<off_t>(at));
    });
    return {write, kFileBytes / read_time.seconds()};
}

Opened::Opened(const std::string &name, int flags)
    : descriptor(open(name.c_str(), flags, 0600)), path(name) {
    if (descriptor < 0) {
        fail();
    }
}

Opened::~Opened() {
    close(descriptor);
}

void Opened::fail() const {
    throw Failure(path + ": " + std::strerror(errno));
}

void Opened::sync() const {
    if (fsync(descriptor) != 0) {
        fail();
    }
}

size_t Opened::size() const {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) {
        fail();
    }
    return static_cast<size_t>(status.st_size);
}

namespace {

// From memory that is read again and again if it is too small.
void write_all(const Opened &file, const char *data, size_t bytes, size_t offset) {
    for (size_t done = 0; done < bytes;) {
        const size_t begin = done % kHeldBytes;
        const size_t size = std::min({kCallBytes, bytes - done, kHeldBytes - begin});
        const ssize_t count =
            pwrite(file.descriptor, data + begin, size, static_cast<off_t>(offset + done));
        if (count <= 0) {
            file.fail();
        }
        done += static_cast<size_t>(count);
    }
}

// SHA-256 of a share of a file, which is of use to nobody. False: it could not be read.
bool read_and_hash(int file, char *memory, size_t begin, size_t end) noexcept {
    constexpr size_t kPieceBytes = 256 << 10;
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                       EVP_MD_CTX_free);
    bool good = hash != nullptr && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
    for (size_t at = begin; good && at < end;) {
        char *piece = memory + at % (kHeldBytes - kPieceBytes);
        const ssize_t count =
            pread(file, piece, std::min(kPieceBytes, end - at), static_cast<off_t>(at));
        good = count > 0 && EVP_DigestUpdate(hash.get(), piece, static_cast<size_t>(count)) == 1;
        at += good ? static_cast<size_t>(count) : 0;
    }
    return good;
}

} // namespace

double write_new_seconds(const std::string &folder, const char *data, size_t bytes) {
    const std::string name = folder + "/plain", fresh = name + ".new";
    const Stopwatch watch;
    const Opened file(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
    write_all(file, data, bytes, 0);
    file.sync();
    if (rename(fresh.c_str(), name.c_str()) != 0) {
        throw Failure(name + ": " + std::strerror(errno));
    }
    Opened(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync();
    return watch.seconds();
}

double read_and_hash_seconds(const std::string &path, char *memory, unsigned threads) {
    const Opened file(path, O_RDONLY | O_CLOEXEC);
    const size_t bytes = file.size(), share = bytes / threads + 1;
    std::atomic<bool> good{true};
    const auto work = [&](unsigned index) {
        const size_t begin = std::min(bytes, index * share);
        if (!read_and_hash(file.descriptor, memory, begin, std::min(bytes, begin + share))) {
            good = false;
        }
    };
    const double seconds = pass_seconds(threads, 1, work).front();
    if (!good) {
        file.fail();
    }
    return seconds;
}

GrowingFile::GrowingFile(const std::string &folder, const char *data, size_t bytes)
    : data_(data), bytes_(bytes), file_(folder + "/growing", O_RDWR | O_CREAT | O_CLOEXEC),
      folder_(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) {
    write_all(file_, data, kFileBytes, 0);
    file_.sync();
    folder_.sync();
}

double GrowingFile::append_seconds() const {
    constexpr size_t kBlock = 4096;
    const size_t end = file_.size();
    const Stopwatch watch;
    write_all(file_, data_, bytes_, end);
    file_.sync();
    folder_.sync();
    write_all(file_, data_, kBlock, kBlock);
    file_.sync();
    return watch.seconds();
}

} // namespace command::ceilings
