// A folder of files made from a fuzzer's input, for what is only read from files; gone at the end.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace stasis::fuzz {

class Folder {
  public:
    Folder() {
        const std::string memory = "/dev/shm"; // thousands of files a second are no work for a disk
        path_ = std::filesystem::exists(memory) ? memory
                                                : std::filesystem::temp_directory_path().string();
        path_ += "/stasis-fuzz-" + std::to_string(getpid());
        std::filesystem::create_directories(path_);
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

    const std::string &path() const { return path_; }
    void write(const std::string &name, std::string_view bytes) const {
        std::ofstream(path_ + "/" + name, std::ios::binary)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }

  private:
    std::string path_;
};

} // namespace stasis::fuzz
