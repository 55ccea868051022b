// See files.h.
#include "tools/ceilings/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "tools/handles.h"
#include "tools/terminal.h"

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

} // namespace command::ceilings
