// Paths of all lengths and bytes: names as long as a file system takes can be saved to, and a
// message says what was wrong whatever the path is, in valid UTF-8.
#include <nlohmann/json.hpp>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

std::string message_of(const std::string &path) {
    stasis_session *session = nullptr;
    stasis_error error;
    std::memset(&error, 0x55, sizeof error);
    CHECK(stasis_session_load(gemma(), path.c_str(), nullptr, &session, &error) != STASIS_OK);
    REQUIRE(std::memchr(error.message, 0, sizeof error.message) != nullptr);
    const std::string message = error.message;
    CHECK_NOTHROW(nlohmann::json(message).dump()); // refuses what is not UTF-8
    return message;
}

} // namespace

TEST_CASE("stasis_session_save: names of every length that a file system takes can be saved to, "
          "and anew") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(3));
    for (size_t length = 1; length <= 255; length += length < 235 ? 26 : 1) {
        CAPTURE(length);
        const std::string path = folder.file(std::string(length, 'n'));
        stasis_error error{};
        CHECK_MESSAGE(save(session.get(), path, 0, &error) == STASIS_OK, error.message);
        CHECK_MESSAGE(save(session.get(), path, STASIS_SAVE_REPLACE, &error) == STASIS_OK,
                      error.message);
        CHECK(stasis_snapshot_compact(path.c_str(), nullptr, &error) == STASIS_OK);
        CHECK(digest(load(gemma(), path).get()) == digest(session.get()));
    }
    for (const auto &entry : std::filesystem::directory_iterator(folder.file(""))) {
        CHECK(entry.path().filename().string().find_first_not_of('n') == std::string::npos);
    }
    CHECK(save(session.get(), folder.file(std::string(256, 'n'))) == STASIS_IO);
}

TEST_CASE("stasis_session_save: two long names with the same beginning have temporary names of "
          "their own") {
    const Folder folder;
    const Session session = session_of(gemma(), some_tokens(3));
    const std::string name(254, 'n');
    for (const char *last : {"a", "b"}) {
        REQUIRE(save(session.get(), folder.file(name + last)) == STASIS_OK);
        CHECK(digest(load(gemma(), folder.file(name + last)).get()) == digest(session.get()));
    }
}

TEST_CASE("stasis_error: a message keeps its reason however long the path is") {
    for (size_t length = 1; length < 5000; length += length < 700 ? 13 : 391) {
        CAPTURE(length);
        std::string path = "/";
        while (path.size() < length) {
            path += std::string(std::min<size_t>(200, length - path.size()), 'p') + "/";
        }
        path += "x";
        const std::string message = message_of(path);
        bool told = false;
        for (const char *reason : {"No such file or directory", "File name too long"}) {
            const std::string end = std::string(": cannot open: ") + reason;
            const bool whole = message == path + end;
            const bool cut = message.starts_with("/pp") && message.ends_with("p/x" + end) &&
                             message.find("...") != std::string::npos && message.size() == 507;
            told = told || (path.size() + end.size() > 507 ? cut : whole);
        }
        CHECK_MESSAGE(told, message);
    }
}

TEST_CASE("stasis_error: a message is UTF-8 whatever bytes the path has, cut or not") {
    for (int byte = 1; byte < 256; ++byte) {
        CAPTURE(byte);
        const std::string odd(1, static_cast<char>(byte));
        const std::string message = message_of("/none/a" + odd + "z");
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
        CHECK((message.find(byte < 0x80 ? "a" + odd + "z" : "a" + std::string(escaped) + "z") !=
               std::string::npos));
        message_of("/" + std::string(byte, 'p') + "/" + std::string(200, static_cast<char>(byte)));
    }
    // Characters of several bytes, cut at every place.
    for (const char *character :
         {"\u00e9", "\u20ac", "\U0001f600", "\xc3", "\xe2\x82", "\xed\xa0"}) {
        for (size_t before = 0; before < 8; ++before) {
            std::string path = "/" + std::string(before, 'p');
            for (int i = 0; i < 240; ++i) {
                path += character;
            }
            const std::string message = message_of(path);
            CHECK(message.find("cannot open: ") != std::string::npos);
        }
    }
}
