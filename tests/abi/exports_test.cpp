// The names that the library exports, and the header alone under each language.
#include <cstdio>
#include <regex>
#include <set>

#include "tests/abi/fixture.h"
#include "tests/places.h"
#include "tests/sanitizers.h"

namespace {

std::string output_of(const std::string &command) {
    FILE *pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string output;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
        output.push_back(static_cast<char>(c));
    }
    REQUIRE_MESSAGE(pclose(pipe) == 0, command);
    return output;
}

std::set<std::string> matches(const std::string &text, const std::string &pattern) {
    std::set<std::string> names;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
        names.insert((*at)[1]);
    }
    return names;
}

using abi_test::read_file;

// stasis.h and those that it includes.
std::vector<std::string> public_headers() {
    std::vector<std::string> paths;
    for (const auto &file :
         std::filesystem::directory_iterator(std::string(places::source) + "/abi")) {
        if (file.path().filename().string().starts_with("stasis") &&
            file.path().extension() == ".h") {
            paths.push_back(file.path().string());
        }
    }
    return paths;
}

} // namespace

TEST_CASE("stasis.h: the library exports exactly the functions that the header declares") {
    std::string text;
    for (const std::string &header : public_headers()) {
        text += read_file(header);
    }
    const std::set<std::string> declared =
        matches(text, R"((?:^|\n)[a-z0-9_ *]*\b\*?(stasis_[a-z_]+)\()");
    const std::set<std::string> listed = matches(
        read_file(std::string(places::source) + "/abi/exports.map"), R"((stasis_[a-z_]+);)");
    // nm lists the sanitizer's markers too if the build is instrumented.
    const std::set<std::string> exported =
        matches(output_of(std::string(places::nm) + " -D --defined-only " + places::library),
                R"([0-9a-f]+ [A-Za-z] (?!_|asan|ubsan)([^\s@]+))");
    const std::set<std::string> versioned =
        matches(output_of(std::string(places::nm) + " -D --defined-only " + places::library),
                R"((stasis_[a-z_]+)@@STASIS_0\n)");
    CHECK(declared.size() >= 52);
    CHECK(listed == declared);
    CHECK(versioned == declared);
    std::set<std::string> with_version = declared;
    with_version.insert("STASIS_0");
    CHECK(exported == with_version);
    const std::string name = std::filesystem::canonical(places::library).filename().string();
    CHECK(name.rfind("libstasis.so.0", 0) == 0);
}

#ifndef STASIS_ADDRESS_SANITIZER // which has constructors of its own

TEST_CASE("stasis.h: loading the library runs no constructor of its files") {
    // A file's constructors are one function, whatever they construct.
    const std::string symbols = output_of(std::string(places::nm) + " -C " + places::library);
    CHECK(symbols.find("stasis::abi::") != std::string::npos); // not stripped
    CHECK(symbols.find("_GLOBAL__sub_I") == std::string::npos);
    CHECK(symbols.find("__static_initialization") == std::string::npos);
    CHECK(symbols.find("global constructors keyed to") == std::string::npos);
}

#endif

TEST_CASE("stasis.h: each header compiles alone as strict C99, C11 and C++17") {
    const std::string warnings =
        " -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only ";
    for (const std::string &header : public_headers()) {
        for (const char *standard : {"-std=c99 -x c ", "-std=c11 -x c "}) {
            output_of(places::c_compiler + warnings + standard + header + " 2>&1");
        }
        output_of(places::cxx_compiler + warnings + "-std=c++17 -x c++ " + header + " 2>&1");
    }
}

TEST_CASE("stasis_version: version and names of statuses") {
    CHECK(stasis_version() == STASIS_HEADER_VERSION);
    CHECK(std::string(stasis_status_name(STASIS_OK)) == "OK");
    CHECK(std::string(stasis_status_name(STASIS_FULL)) == "FULL");
    CHECK(std::string(stasis_status_name(STASIS_BUFFER_TOO_SMALL)) == "BUFFER_TOO_SMALL");
    CHECK(std::string(stasis_status_name(STASIS_CONFLICT)) == "CONFLICT");
    CHECK(std::string(stasis_status_name(STASIS_NO_TOKEN)) == "NO_TOKEN");
    CHECK(std::string(stasis_status_name(STASIS_TIMEOUT)) == "TIMEOUT");
    for (stasis_status status : {-1, 22, INT32_MAX, INT32_MIN}) {
        CHECK(std::string(stasis_status_name(status)) == "UNKNOWN");
    }
}
