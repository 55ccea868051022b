// The golden files that have a model, which no build may ever read otherwise: they open, say what
// was recorded when they were made, are reproduced by verify, continue with the recorded tokens to
// the recorded digest, and take commits.
#include "tests/abi/golden.h"

using namespace abi_test;

namespace {

using Json = nlohmann::ordered_json;

// Those of version 1, and those of sessions under constraints and sets of tokens.
const Json &golden_files() {
    static const Json files = [] {
        Json all = Json::array();
        for (const char *folder : {"v1", "constraints", "sets"}) {
            for (Json file : Json::parse(read_file(golden_path(folder, "golden.json")))) {
                file["folder"] = folder;
                all.push_back(file);
            }
        }
        return all;
    }();
    return files;
}

stasis_model *model_of(const Json &file) {
    return shared_model(file["model"].get<std::string>());
}

std::string path_of(const Json &file) {
    return golden_path(file["folder"].get<std::string>(), file["name"].get<std::string>());
}

// One of the files is there for its damaged root: of this the state before is recorded.
uint32_t load_flags(const Json &file) {
    return file["flags"] == STASIS_SNAPSHOT_DAMAGED_ROOT ? STASIS_LOAD_ACCEPT_OLDER : 0;
}

void check_says(const stasis_snapshot_info &info, const Json &file) {
    CHECK(info.format == 1);
    CHECK(info.position == file["position"]);
    CHECK(hex(info.digest.bytes) == file["digest"]);
    CHECK(hex(info.root.bytes) == file["root"]);
    CHECK(info.commits == file["commits"]);
    CHECK(info.keep == file["keep"]);
    CHECK(info.codec == file["codec"]);
    CHECK(info.flags == file["flags"]);
    CHECK((info.older == 1) == (load_flags(file) != 0));
}

void check_continues(stasis_session *session, const Json &file) {
    CHECK(hex(digest(session).data()) == file["digest"]);
    const Json found = continuation(session);
    for (const char *name : {"next", "reply", "digest_then"}) {
        CHECK_MESSAGE(found[name] == file[name], name, " is ", found[name].dump());
    }
}

} // namespace

TEST_CASE("stasis_session_load: golden files of version 1 say what was recorded, and continue with "
          "the recorded bits") {
    REQUIRE(golden_files().size() == 9 + 4 + 3);
    for (const Json &file : golden_files()) {
        CAPTURE(path_of(file));
        check_says(snapshot_info(path_of(file)), file);
        check_continues(load(model_of(file), path_of(file), load_flags(file)).get(), file);
    }
}

TEST_CASE("stasis_snapshot_verify: golden files of version 1 are reproduced by verify, drawn "
          "tokens included") {
    uint64_t drawn = 0;
    for (const Json &file : golden_files()) {
        CAPTURE(path_of(file));
        auto report = sized<stasis_verify_report>();
        stasis_error error;
        const stasis_status status = stasis_snapshot_verify(
            open_snapshot(path_of(file)).get(), model_of(file), nullptr, &report, &error);
        CHECK_MESSAGE(status == STASIS_OK, error.message);
        CHECK(report.verified == 1);
        CHECK(report.positions == file["position"]);
        CHECK(report.drawn_otherwise == 0);
        drawn += report.drawn;
    }
    CHECK(drawn > 60);
}

TEST_CASE("stasis_session_read: golden files of version 1 come through a stream") {
    for (const Json &file : golden_files()) {
        CAPTURE(path_of(file));
        Memory memory{read_file(path_of(file))};
        const stasis_source source = memory.source();
        auto options = sized<stasis_load_options>();
        options.flags = load_flags(file);
        stasis_session *session = nullptr;
        stasis_error error;
        const stasis_status status =
            stasis_session_read(model_of(file), &source, &options, &session, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        check_continues(Session(session).get(), file);
    }
}

TEST_CASE("stasis_session_save: copies of golden files of version 1 take commits, which leave "
          "their bytes alone") {
    for (const Json &file : golden_files()) {
        CAPTURE(path_of(file));
        const Folder folder;
        const std::string path = folder.file("copy"), old = read_file(path_of(file));
        const uint64_t length = snapshot_info(path_of(file)).file_bytes;
        write_file(path, old);
        std::filesystem::permissions(path, std::filesystem::perms::owner_read |
                                               std::filesystem::perms::owner_write);
        const Session session = load(model_of(file), path, load_flags(file));
        say(session.get(), "one more");
        auto options = sized<stasis_save_options>();
        options.keep = file["keep"];
        stasis_error error;
        REQUIRE_MESSAGE(stasis_session_save(session.get(), path.c_str(), &options, &error) ==
                            STASIS_OK,
                        error.message);
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK(info.commits == file["commits"].get<uint64_t>() + 1);
        CHECK(info.flags == 0);
        CHECK(info.file_bytes > length);
        CHECK(read_file(path).substr(12288, length - 12288) == old.substr(12288, length - 12288));
        const Session again = load(model_of(file), path);
        CHECK(digest(again.get()) == digest(session.get()));
        CHECK(draw(again.get(), 4) == draw(session.get(), 4));
    }
}
