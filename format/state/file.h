// The system's file calls as a plain struct, so that a test can fail each of them, and an open file
// that reads and writes whole ranges. Must not know what the bytes mean.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/state/error.h"

namespace stasis {

// Each behaves as the POSIX call it is named after: -1 and errno on failure, short counts allowed.
struct FileOperations {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*status)(int descriptor, struct stat *status);                              // fstat
    int (*path_status)(const char *path, struct stat *status);                       // lstat
    ssize_t (*read_at)(int descriptor, void *data, size_t size_bytes, off_t offset); // pread
    ssize_t (*write_at)(int descriptor, const void *data, size_t size_bytes, off_t offset);
    int (*set_size)(int descriptor, off_t size_bytes); // ftruncate
    int (*set_mode)(int descriptor, mode_t mode);      // fchmod
    int (*sync)(int descriptor);                       // fsync, of files and directories
    // sync_file_range, which only begins to write to the disk: a hint that promises nothing.
    void (*begin_sync)(int descriptor, off_t offset, off_t size_bytes);
    int (*lock)(int descriptor);   // flock, exclusive, without waiting
    int (*unlock)(int descriptor); // flock
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); // renameat2, EEXIST if `to` exists
    int (*remove)(const char *path);                     // unlink
    int (*close)(int descriptor);
    int (*lock_shared)(int descriptor); // flock, shared, without waiting
    int (*link)(const char *from, const char *to);
    int (*make_directory)(const char *path, mode_t mode);           // mkdir
    int (*list)(const char *path, std::vector<std::string> *names); // opendir, readdir; no dots
};

// Returns the calls of the operating system.
const FileOperations &system_files();

enum class FileFailure {
    // Calls of the system.
    create,
    open,
    open_directory,
    look_up,
    read_size,
    read,
    write,
    cut,
    set_mode,
    sync,
    lock,
    rename,
    remove,
    // Conditions that prevent writing a file.
    in_use,     // another process or thread has locked it
    crowded,    // others locked or replaced it at every attempt
    in_the_way, // something else has its temporary name
    unsynced,   // renamed, but a power loss may undo that
};

// A failed file operation. The message is worded for a save of a snapshot; writers of other files
// catch the error and build a message of their own from its parts.
class FileError : public Error {
  public:
    // `number` is the errno of a failed call; 0: none failed.
    FileError(Status status, FileFailure failure, std::string path, int number);

    FileFailure failure() const { return failure_; }
    const std::string &path() const { return path_; }
    int number() const { return number_; }

  private:
    FileFailure failure_;
    std::string path_;
    int number_;
};

[[noreturn]] void fail_file(Status status, FileFailure failure, const std::string &path,
                            int number = 0);

// An open descriptor; closed at the end of its life.
class File {
  public:
    File(const FileOperations &files, int descriptor, std::string path);
    ~File();
    File(File &&other) noexcept;
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    const std::string &path() const { return path_; }
    const FileOperations &files() const { return *files_; }
    int descriptor() const { return descriptor_; }
    struct stat status() const;
    // Returns whether the path still names this file: another process may have replaced it.
    bool still_there() const;
    // Locks it until the end of this object's life. Throws Error(busy) if another open file of it
    // is locked, in this process or another; Error(io).
    void lock();
    // The same with others that do so too. False: it is locked alone. Throws Error(io).
    bool lock_shared();

    // Reads exactly `size_bytes`. Throws Error(corrupt) if the file ends earlier (without the path,
    // as all messages about contents), Error(io).
    void read(void *data, size_t size_bytes, uint64_t offset) const;
    // Reads up to `size_bytes`, fewer only at the end of the file, and returns their number. Throws
    // Error(io).
    size_t read_some(void *data, size_t size_bytes, uint64_t offset) const;
    // All throw FileError(io), except begin_sync.
    void write(const void *data, size_t size_bytes, uint64_t offset) const;
    void set_size(uint64_t size_bytes) const;
    void set_mode(mode_t mode) const;
    void sync() const;
    void begin_sync(uint64_t offset,
                    uint64_t size_bytes) const; // starts writing a range to the disk

  private:
    const FileOperations *files_;
    int descriptor_;
    std::string path_;
    bool locked_ = false;
};

// Detects changes to a file: a process that changes or replaces it changes one of these values.
struct FileStamp {
    uint64_t device = 0, inode = 0, size_bytes = 0;
    int64_t modified_ns = 0, changed_ns = 0;
    bool operator==(const FileStamp &) const = default;
};
FileStamp stamp_of(const struct stat &status);

// Opens a regular file for reading. Throws Error(not_found), Error(io).
File open_file(const FileOperations &files, const std::string &path);

// Opens the directory of `path`; its sync makes a rename in it durable. Throws Error(io).
File open_directory(const FileOperations &files, const std::string &path);

} // namespace stasis
