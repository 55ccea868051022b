// The device profile through the public interface: asked for, on record in sessions and files, kept
// apart from the contract unless the caller says otherwise.
#include <doctest/doctest.h>

#include "tests/abi/device_module.h"
#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// On the tests' device (tests/device), whose "library" is the stand-in of version 1.
Model open_profiled(const char *profile) {
    REQUIRE(device_module_loaded);
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    options.profile = profile;
    return open_path(test_data("zoo/gemma3-text"), &options);
}

std::string profile_of(const Model &model) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model.get(), &info, nullptr) == STASIS_OK);
    return info.profile;
}

stasis_status load_any(stasis_model *model, const std::string &path, Session &session,
                       stasis_error &error, uint32_t flags = STASIS_LOAD_ANY_PROFILE) {
    auto options = sized<stasis_load_options>();
    options.flags = flags;
    stasis_session *loaded = nullptr;
    const stasis_status status =
        stasis_session_load(model, path.c_str(), &options, &loaded, &error);
    session = Session(status == STASIS_OK ? loaded : nullptr);
    return status;
}

stasis_status verify(stasis_model *model, const std::string &path, stasis_error &error) {
    auto options = sized<stasis_verify_options>();
    auto report = sized<stasis_verify_report>();
    return stasis_snapshot_verify(open_snapshot(path).get(), model, &options, &report, &error);
}

} // namespace

TEST_CASE("stasis_model_options.profile: a session of one is resumed, verified and recomputed "
          "under the same id alone") {
    const Model model = open_profiled("device"), again = open_profiled("device");
    const Model exact = open_profiled("contract");
    CHECK(profile_of(model) == "stand-in 1");
    CHECK(profile_of(exact) == "");
    const Session session = session_of(model.get(), some_tokens(150));
    CHECK(digest(session.get()) != digest(session_of(exact.get(), some_tokens(150)).get()));
    CHECK(digest(session_of(exact.get(), some_tokens(150)).get()) ==
          digest(session_of(gemma(), some_tokens(150)).get()));
    const Folder folder;
    stasis_error error;
    for (const uint32_t keep : {STASIS_KEEP_FULL, STASIS_KEEP_NONE}) {
        const std::string path = folder.file(std::to_string(keep));
        auto options = sized<stasis_save_options>();
        options.keep = keep;
        REQUIRE(stasis_session_save(session.get(), path.c_str(), &options, &error) == STASIS_OK);
        CHECK(std::string(snapshot_info(path).profile) == "stand-in 1");
        CHECK(digest(load(again.get(), path).get()) == digest(session.get()));
        CHECK(verify(again.get(), path, error) == STASIS_OK);
        for (stasis_model *other : {gemma(), exact.get()}) {
            Session none;
            CHECK(load_any(other, path, none, error, 0) == STASIS_VERSION);
            CHECK(contains(error, "computed under stand-in 1, this model computes under the "
                                  "contract"));
            CHECK(verify(other, path, error) == STASIS_VERSION);
        }
    }
    Session none;
    CHECK(load_any(gemma(), folder.file("1"), none, error) == STASIS_VERSION);
    CHECK(contains(error, "keeps no keys and values"));
}

TEST_CASE("stasis_model_options.profile: a session taken over under the contract says from where "
          "on it is verifiable") {
    const Model model = open_profiled("device");
    const Session session = session_of(model.get(), some_tokens(150));
    const Folder folder;
    const std::string path = folder.file("s");
    stasis_error error;
    REQUIRE(save(session.get(), path) == STASIS_OK);
    Session taken;
    REQUIRE(load_any(gemma(), path, taken, error) == STASIS_OK);
    CHECK(logits_of(taken.get()) == logits_of(session.get()));
    CHECK(info_of(taken).positions_foreign == 150);
    CHECK(info_of(session).positions_foreign == 0);
    append(taken.get(), some_tokens(80, 2));
    REQUIRE(save(taken.get(), path, STASIS_SAVE_REPLACE) == STASIS_OK);
    CHECK(snapshot_info(path).positions_foreign == 150);
    CHECK(std::string(snapshot_info(path).profile) == "");
    CHECK(digest(load(gemma(), path).get()) == digest(taken.get()));
    CHECK(verify(gemma(), path, error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "positions below 150 were computed under another profile"));
    auto options = sized<stasis_save_options>();
    options.keep = STASIS_KEEP_NONE;
    CHECK(stasis_session_save(taken.get(), folder.file("n").c_str(), &options, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, "positions below 150"));
}

TEST_CASE("stasis_model_options.profile: names that mean none") {
    stasis_error error;
    auto options = sized<stasis_model_options>();
    stasis_model *model = nullptr;
    for (const char *name : {"device", "fast", ""}) {
        options.profile = name;
        const stasis_status status =
            stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options, &model, &error);
        CHECK(status == (*name == '\0' ? STASIS_OK : STASIS_UNSUPPORTED));
        CHECK(contains(error, *name == '\0' ? "" : std::string("profile \"") + name));
        if (status == STASIS_OK) {
            stasis_model_close(model);
        }
    }
}
