// What tests of backends share: the table of them, bytes that tell whether they are whole, and
// other processes.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "format/store/backend.h"
#include "sample.h"

namespace stasis::format {

struct BackendKind {
    const char *name;
    std::unique_ptr<Backend> (*open)(const std::string &path);
    bool lasts; // what another process, or this one later, opens under the path is the same
    bool locks; // keep writers and collectors apart
};

// Those of the program that the tests are in: backend_kinds.cpp.
std::vector<BackendKind> backend_kinds();

// Calls `test` with each kind and a place for it.
inline void with_backends(const std::function<void(const BackendKind &, const std::string &)> &test,
                          bool lasting = false) {
    for (const BackendKind &kind : backend_kinds()) {
        if (lasting && !kind.lasts) {
            continue;
        }
        const std::string name = kind.name;
        CAPTURE(name);
        const ScratchFolder folder;
        test(kind, folder.path("store"));
    }
}

inline Bytes text_bytes(std::string_view text) {
    return {text.begin(), text.end()};
}

// Bytes of an object that no other seed and size has, and no part of which is whole.
inline Bytes whole_bytes(uint32_t seed, size_t size) {
    Bytes bytes(size);
    uint64_t state = seed * uint64_t{0x9E3779B97F4A7C15} + size;
    for (uint8_t &byte : bytes) {
        state = state * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<uint8_t>(state >> 56);
    }
    for (size_t i = 0; i < 4 && i < size; ++i) {
        bytes[i] = static_cast<uint8_t>(seed >> (8 * i));
    }
    return bytes;
}
inline bool are_whole(const Bytes &bytes) {
    uint32_t seed = 0;
    for (size_t i = 0; i < 4 && i < bytes.size(); ++i) {
        seed |= uint32_t{bytes[i]} << (8 * i);
    }
    return bytes == whole_bytes(seed, bytes.size());
}

inline std::vector<std::string> listed_keys(Backend &backend, const std::string &prefix = "") {
    std::vector<std::string> keys;
    backend.list(prefix, [&](const ListedObject &each) {
        keys.push_back(each.key);
        return true;
    });
    return keys;
}

// The status that `call` throws; ok: none.
template <class Call> Status thrown_by(const Call &call, std::string *text = nullptr) {
    try {
        call();
        return Status::ok;
    } catch (const Error &error) {
        if (text != nullptr) {
            *text = error.what();
        }
        return error.status();
    }
}

// Another process, which runs `work` and ends with what it returns; 99 if it throws.
template <class Work> pid_t begin_process(const Work &work) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        int result = 99;
        try {
            result = work();
        } catch (...) {
        }
        _exit(result);
    }
    return child;
}
inline int end_of_process(pid_t child) { // how it ended; -1: by a signal
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Bytes that processes tell each other through.
class Pipe {
  public:
    Pipe() { REQUIRE(pipe(ends_) == 0); }
    ~Pipe() {
        close(ends_[0]);
        close_writer();
    }
    void close_writer() {
        if (ends_[1] >= 0) {
            close(ends_[1]);
            ends_[1] = -1;
        }
    }
    void tell(uint32_t number) const {
        if (write(ends_[1], &number, sizeof number) != sizeof number) {
            throw Error(Status::internal, "a pipe");
        }
    }
    // The next number; nothing: all writers have ended.
    std::optional<uint32_t> hear() const {
        uint32_t number = 0;
        return ::read(ends_[0], &number, sizeof number) == sizeof number ? std::optional(number)
                                                                         : std::nullopt;
    }

  private:
    int ends_[2] = {-1, -1};
};

// Runs `work` with numbers from 0 in as many threads, and returns how many threw.
inline int run_threads(int count, const std::function<void(int)> &work) {
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            try {
                work(i);
            } catch (const std::exception &) {
                ++failed;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return failed;
}

} // namespace stasis::format
