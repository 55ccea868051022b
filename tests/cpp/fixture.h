// Fixtures of the tests of stasis.hpp: bundled models that are opened once, and what is expected of
// errors. What the wrapper returns is compared with what the C functions return on raw().
#pragma once

#include <filesystem>
#include <sstream>

#include <unistd.h>

#include "stasis.hpp"
#include "tests/data_files.h"

namespace cpp_test {

using stasis::Status;

// Opened once. Never destroyed: at exit libcrypto is gone before threads of a static could end.
inline stasis::Model &recall() {
    static auto &model = *new stasis::Model(test_data("recall-gemma3"));
    return model;
}
inline stasis::Model &without_tokenizer() {
    static auto &model = *new stasis::Model(test_data("zoo/llama-gqa-untied"));
    return model;
}

inline constexpr const char *kFirst = "Let's start by defining a variable k equal to 5. What is k?";
inline constexpr const char *kSecond =
    "Now set a new variable m equal to k multiplied by 11. What is m?";

// A session of the test's own pages, after the first turn and its reply.
inline stasis::Session talk() {
    stasis::Session session(recall(), {.domain = STASIS_DOMAIN_PRIVATE});
    REQUIRE(session.say(kFirst, {.tokens_max = 40}).text() == "k is 5.");
    return session;
}

// The status of the Error that `function` throws; Ok: it throws none.
template <typename Function>
Status status_of(const Function &function, const std::string &part = {}) {
    try {
        function();
    } catch (const stasis::Error &error) {
        CHECK(std::string(error.what()) != "");
        CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
        return error.status();
    }
    return Status::Ok;
}

// What a callback of a test throws, which is no Error.
struct Thrown {
    int number;
};

// The number that `function` throws; 0: nothing.
template <typename Function> int thrown_by(const Function &function) {
    try {
        function();
    } catch (const Thrown &thrown) {
        return thrown.number;
    }
    return 0;
}

// A directory of its own for one test, gone afterwards.
class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "stasis-cpp-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::filesystem::path file(const std::string &name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

} // namespace cpp_test
