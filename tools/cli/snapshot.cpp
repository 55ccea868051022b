// Snapshots in files and standard streams; see snapshot.h. Must not know what the bytes mean.
#include "tools/cli/snapshot.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <unistd.h>

namespace command {

namespace {

int64_t read_input(void *, void *data, size_t size_bytes) {
    ssize_t count = 0;
    do {
        count = read(STDIN_FILENO, data, size_bytes);
    } while (count < 0 && errno == EINTR);
    return count;
}

int32_t write_output(void *user, const void *data, size_t size_bytes) {
    const int descriptor = *static_cast<const int *>(user);
    const char *bytes = static_cast<const char *>(data);
    while (size_bytes > 0) {
        const ssize_t count = write(descriptor, bytes, size_bytes);
        if (count < 0 && errno != EINTR) {
            return errno;
        }
        bytes += count > 0 ? count : 0;
        size_bytes -= count > 0 ? static_cast<size_t>(count) : 0;
    }
    return 0;
}

} // namespace

bool is_stream(const std::string &path) {
    return path == "-";
}

stasis_source input_source() {
    if (input_is_terminal()) {
        throw Failure("-: standard input is a terminal; a snapshot is expected there");
    }
    auto source = sized<stasis_source>();
    source.read = read_input;
    return source;
}

OutputForSnapshot::OutputForSnapshot() : descriptor_(-1) {
    if (isatty(STDOUT_FILENO) != 0) {
        throw Failure("-: standard output is a terminal; redirect the snapshot");
    }
    std::fflush(stdout);
    descriptor_ = dup(STDOUT_FILENO);
    if (descriptor_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        throw Failure(std::string("standard output: ") + std::strerror(errno));
    }
}

OutputForSnapshot::~OutputForSnapshot() {
    std::fflush(stdout);
    dup2(descriptor_, STDOUT_FILENO);
    close(descriptor_);
}

stasis_sink OutputForSnapshot::sink() {
    auto sink = sized<stasis_sink>();
    sink.write = write_output;
    sink.user = &descriptor_;
    return sink;
}

Snapshot open_snapshot(const std::string &path) {
    stasis_snapshot *snapshot = nullptr;
    stasis_error error{};
    if (is_stream(path)) {
        const stasis_source source = input_source();
        check(stasis_snapshot_open_source(&source, &snapshot, &error), error, "standard input");
        return Snapshot(snapshot);
    }
    if (path.empty()) {
        throw Failure("FILE: the path is empty");
    }
    std::error_code problem; // opening reports it
    if (std::filesystem::is_directory(path, problem)) {
        throw Failure(path + ": this is a directory; a snapshot is expected here");
    }
    check(stasis_snapshot_open(path.c_str(), &snapshot, &error), error, path);
    return Snapshot(snapshot);
}

stasis_snapshot_info snapshot_info(const stasis_snapshot *snapshot, const std::string &path) {
    auto info = sized<stasis_snapshot_info>();
    stasis_error error{};
    check(stasis_snapshot_get_info(snapshot, &info, &error), error, path);
    return info;
}

bool warn_if_older(const stasis_snapshot_info &info, const std::string &path) {
    if (info.older != 0) {
        say(path + ": the root of its last commit is damaged: this is the state of commit " +
            std::to_string(info.commits) + ", before it, of " + std::to_string(info.position) +
            " positions");
    }
    return info.older != 0;
}

std::string snapshot_element_text(const stasis_snapshot *snapshot, uint32_t element) {
    return fetch_text(
        [&](char *json, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_snapshot_element(snapshot, element, json, capacity, length, error);
        },
        element_name(element));
}

Json snapshot_element(const stasis_snapshot *snapshot, uint32_t element) {
    return Json::parse(snapshot_element_text(snapshot, element));
}

const char *codec_name(uint32_t codec) {
    return codec == STASIS_CODEC_ZSTD ? "zstd" : "raw";
}

const char *keep_name(uint32_t keep) {
    return keep == STASIS_KEEP_NONE ? "none" : "full";
}

} // namespace command
