// Saving, loading, inspecting, comparing and verifying through the ABI.
#include <sys/stat.h>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// A session with a prompt and some drawn tokens.
Session conversation(size_t prompt, size_t drawn) {
    Session session = session_of(gemma(), some_tokens(prompt));
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 1.5F;
    sampling.seed = 42;
    sampling.repetition_penalty = 1.2F;
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
    auto options = sized<stasis_generate_options>();
    options.flags = STASIS_GENERATE_IGNORE_END;
    options.tokens_max = drawn;
    REQUIRE(stasis_session_generate(session.get(), &options, nullptr, nullptr) == STASIS_OK);
    return session;
}

stasis_difference compare(const stasis_snapshot *a, const stasis_snapshot *b) {
    auto difference = sized<stasis_difference>();
    REQUIRE(stasis_snapshot_compare(a, b, &difference, nullptr) == STASIS_OK);
    return difference;
}

} // namespace

TEST_CASE("stasis_session_load: a loaded session goes on with the same bits and settings") {
    const Folder folder;
    for (const size_t prompt : {1U, 16U, 17U, 64U, 130U}) {
        const Session session = conversation(prompt, 5);
        const std::string path = folder.file(std::to_string(prompt));
        REQUIRE(save(session.get(), path, prompt == 64 ? STASIS_SAVE_FULL_LOGITS : 0) == STASIS_OK);
        const Session loaded = load(gemma(), path);
        CHECK(digest(loaded.get()) == digest(session.get()));
        CHECK(draw(loaded.get(), 10) == draw(session.get(), 10));
        append(loaded.get(), some_tokens(9, 9));
        append(session.get(), some_tokens(9, 9));
        CHECK(digest(loaded.get()) == digest(session.get()));
        struct stat status {};
        REQUIRE(stat(path.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
    }
    const Session empty = create(gemma());
    REQUIRE(save(empty.get(), folder.file("empty"), STASIS_SAVE_FULL_LOGITS) == STASIS_OK);
    CHECK(digest(load(gemma(), folder.file("empty")).get()) == digest(empty.get()));
}

TEST_CASE("stasis_session_load: load options: another capacity and window, cancel, progress") {
    const Folder folder;
    const Session session = conversation(200, 20);
    const std::string path = folder.file("a");
    REQUIRE(save(session.get(), path) == STASIS_OK);
    auto own = sized<stasis_session_options>();
    auto options = sized<stasis_load_options>();
    options.session = &own;
    own.capacity = 230;
    stasis_session *out = nullptr;
    stasis_error error;
    REQUIRE(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_OK);
    const Session loaded(out);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(out, &info, nullptr) == STASIS_OK);
    CHECK(info.capacity == 230);
    CHECK(digest(out) == digest(session.get()));
    own.capacity = 219;
    out = nullptr;
    CHECK(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_FULL);
    own.capacity = 230;
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    CHECK(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_CANCELLED);
    stasis_cancel_reset(cancel.get());
    options.progress = [](void *, uint64_t, uint64_t) -> int32_t { return 1; };
    CHECK(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_STOPPED);
    CHECK(out == nullptr);
    CHECK(stasis_session_load(gemma(), folder.file("none").c_str(), nullptr, &out, &error) ==
          STASIS_NOT_FOUND);
}

TEST_CASE("stasis_session_save: an existing file is replaced by its own future, or when told so") {
    const Folder folder;
    const std::string path = folder.file("a"), other = folder.file("other");
    const Session session = conversation(30, 5);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    draw(session.get(), 5);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    CHECK(digest(load(gemma(), path).get()) == digest(session.get()));

    write_file(other, "something that is no snapshot");
    stasis_error error;
    CHECK(save(session.get(), other, 0, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(read_file(other) == "something that is no snapshot");
    const Session foreign = session_of(gemma(), {100, 101});
    const std::string before = read_file(path);
    CHECK(save(foreign.get(), path, 0, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(read_file(path) == before);
    CHECK(save(foreign.get(), path, STASIS_SAVE_REPLACE, &error) == STASIS_OK);
    CHECK(save(foreign.get(), other, STASIS_SAVE_REPLACE, &error) == STASIS_OK);
    CHECK(digest(load(gemma(), other).get()) == digest(foreign.get()));
}

TEST_CASE("stasis_session_save: a stopped or cancelled save leaves the old file and nothing else") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = conversation(100, 5);
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const std::string before = read_file(path);
    draw(session.get(), 3);
    auto options = sized<stasis_save_options>();
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    CHECK(stasis_session_save(session.get(), path.c_str(), &options, nullptr) == STASIS_CANCELLED);
    options.cancel = nullptr;
    options.progress = [](void *, uint64_t, uint64_t) -> int32_t { return 1; };
    CHECK(stasis_session_save(session.get(), path.c_str(), &options, nullptr) == STASIS_STOPPED);
    CHECK(read_file(path) == before);
    const std::filesystem::directory_iterator entries(std::filesystem::path(path).parent_path());
    CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("stasis_snapshot_get_info: a snapshot tells what it holds, without the model") {
    const Folder folder;
    const Session session = conversation(70, 6);
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const Snapshot snapshot = open_snapshot(folder.file("a"));
    auto info = sized<stasis_snapshot_info>();
    auto model = sized<stasis_model_info>();
    REQUIRE(stasis_snapshot_get_info(snapshot.get(), &info, nullptr) == STASIS_OK);
    REQUIRE(stasis_model_get_info(gemma(), &model, nullptr) == STASIS_OK);
    CHECK(info.position == 76);
    CHECK(info.page_positions == 64);
    CHECK(info.file_bytes == std::filesystem::file_size(folder.file("a")));
    CHECK(std::memcmp(info.digest.bytes, digest(session.get()).data(), 32) == 0);
    CHECK(std::memcmp(info.model.bytes, model.model.bytes, 32) == 0);
    CHECK(std::memcmp(info.contract, model.contract, sizeof info.contract) == 0);
    for (uint32_t element = 1; element <= 12; ++element) {
        size_t length = 0;
        REQUIRE(stasis_snapshot_element(snapshot.get(), element, nullptr, 0, &length, nullptr) ==
                STASIS_BUFFER_TOO_SMALL);
        std::string json(length, '\0');
        REQUIRE(stasis_snapshot_element(snapshot.get(), element, json.data(), length, &length,
                                        nullptr) == STASIS_OK);
        CHECK(json.front() == '{');
        CHECK(json.back() == '}');
    }
    Tokens stored(76), live(76);
    std::vector<uint8_t> stored_sources(76), live_sources(76);
    size_t count = 0;
    REQUIRE(stasis_snapshot_tokens(snapshot.get(), 0, stored.data(), stored_sources.data(), 76,
                                   &count, nullptr) == STASIS_OK);
    REQUIRE(stasis_session_tokens(session.get(), 0, live.data(), live_sources.data(), 76, &count,
                                  nullptr) == STASIS_OK);
    CHECK(stored == live);
    CHECK(stored_sources == live_sources);
}

TEST_CASE("stasis_snapshot_compare: compare finds the first difference of two snapshots") {
    const Folder folder;
    const Session a = session_of(gemma(), some_tokens(100));
    const Session b = fork(a.get());
    append(a.get(), {1, 2, 3});
    append(b.get(), {1, 9, 3});
    REQUIRE(save(a.get(), folder.file("a")) == STASIS_OK);
    REQUIRE(save(a.get(), folder.file("same")) == STASIS_OK);
    REQUIRE(save(b.get(), folder.file("b")) == STASIS_OK);
    const Snapshot first = open_snapshot(folder.file("a"));
    const Snapshot same = open_snapshot(folder.file("same"));
    const Snapshot other = open_snapshot(folder.file("b"));
    CHECK(compare(first.get(), same.get()).equal == 1);
    CHECK(compare(first.get(), first.get()).equal == 1);
    const stasis_difference difference = compare(first.get(), other.get());
    CHECK(difference.equal == 0);
    CHECK(difference.element == 4);
    CHECK(difference.position == 101);
    CHECK(difference.layer == STASIS_NOWHERE);
    CHECK(difference.head == STASIS_NOWHERE);
    CHECK(difference.message[0] != '\0');
}

TEST_CASE("stasis_snapshot_verify: verify reproduces what is stored, drawn tokens included, in any "
          "chunks") {
    const Folder folder;
    const Session session = conversation(150, 60);
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const Snapshot snapshot = open_snapshot(folder.file("a"));
    for (const uint32_t chunk : {0U, 1U, 50U}) {
        auto options = sized<stasis_verify_options>();
        auto report = sized<stasis_verify_report>();
        options.chunk = chunk;
        struct Seen {
            uint64_t done, total;
            stasis_snapshot *snapshot;
            stasis_status busy;
        } seen{0, 0, snapshot.get(), STASIS_OK};
        options.progress_user = &seen;
        options.progress = [](void *user, uint64_t done, uint64_t total) -> int32_t {
            auto &into = *static_cast<Seen *>(user);
            auto info = sized<stasis_snapshot_info>();
            into.busy = stasis_snapshot_get_info(into.snapshot, &info, nullptr);
            const bool rising = done >= into.done;
            into.done = done;
            into.total = total;
            return rising ? 0 : 1;
        };
        stasis_error error;
        const stasis_status status =
            stasis_snapshot_verify(snapshot.get(), gemma(), &options, &report, &error);
        CHECK_MESSAGE(status == STASIS_OK, error.message);
        CHECK(report.verified == 1);
        CHECK(report.positions == 210);
        CHECK(seen.done == 210);
        CHECK(seen.total == 210);
        CHECK(seen.busy == STASIS_BUSY);
    }
    auto report = sized<stasis_verify_report>();
    auto options = sized<stasis_verify_options>();
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    CHECK(stasis_snapshot_verify(snapshot.get(), gemma(), &options, &report, nullptr) ==
          STASIS_CANCELLED);
    CHECK(stasis_snapshot_verify(snapshot.get(), llama(), nullptr, &report, nullptr) ==
          STASIS_MODEL_MISMATCH);
}
