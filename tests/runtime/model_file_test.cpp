// A file of a model: what its mapping gives, and what is read by calls instead.
#include "runtime/model/model_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "format/state/error.h"
#include "tests/data_files.h"
#include "tests/runtime/model_files.h"

using namespace stasis;

namespace {

// Returns so many bytes, of which byte i is i mod 251.
std::string counting(size_t size_bytes) {
    std::string bytes(size_bytes, 0);
    for (size_t i = 0; i < size_bytes; ++i) {
        bytes[i] = static_cast<char>(i % 251);
    }
    return bytes;
}

} // namespace

TEST_CASE("ModelFile::populated: the mapping's bytes, from any offset; null if it is not mapped") {
    const TemporaryDirectory directory;
    const std::string path = directory.file("counting");
    write_bytes(path, counting(100'000));
    ModelFile file(path);
    CHECK(file.populated(10, 0) == nullptr);
    file.map();
    if (file.populated(1, 0) == nullptr) {
        STASIS_SKIP("Linux before 5.14");
    }
    for (const size_t offset : {0, 1, 4095, 4096, 50'001}) {
        const size_t size_bytes = 100'000 - offset;
        const uint8_t *bytes = file.populated(size_bytes, offset);
        REQUIRE(bytes != nullptr);
        for (size_t i = 0; i < size_bytes; i += 97) {
            REQUIRE(bytes[i] == (offset + i) % 251);
        }
    }
}

TEST_CASE("ModelFile::populated: null for what was cut off, and a read says so") {
    const TemporaryDirectory directory;
    const std::string path = directory.file("counting");
    write_bytes(path, counting(100'000));
    ModelFile file(path);
    file.map();
    if (file.populated(1, 0) == nullptr) {
        STASIS_SKIP("Linux before 5.14");
    }
    std::filesystem::resize_file(path, 20'000);
    CHECK(file.populated(1000, 0) != nullptr);
    CHECK(file.populated(1000, 60'000) == nullptr);
    CHECK(file.populated(60'000, 0) == nullptr);
    std::vector<uint8_t> bytes(1000);
    std::string message;
    try {
        file.read(bytes.data(), bytes.size(), 60'000);
    } catch (const Error &error) {
        CHECK(error.status() == Status::io);
        message = error.what();
    }
    CHECK(message.find("the file was cut short") != std::string::npos);
}
