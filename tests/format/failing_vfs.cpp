// A layer over SQLite's own; see failing_vfs.h.
#include "failing_vfs.h"

namespace stasis::format {

namespace {

sqlite3_vfs *below = nullptr;

struct Opened {
    sqlite3_file base;
    sqlite3_file *real; // behind it, in the same memory
};
sqlite3_file *real(sqlite3_file *file) {
    return reinterpret_cast<Opened *>(file)->real;
}
const sqlite3_io_methods *of(sqlite3_file *file) {
    return real(file)->pMethods;
}

bool vfs_fails(const char *name, bool takes_space) {
    FailingVfs &failing = failing_vfs();
    const int64_t number = failing.done++;
    if (failing.at < 0 ||
        (failing.full ? !takes_space || number < failing.at : number != failing.at)) {
        return false;
    }
    failing.failed = name;
    return true;
}
int full_or(int error) {
    return failing_vfs().full ? SQLITE_FULL : error;
}

const sqlite3_io_methods kMethods = {
    3,
    [](sqlite3_file *file) { return of(file)->xClose(real(file)); },
    [](sqlite3_file *file, void *data, int size, sqlite3_int64 at) {
        return vfs_fails("read", false) ? SQLITE_IOERR_READ
                                        : of(file)->xRead(real(file), data, size, at);
    },
    [](sqlite3_file *file, const void *data, int size, sqlite3_int64 at) {
        return vfs_fails("write", true) ? full_or(SQLITE_IOERR_WRITE)
                                        : of(file)->xWrite(real(file), data, size, at);
    },
    [](sqlite3_file *file, sqlite3_int64 size) {
        return vfs_fails("truncate", false) ? SQLITE_IOERR_TRUNCATE
                                            : of(file)->xTruncate(real(file), size);
    },
    [](sqlite3_file *, int) { // no test waits for the disk: no power is lost
        return vfs_fails("sync", false) ? SQLITE_IOERR_FSYNC : SQLITE_OK;
    },
    [](sqlite3_file *file, sqlite3_int64 *size) {
        return vfs_fails("size", false) ? SQLITE_IOERR_FSTAT
                                        : of(file)->xFileSize(real(file), size);
    },
    [](sqlite3_file *file, int kind) {
        return vfs_fails("lock", false) ? SQLITE_IOERR_LOCK : of(file)->xLock(real(file), kind);
    },
    [](sqlite3_file *file, int kind) { return of(file)->xUnlock(real(file), kind); },
    [](sqlite3_file *file, int *result) {
        return of(file)->xCheckReservedLock(real(file), result);
    },
    [](sqlite3_file *file, int what, void *data) {
        return of(file)->xFileControl(real(file), what, data);
    },
    [](sqlite3_file *file) { return of(file)->xSectorSize(real(file)); },
    [](sqlite3_file *file) { return of(file)->xDeviceCharacteristics(real(file)); },
    [](sqlite3_file *file, int page, int size, int extend, void volatile **to) {
        return vfs_fails("shm_map", true) ? SQLITE_IOERR_SHMMAP
                                          : of(file)->xShmMap(real(file), page, size, extend, to);
    },
    [](sqlite3_file *file, int offset, int count, int flags) {
        const bool takes = (flags & SQLITE_SHM_LOCK) != 0;
        return takes && vfs_fails("shm_lock", false)
                   ? SQLITE_IOERR_SHMLOCK
                   : of(file)->xShmLock(real(file), offset, count, flags);
    },
    [](sqlite3_file *file) { of(file)->xShmBarrier(real(file)); },
    [](sqlite3_file *file, int remove) { return of(file)->xShmUnmap(real(file), remove); },
    [](sqlite3_file *file, sqlite3_int64 at, int size, void **to) {
        return of(file)->xFetch(real(file), at, size, to);
    },
    [](sqlite3_file *file, sqlite3_int64 at, void *data) {
        return of(file)->xUnfetch(real(file), at, data);
    },
};

int open_below(sqlite3_vfs *, const char *name, sqlite3_file *file, int flags, int *got) {
    auto *const opened = reinterpret_cast<Opened *>(file);
    opened->base.pMethods = nullptr;
    opened->real = reinterpret_cast<sqlite3_file *>(opened + 1);
    if (vfs_fails("open", (flags & SQLITE_OPEN_CREATE) != 0)) {
        return full_or(SQLITE_CANTOPEN);
    }
    const int code = below->xOpen(below, name, opened->real, flags, got);
    opened->base.pMethods = opened->real->pMethods != nullptr ? &kMethods : nullptr;
    return code;
}

sqlite3_vfs above;

} // namespace

FailingVfs &failing_vfs() {
    static FailingVfs failing;
    return failing;
}

VfsInPlace::VfsInPlace() {
    below = sqlite3_vfs_find(nullptr);
    above = *below; // whose other functions take no file
    above.zName = "failing";
    above.pNext = nullptr;
    above.szOsFile = static_cast<int>(sizeof(Opened)) + below->szOsFile;
    above.xOpen = open_below;
    failing_vfs() = {};
    sqlite3_vfs_register(&above, 1);
}

VfsInPlace::~VfsInPlace() {
    sqlite3_vfs_register(below, 1);
    sqlite3_vfs_unregister(&above);
}

} // namespace stasis::format
